/** The stage: the picture, its shapes, and the pointer over them. Zoom, pan and the crosshair draw no shape again. */
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { Colours } from "../../../vision/colours";
import { selectedShapes, shownShapes, type Action, type Editor } from "../../../vision/editor";
import type { Point, Size } from "../../../vision/geometry";
import { fit, keepInSight, pan, toPicture, toScreen, zoomAt, type Viewport } from "../../../vision/viewport";
import { plural } from "../../../text/format";
import css from "./label.module.css";
import { MaskCanvas } from "./masks";
import { DraftShape, Handles, Shapes } from "./shapes";

const REACH = 6; // CSS pixels within which an edge, a vertex or the border is meant

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
  onShown?: () => void;
}

export function Stage({ editor, act, picture, name, colours, crosshair, mayEdit, api, onShown }: StageProps) {
  const box = useRef<HTMLDivElement>(null);
  const lines = useRef<HTMLDivElement>(null);
  const [room, setRoom] = useState<Size>({ width: 800, height: 600 });
  const [view, setView] = useState<Viewport>(() => fit(editor.size, room));
  const [panning, setPanning] = useState(false);
  const fitted = useRef(true);
  const pointers = useRef(new Map<number, Point>());
  const cursor = useRef<Point | null>(null); // on the stage
  const { size } = editor;

  useLayoutEffect(() => {
    const host = box.current!;
    const measure = (): void => setRoom({ width: host.clientWidth, height: host.clientHeight });
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(host);
    return () => watcher.disconnect();
  }, []);
  useLayoutEffect(() => {
    fitted.current = true;
    setView(fit(size, room));
    // Another picture is shown whole; the same one keeps its view when the window changes.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [picture, size.width, size.height]);
  useLayoutEffect(() => setView((old) => (fitted.current ? fit(size, room) : keepInSight(old, size, room))), [room, size]);

  const zoom = useCallback((at: Point, factor: number) => {
    fitted.current = false;
    setView((old) => zoomAt(old, at, factor, size, room));
  }, [size, room]);

  const drawCross = (at: Point | null): void => {
    cursor.current = at;
    const host = lines.current;
    if (!host) return;
    host.style.setProperty("--x", `${at?.[0] ?? -9}px`);
    host.style.setProperty("--y", `${at?.[1] ?? -9}px`);
  };
  const newest = useRef({ view, room });
  newest.current = { view, room };
  useEffect(() => {
    const middle = (): Point => [newest.current.room.width / 2, newest.current.room.height / 2];
    api.current = {
      zoom: (factor) => zoom(cursor.current ?? middle(), factor),
      fit: () => {
        fitted.current = true;
        setView(fit(size, newest.current.room));
      },
      moveCross: ([dx, dy]) => {
        const now = newest.current.view;
        const [x, y] = toPicture(now, cursor.current ?? middle());
        const next: Point = [Math.min(size.width, Math.max(0, Math.round(x) + dx)), Math.min(size.height, Math.max(0, Math.round(y) + dy))];
        drawCross(toScreen(now, next));
        return next;
      },
      cross: () => toPicture(newest.current.view, cursor.current ?? middle()),
      reach: () => REACH / newest.current.view.scale,
    };
  });

  // React listens to wheels passively: the page would scroll.
  useEffect(() => {
    const host = box.current!;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const bounds = host.getBoundingClientRect();
      zoom([event.clientX - bounds.left, event.clientY - bounds.top], Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)));
    };
    host.addEventListener("wheel", wheel, { passive: false });
    return () => host.removeEventListener("wheel", wheel);
  }, [zoom]);

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
    else if (event.button === 0) act({ do: "down", at: toPicture(view, at), reach: REACH / view.scale, add: event.shiftKey });
  }

  function onMove(event: React.PointerEvent): void {
    const at = place(event);
    const before = pointers.current.get(event.pointerId);
    if (event.pointerType !== "touch" || before) drawCross(at);
    if (panning && before) {
      movePan(event.pointerId, before, at);
      return;
    }
    if (editor.draft && (before || editor.draft.kind === "polygon")) act({ do: "move", at: toPicture(view, at), reach: REACH / view.scale });
  }

  /** One pointer pans; two fingers zoom as they part. */
  function movePan(id: number, before: Point, at: Point): void {
    const other = [...pointers.current].find(([key]) => key !== id)?.[1];
    pointers.current.set(id, at);
    fitted.current = false;
    if (!other) setView((old) => pan(old, [at[0] - before[0], at[1] - before[1]], size, room));
    else {
      const far = (point: Point): number => Math.max(1, Math.hypot(point[0] - other[0], point[1] - other[1]));
      zoom([(at[0] + other[0]) / 2, (at[1] + other[1]) / 2], far(at) / far(before));
    }
  }

  function onUp(event: React.PointerEvent): void {
    const known = pointers.current.delete(event.pointerId);
    if (panning) {
      if (pointers.current.size === 0) setPanning(false);
      return;
    }
    if (known) act({ do: "up", at: toPicture(view, place(event)) });
  }

  const shapes = shownShapes(editor);
  const chosen = selectedShapes(editor);
  const one = chosen.length === 1 ? shapes.find((shape) => shape.id === chosen[0]!.id) : undefined;
  const placed = { transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})`, width: size.width, height: size.height };
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
      <img className={css.picture} src={picture} alt="" draggable={false} style={placed} data-sharp={view.scale > 3 || undefined} onLoad={onShown} />
      <MaskCanvas shapes={shapes} size={size} colours={colours} style={placed} />
      <svg className={css.layer} width={room.width} height={room.height} style={{ "--inverse": 1 / view.scale } as React.CSSProperties}>
        <g role="group" aria-label="Shapes" transform={`translate(${view.x} ${view.y}) scale(${view.scale})`}>
          <Shapes shapes={shapes} selected={editor.selected} colours={colours} />
          <DraftShape draft={editor.draft} colour={colours(editor.label)} radius={editor.radius} />
          {one && <Handles shape={one} vertex={editor.vertex} locked={editor.locked.has(one.id) || !mayEdit} />}
        </g>
      </svg>
      <div ref={lines} className={css.crosshair} data-off={!crosshair || !drawing || undefined} aria-hidden="true">
        <i />
        <i />
        {(editor.tool === "brush" || editor.tool === "eraser") && <b style={{ width: editor.radius * 2 * view.scale, height: editor.radius * 2 * view.scale }} />}
      </div>
      <output className={css.scale}>{Math.round(view.scale * 100)} %</output>
    </div>
  );
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
    window.addEventListener("keydown", key);
    window.addEventListener("keyup", key);
    window.addEventListener("blur", lost);
    return () => {
      window.removeEventListener("keydown", key);
      window.removeEventListener("keyup", key);
      window.removeEventListener("blur", lost);
    };
  }, []);
  return held;
}
