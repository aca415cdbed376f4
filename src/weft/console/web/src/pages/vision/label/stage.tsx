/** The stage: the picture, its shapes, and the pointer over them. What stands still is not drawn again while a shape is dragged. */
import { useEffect, useMemo, useRef, useState } from "react";
import type { Colours } from "../../../vision/colours";
import { lifted, selectedShapes, settledShapes, type Action, type Editor } from "../../../vision/editor";
import type { Point } from "../../../vision/geometry";
import type { Shape } from "../../../vision/shapes";
import { toPicture, toScreen } from "../../../vision/viewport";
import { plural } from "../../../text/format";
import css from "./label.module.css";
import { MaskCanvas } from "./masks";
import { DraftShape, Handles, Shapes } from "./shapes";
import { useView } from "./useView";

const REACH = 6; // CSS pixels within which an edge, a vertex or the border is meant
const MOST_NAMES = 120; // beside shapes; more would hide the picture
const NONE: readonly string[] = [];

export interface StageApi {
  zoom(factor: number): void;
  fit(): void;
  /** Moves the cross by pixels of the picture and returns where it is. */
  moveCross(by: Point): Point;
  cross(): Point;
  reach(): number;
}

interface StageProps {
  editor: Editor;
  act: (action: Action) => void;
  picture: string; // its address
  name: string;
  colours: Colours;
  crosshair: boolean;
  mayEdit: boolean;
  api: React.RefObject<StageApi | null>;
}

export function Stage({ editor, act, picture, name, colours, crosshair, mayEdit, api }: StageProps) {
  const box = useRef<HTMLDivElement>(null);
  const lines = useRef<HTMLDivElement>(null);
  const [panning, setPanning] = useState(false);
  const pointers = useRef(new Map<number, Point>());
  const cursor = useRef<Point | null>(null); // on the stage
  const { size } = editor;
  const view = useView(box, picture, size);

  const drawCross = (at: Point | null): void => {
    cursor.current = at;
    const host = lines.current;
    if (!host) return;
    host.style.setProperty("--x", `${at?.[0] ?? -9}px`);
    host.style.setProperty("--y", `${at?.[1] ?? -9}px`);
  };
  useEffect(() => {
    const middle = (): Point => [view.room().width / 2, view.room().height / 2];
    api.current = {
      zoom: (factor) => view.zoom(cursor.current ?? middle(), factor),
      fit: view.fit,
      moveCross: ([dx, dy]) => {
        const [x, y] = toPicture(view.now(), cursor.current ?? middle());
        const next: Point = [Math.min(size.width, Math.max(0, Math.round(x) + dx)), Math.min(size.height, Math.max(0, Math.round(y) + dy))];
        drawCross(toScreen(view.now(), next));
        return next;
      },
      cross: () => toPicture(view.now(), cursor.current ?? middle()),
      reach: () => REACH / view.now().scale,
    };
  });
  const there = (at: Point): { at: Point; reach: number } => ({ at: toPicture(view.now(), at), reach: REACH / view.now().scale });

  const space = useHeldSpace();
  const place = (event: React.PointerEvent): Point => {
    const bounds = box.current!.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  };

  function onDown(event: React.PointerEvent): void {
    const at = place(event);
    box.current!.setPointerCapture(event.pointerId);
    box.current!.focus({ preventScroll: true });
    event.preventDefault();
    pointers.current.set(event.pointerId, at);
    if (pointers.current.size === 2) {
      act({ do: "cancel" });
      setPanning(true);
      return;
    }
    if (event.button === 1 || event.button === 2 || space.current || !mayEdit) setPanning(true);
    else if (event.button === 0) act({ do: "down", ...there(at), add: event.shiftKey });
  }

  function onMove(event: React.PointerEvent): void {
    const at = place(event);
    const before = pointers.current.get(event.pointerId);
    if (event.pointerType !== "touch" || before) drawCross(at);
    if (panning && before) {
      movePan(event.pointerId, before, at);
      return;
    }
    if (editor.draft && (before || editor.draft.kind === "polygon")) act({ do: "move", ...there(at) });
  }

  /** One pointer pans; two fingers zoom as they part. */
  function movePan(id: number, before: Point, at: Point): void {
    const other = [...pointers.current].find(([key]) => key !== id)?.[1];
    pointers.current.set(id, at);
    if (!other) view.pan([at[0] - before[0], at[1] - before[1]]);
    else {
      const far = (point: Point): number => Math.max(1, Math.hypot(point[0] - other[0], point[1] - other[1]));
      view.zoom([(at[0] + other[0]) / 2, (at[1] + other[1]) / 2], far(at) / far(before));
    }
  }

  function onUp(event: React.PointerEvent): void {
    const known = pointers.current.delete(event.pointerId);
    if (panning) {
      if (pointers.current.size === 0) setPanning(false);
      return;
    }
    if (known) act({ do: "up", ...there(place(event)) });
  }

  const { history, hidden, threshold, selected } = editor;
  // eslint-disable-next-line react-hooks/exhaustive-deps
  const shapes = useMemo(() => settledShapes(editor), [history.now, hidden, threshold]);
  const up = lifted(editor);
  const away = useSame(up?.ids ?? NONE);
  const standing = useMemo(() => without(shapes, away), [shapes, away]);
  const raised = useMemo(() => only(shapes, away), [shapes, away]);
  const chosen = selectedShapes(editor);
  const one = chosen.length === 1 ? (up?.changed ?? shapes.find((shape) => shape.id === chosen[0]!.id)) : undefined;
  const sides = { width: size.width, height: size.height };
  const named = shapes.length <= MOST_NAMES;
  const drawing = editor.tool !== "select" && mayEdit;
  return (
    <div
      ref={box}
      className={css.stage}
      role="application"
      aria-roledescription="picture"
      aria-label={`${name}, ${size.width} by ${size.height}, ${plural(shapes.length, "shape")}`}
      tabIndex={0}
      data-panning={panning || undefined}
      data-drawing={drawing || undefined}
      onPointerDown={onDown}
      onPointerMove={onMove}
      onPointerUp={onUp}
      onPointerCancel={onUp}
      onPointerLeave={() => pointers.current.size === 0 && drawCross(null)}
      onDoubleClick={() => act({ do: "close-polygon" })}
      onContextMenu={(event) => event.preventDefault()}
    >
      <img className={css.picture} src={picture} alt="" decoding="sync" draggable={false} style={sides} data-view="picture" />
      <MaskCanvas shapes={standing} size={size} colours={colours} />
      {up && <MaskCanvas shapes={raised} size={size} colours={colours} by={up.by} />}
      <svg className={css.layer} data-view="layer" aria-hidden={shapes.length === 0 || undefined}>
        <g role="group" aria-label="Shapes">
          <Shapes shapes={standing} selected={selected} colours={colours} named={named} />
        </g>
      </svg>
      <svg className={css.layer} data-view="layer">
        <g>
          {up && (
            <g role="group" aria-label="Dragged" transform={`translate(${up.by[0]} ${up.by[1]})`}>
              <Shapes shapes={up.changed ? [up.changed] : raised} selected={selected} colours={colours} named={named} />
            </g>
          )}
          <DraftShape draft={editor.draft} colour={colours(editor.label)} radius={editor.radius} />
          {one && <g transform={up ? `translate(${up.by[0]} ${up.by[1]})` : undefined}><Handles shape={one} vertex={editor.vertex} locked={editor.locked.has(one.id) || !mayEdit} /></g>}
        </g>
      </svg>
      <div ref={lines} className={css.crosshair} data-cross data-off={!crosshair || !drawing || undefined} aria-hidden="true">
        <i />
        <i />
        {(editor.tool === "brush" || editor.tool === "eraser") && <b style={{ "--diameter": `${editor.radius * 2}px` } as React.CSSProperties} />}
      </div>
      <output className={css.scale} />
    </div>
  );
}

/** Returns the same list as before while its members are. */
function useSame(ids: readonly string[]): readonly string[] {
  const kept = useRef(ids);
  if (kept.current.length !== ids.length || kept.current.some((id, index) => id !== ids[index])) kept.current = ids;
  return kept.current;
}

function without(shapes: readonly Shape[], away: readonly string[]): readonly Shape[] {
  if (away.length === 0) return shapes;
  const gone = new Set(away);
  return shapes.filter((shape) => !gone.has(shape.id));
}

function only(shapes: readonly Shape[], ids: readonly string[]): readonly Shape[] {
  const wanted = new Set(ids);
  return wanted.size ? shapes.filter((shape) => wanted.has(shape.id)) : [];
}

/** Returns whether the space bar is held now: it makes the pointer a hand. */
function useHeldSpace(): React.RefObject<boolean> {
  const held = useRef(false);
  useEffect(() => {
    const key = (event: KeyboardEvent): void => {
      if (event.key !== " ") return;
      held.current = event.type === "keydown";
    };
    const lost = (): void => void (held.current = false);
    // The keys of the page come first and let no key go further.
    window.addEventListener("keydown", key, { capture: true });
    window.addEventListener("keyup", key, { capture: true });
    window.addEventListener("blur", lost);
    return () => {
      window.removeEventListener("keydown", key, { capture: true });
      window.removeEventListener("keyup", key, { capture: true });
      window.removeEventListener("blur", lost);
    };
  }, []);
  return held;
}
