/** Shapes over a picture as SVG, so that they can be tested and read aloud. One that did not change is not drawn again. */
import { memo } from "react";
import type { Draft, Editor } from "../../../vision/editor";
import { boxBetween, handlePoint, HANDLES, height, width, type Box, type Point } from "../../../vision/geometry";
import { spokenShape, type Shape } from "../../../vision/shapes";
import type { Colours } from "../../../vision/colours";
import css from "./label.module.css";

const path = (ring: readonly Point[]): string => `M${ring.map(([x, y]) => `${x} ${y}`).join("L")}Z`;
const rect = (box: Box): { x: number; y: number; width: number; height: number } => ({ x: box[0], y: box[1], width: width(box), height: height(box) });

interface OneProps {
  shape: Shape;
  colour: string;
  selected: boolean;
  named: boolean;
}

const OneShape = memo(function OneShape({ shape, colour, selected, named }: OneProps) {
  const common = {
    role: "img", "aria-label": spokenShape(shape), "data-shape": shape.id, "data-selected": selected || undefined,
    "data-auto": shape.confidence === null ? undefined : true, style: { "--tone": colour } as React.CSSProperties,
  };
  const drawn = shape.polygons.length ? (
    <path className={css.shape} d={shape.polygons.map(path).join("")} {...common} />
  ) : (
    <rect className={`${css.shape} ${shape.mask ? css.maskFrame : ""}`} {...rect(shape.box)} {...common} />
  );
  if (!named) return drawn;
  return (
    <>
      {drawn}
      <text className={css.name} aria-hidden="true" style={{ transform: `translate(${shape.box[0]}px, ${shape.box[1]}px) scale(var(--inverse))`, "--tone": colour } as React.CSSProperties} dx={3} dy={-4}>
        {shape.label}{shape.confidence === null ? "" : ` ${Math.round(shape.confidence * 100)} %`}
      </text>
    </>
  );
});

interface ShapesProps {
  shapes: readonly Shape[];
  selected: readonly string[];
  colours: Colours;
  named: boolean;
}

export const Shapes = memo(function Shapes({ shapes, selected, colours, named }: ShapesProps) {
  const chosen = new Set(selected);
  return (
    <>
      {shapes.map((shape) => (
        <OneShape key={shape.id} shape={shape} colour={colours(shape.label)} selected={chosen.has(shape.id)} named={named || (chosen.has(shape.id) && chosen.size < 20)} />
      ))}
    </>
  );
});

/** Handles of the one selected shape: corners and edges of a box, vertices of a polygon; always of one size. */
export function Handles({ shape, vertex, locked }: { shape: Shape; vertex: Editor["vertex"]; locked: boolean }) {
  if (locked || shape.mask) return null;
  const knob = (at: Point, key: string, on: boolean = false) => (
    <circle key={key} className={css.knob} data-on={on || undefined} r={on ? 6 : 4.5} aria-hidden="true" style={{ transform: `translate(${at[0]}px, ${at[1]}px) scale(var(--inverse))` }} />
  );
  if (shape.polygons.length === 0) return <>{HANDLES.map((handle) => knob(handlePoint(shape.box, handle), handle))}</>;
  return <>{shape.polygons.flatMap((ring, number) => ring.map((at, index) => knob(at, `${number}.${index}`, vertex?.ring === number && vertex.index === index)))}</>;
}

/** What is being drawn. */
export function DraftShape({ draft, colour, radius }: { draft: Draft | null; colour: string; radius: number }) {
  const style = { "--tone": colour } as React.CSSProperties;
  if (!draft) return null;
  if (draft.kind === "box" || draft.kind === "marquee") {
    const look = draft.kind === "marquee" ? css.marquee : draft.assist ? `${css.shape} ${css.maskFrame}` : css.shape;
    return <rect className={look} data-testid="draft" {...rect(boxBetween(draft.from, draft.to))} style={style} />;
  }
  if (draft.kind === "polygon") {
    const points = [...draft.points, draft.cursor].map(([x, y]) => `${x},${y}`).join(" ");
    return (
      <g style={style} data-testid="draft">
        <polyline className={css.shape} points={points} />
        {draft.points.map((at, index) => (
          <circle key={index} className={css.knob} data-on={index === 0 && draft.points.length > 2 ? true : undefined} r={index === 0 ? 6 : 4} style={{ transform: `translate(${at[0]}px, ${at[1]}px) scale(var(--inverse))` }} />
        ))}
      </g>
    );
  }
  if (draft.kind === "stroke") {
    const points = draft.points.map(([x, y]) => `${x},${y}`).join(" ");
    return <polyline className={draft.erase ? css.erasing : css.painting} data-testid="draft" points={draft.points.length === 1 ? `${points} ${points}` : points} strokeWidth={radius * 2} style={style} />;
  }
  return null;
}
