/** A chart on a canvas for thousands of marks: axes, what a caller draws, and the trial under the pointer. */
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { clock, duration, number } from "../../text/format";
import { numberAt, placeOn, ticksOf, timeTicks, type Scalar, type Scale, type TrialState } from "../../text/studies";
import { colour, theme, useColourTurn } from "../../theme";
import css from "./studies.module.css";

export type Tones = Record<TrialState | "ink" | "faint" | "line" | "surface" | "best" | "accent", string> & { ramp: string[] };

const REACH = 16; // pixels to a mark

let kept: { key: string; tones: Tones } | null = null;

/** Returns the colours that canvases use; they change with the theme, and all charts of a page share them. */
export function useTones(): Tones {
  useColourTurn();
  const key = `${theme.get()} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  if (kept?.key !== key) kept = { key, tones: readTones() };
  return kept.tones;
}

function readTones(): Tones {
  return {
    running: colour("--blue"), waiting: colour("--amber"), paused: colour("--purple"), completed: colour("--green"), stopped: colour("--grey"),
    failed: colour("--orange"), ink: colour("--ink-2"), faint: colour("--ink-3"), line: colour("--line"), surface: colour("--surface"),
    best: colour("--line-2"), accent: colour("--accent"),
    ramp: mixes([colour("--heat-0"), colour("--heat-1"), colour("--heat-2"), colour("--heat-3"), colour("--blue")], 33),
  };
}

/** Returns so many colours between some, for values from 0 to 1. */
export function mixes(stops: string[], count: number): string[] {
  const parts = stops.map((stop) => (stop.match(/[\d.]+/g) ?? ["0", "0", "0"]).slice(0, 3).map(Number));
  return Array.from({ length: count }, (_, index) => {
    const at = (index / (count - 1)) * (parts.length - 1);
    const [low, high] = [parts[Math.floor(at)]!, parts[Math.min(parts.length - 1, Math.floor(at) + 1)]!];
    return `rgb(${low.map((value, part) => Math.round(value + (high[part]! - value) * (at % 1))).join(", ")})`;
  });
}

export const onRamp = (ramp: string[], place: number): string => ramp[Math.round(Math.min(1, Math.max(0, place)) * (ramp.length - 1))]!;

export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  x: (value: Scalar | undefined) => number | null;
  y: (value: Scalar | undefined) => number | null;
}

export interface Mark {
  trial: number;
  x: number; // pixels
  y: number;
}

interface PlotProps {
  title: ReactNode;
  label: string; // for those who do not see it
  x: Scale;
  y: Scale;
  xName?: string;
  time?: boolean; // the horizontal axis is milliseconds: of the clock, or since the first
  since_ms?: number;
  height?: number;
  extra?: ReactNode;
  /** Draws all, and returns the marks that can be picked. */
  draw: (context: CanvasRenderingContext2D, frame: Frame) => Mark[];
  /** Draws one trial over the others. */
  over?: (context: CanvasRenderingContext2D, frame: Frame, trial: number) => void;
  tip?: (trial: number) => string;
  chosen?: number | null;
  onPick?: (trial: number) => void;
  onZoom?: (low: number, high: number) => void;
  lanes?: string[]; // names of rows, where the vertical axis has no numbers
}

export function Plot({ title, label, x, y, xName, time, since_ms, height = 300, extra, draw, over, tip, chosen = null, onPick, onZoom, lanes }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const top = useRef<HTMLCanvasElement>(null);
  const marks = useRef<Mark[]>([]);
  const [width, setWidth] = useState(0);
  const [near, setNear] = useState<Mark | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const tones = useTones();
  const frame = useMemo(() => frameOf(x, y, width, height, lanes), [x, y, width, height, lanes]);

  useEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const watcher = new ResizeObserver(() => setWidth(host.clientWidth));
    watcher.observe(host);
    setWidth(host.clientWidth);
    return () => watcher.disconnect();
  }, []);

  useEffect(() => {
    const context = prepare(base.current, width, height);
    if (!context) return;
    axes(context, frame, x, y, tones, { time: time ?? false, since_ms: since_ms ?? null, lanes: lanes ?? null });
    context.save();
    context.beginPath();
    context.rect(frame.left - 5, frame.top - 5, frame.width + 10, frame.height + 10);
    context.clip();
    marks.current = draw(context, frame);
    context.restore();
  }, [draw, frame, x, y, tones, width, height, time, since_ms, lanes]);

  useEffect(() => {
    const context = prepare(top.current, width, height);
    if (!context) return;
    for (const trial of new Set([chosen, near?.trial ?? null])) if (trial !== null) over?.(context, frame, trial);
    if (drag) {
      context.globalAlpha = 0.16;
      context.fillStyle = tones.accent;
      context.fillRect(Math.min(drag.from, drag.to), frame.top, Math.abs(drag.to - drag.from), frame.height);
    }
  }, [near, chosen, over, frame, width, height, drag, tones]);

  function place(event: { clientX: number; clientY: number }): { x: number; y: number } {
    const bounds = top.current!.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  }
  function move(event: React.PointerEvent): void {
    const at = place(event);
    if (drag) {
      setDrag({ ...drag, to: at.x });
      return;
    }
    const found = nearest(marks.current, at.x, at.y);
    if (found?.trial !== near?.trial || found?.x !== near?.x) setNear(found);
  }
  function up(): void {
    if (drag && Math.abs(drag.to - drag.from) > 6 && onZoom) {
      const at = (px: number): number => numberAt(x, Math.min(1, Math.max(0, (px - frame.left) / frame.width)));
      const [low, high] = [at(Math.min(drag.from, drag.to)), at(Math.max(drag.from, drag.to))];
      onZoom(low, high);
    } else if (near && onPick) onPick(near.trial);
    setDrag(null);
  }
  return (
    <figure className={css.plot}>
      <div className={css.plotHead}>
        <figcaption>{title}</figcaption>
        {extra}
      </div>
      <div ref={box} className={css.canvases} style={{ height }}>
        <canvas ref={base} role="img" aria-label={label} />
        <canvas
          ref={top}
          aria-hidden="true"
          data-pick={near && onPick ? "true" : undefined}
          onPointerMove={move}
          onPointerLeave={() => (setNear(null), setDrag(null))}
          onPointerDown={(event) => (onZoom || onPick) && event.button === 0 && setDrag(onZoom ? { from: place(event).x, to: place(event).x } : null)}
          onPointerUp={up}
          onDoubleClick={() => onZoom?.(-Infinity, Infinity)}
        />
        {near && tip && !drag && (
          <div className={css.tip} style={near.x > width / 2 ? { right: width - near.x + 10, top: near.y - 8 } : { left: near.x + 10, top: near.y - 8 }}>
            {tip(near.trial)}
          </div>
        )}
      </div>
      {xName && <div className={css.xName}>{xName}</div>}
    </figure>
  );
}

/** Returns the mark that is nearest to a point and near enough. */
export function nearest(marks: readonly Mark[], x: number, y: number): Mark | null {
  let found: Mark | null = null;
  let least = REACH * REACH;
  for (const mark of marks) {
    const distance = (mark.x - x) ** 2 + (mark.y - y) ** 2;
    if (distance < least) [found, least] = [mark, distance];
  }
  return found;
}

export function prepare(canvas: HTMLCanvasElement | null, width: number, height: number): CanvasRenderingContext2D | null {
  if (!canvas || width === 0) return null;
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

function frameOf(x: Scale, y: Scale, width: number, height: number, lanes: string[] | undefined): Frame {
  const texts = lanes ?? y.words ?? ticksOf(y).map(tickText);
  const longest = texts.reduce((most, text) => Math.max(most, text.length), 0);
  const left = Math.min(width * 0.34, Math.max(34, longest * 6.6 + 12));
  const [top, bottom, right] = [10, 24, 12];
  const inner = { left, top, width: Math.max(1, width - left - right), height: height - top - bottom };
  const pad = y.words && !lanes ? 0.08 : 0;
  return {
    ...inner,
    x: (value) => {
      const place = placeOn(x, value);
      return place === null ? null : inner.left + (x.words ? 0.06 + place * 0.88 : place) * inner.width;
    },
    y: (value) => {
      const place = placeOn(y, value);
      return place === null ? null : inner.top + (1 - (pad + place * (1 - 2 * pad))) * inner.height;
    },
  };
}

/** Returns a number beside an axis: "1e-4" rather than "1.00e-4". */
export const tickText = (value: number): string => number(value).replace(/\.0+e/, "e");

const FONT = "11px 'Plex Sans', sans-serif";

function axes(context: CanvasRenderingContext2D, frame: Frame, x: Scale, y: Scale, tones: Tones, how: { time: boolean; since_ms: number | null; lanes: string[] | null }): void {
  context.font = FONT;
  context.lineWidth = 1;
  context.strokeStyle = tones.line;
  context.fillStyle = tones.faint;
  context.textBaseline = "middle";
  context.textAlign = "right";
  if (how.lanes) {
    const high = frame.height / Math.max(1, how.lanes.length);
    const every = Math.ceil(14 / high);
    how.lanes.forEach((name, lane) => lane % every === 0 && context.fillText(name, frame.left - 6, frame.top + (lane + 0.5) * high, frame.left - 10));
  } else {
    for (const tick of ticksOf(y, Math.max(2, frame.height / 45))) {
      const value = y.words ? y.words[tick]! : tick;
      const at = frame.y(value);
      if (at === null) continue;
      stroke(context, frame.left, at, frame.left + frame.width, at);
      context.fillText(typeof value === "number" ? tickText(value) : value, frame.left - 6, at, frame.left - 8);
    }
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const wanted = Math.max(2, Math.min(x.words ? 99 : 8, frame.width / 80));
  let last = -Infinity;
  for (const tick of how.time ? timeTicks(x.low, x.high, how.since_ms ?? 0, wanted) : ticksOf(x, wanted)) {
    const value = x.words ? x.words[tick]! : tick;
    const at = frame.x(value);
    if (at === null) continue;
    stroke(context, at, frame.top, at, frame.top + frame.height);
    const text = typeof value !== "number" ? value : !how.time ? tickText(value) : how.since_ms === null ? clock(value) : duration(value - how.since_ms).replace(/ 00 [sm]$/, "");
    const half = context.measureText(text).width / 2;
    const centre = Math.min(Math.max(at, half + 2), frame.left + frame.width + 10 - half);
    if (centre - half < last + 8) continue;
    context.fillText(text, centre, frame.top + frame.height + 8);
    last = centre + half;
  }
}

function stroke(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  context.beginPath();
  context.moveTo(x1, Math.round(y1) + 0.5);
  context.lineTo(x2, Math.round(y2) + 0.5);
  if (x1 === x2) {
    context.beginPath();
    context.moveTo(Math.round(x1) + 0.5, y1);
    context.lineTo(Math.round(x2) + 0.5, y2);
  }
  context.stroke();
}

/** Draws the shape of a trial's state at a point: shapes differ, not only colours. */
export function shape(context: CanvasRenderingContext2D, state: string, x: number, y: number, size: number, promoted: boolean = false): void {
  const half = size / 2;
  context.beginPath();
  if (state === "paused") {
    context.rect(x - half, y - half, size * 0.36, size);
    context.rect(x + half - size * 0.36, y - half, size * 0.36, size);
    context.fill();
  } else if (state === "failed" || state === "stopped") {
    context.lineWidth = state === "failed" ? 1.8 : 1.1;
    context.moveTo(x - half, y - half);
    context.lineTo(x + half, y + half);
    context.moveTo(x + half, y - half);
    context.lineTo(x - half, y + half);
    context.stroke();
  } else if (promoted) {
    context.moveTo(x, y - half * 1.2);
    context.lineTo(x + half * 1.1, y + half * 0.8);
    context.lineTo(x - half * 1.1, y + half * 0.8);
    context.fill();
  } else if (state === "completed") {
    context.rect(x - half * 0.85, y - half * 0.85, size * 0.85, size * 0.85);
    context.fill();
  } else {
    context.arc(x, y, half, 0, 7);
    context.fill();
  }
}
