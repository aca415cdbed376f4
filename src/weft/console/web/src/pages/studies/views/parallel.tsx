/** Parallel coordinates: each trial is a line through its parameters and its value; ranges of axes are brushed. */
import { useEffect, useMemo, useRef, useState } from "react";
import type { TrialView } from "../../../api/types";
import { Button } from "../../../parts/controls";
import { Card, layout } from "../../../parts/layout";
import { useParam } from "../../../text/address";
import { number, plural } from "../../../text/format";
import { fieldOf, numberAt, placeOn, ranks, scaleOf, ticksOf, type Brush, type Brushes, type Scale } from "../../../text/studies";
import { onRamp, prepare, tickText, useTones, type Tones } from "../plot";
import css from "../studies.module.css";
import { FilterChips, tipOf, useByNumber, useFilters, useParameters, type StudyProps } from "../view";

const HEIGHT = 400;
const [TOP, BOTTOM, SIDE, LEAST_GAP] = [34, 18, 64, 96];

/** Returns the brush between two places of an axis. */
export function brushBetween(scale: Scale, one: number, other: number): Brush | null {
  const [low, high] = [Math.max(0, Math.min(one, other)), Math.min(1, Math.max(one, other))];
  if (!scale.words) return { low: numberAt(scale, low), high: numberAt(scale, high) };
  const words = scale.words.filter((word) => {
    const place = placeOn(scale, word) ?? -1;
    return place >= low - 1e-9 && place <= high + 1e-9;
  });
  return words.length > 0 && words.length < scale.words.length ? { words } : null;
}

export default function ParallelTab(props: StudyProps) {
  const { trials, metric, small, domains, chosen, choose } = props;
  const filters = useFilters(trials);
  const [logY] = useParam("y", "linear");
  const names = useParameters(props);
  const axes = useMemo(() => {
    const params = names.filter((name) => new Set(trials.map((trial) => String(trial.params[name]))).size > 1).slice(0, 12);
    const metrics = Object.keys(props.detail.study.metrics);
    return [...params.map((name) => scaleOf(name, trials.map((trial) => trial.params[name]), domains[name] ?? null)), ...metrics.map((name) => scaleOf(name, filters.unbrushed.map((trial) => (typeof trial.values[name] === "number" ? trial.values[name] : null)), null, name === metric && logY === "log"))];
  }, [names, trials, filters.unbrushed, domains, props.detail.study.metrics, metric, logY]);
  const shown = useMemo(() => new Set(filters.shown.map((trial) => trial.number)), [filters.shown]);
  const rank = useMemo(() => ranks(filters.unbrushed, metric, small), [filters.unbrushed, metric, small]);
  const found = useByNumber(trials);
  if (axes.length < 2) return <p className={layout.note}>At least two trials must differ in a parameter to draw lines between axes.</p>;
  return (
    <div className={css.stack}>
      <FilterChips trials={trials} filters={filters} />
      <Card label="Parallel coordinates">
        <p className={layout.note}>{plural(shown.size, "trial")} of {trials.length}. Drag along an axis to keep a range; press its name to drop it. Dark lines are better; orange is the best.</p>
        <Lines axes={axes} trials={filters.unbrushed} shown={shown} rank={rank} brushes={filters.brushes} onBrush={filters.setBrushes} chosen={chosen} choose={choose} tip={tipOf(found, metric)} />
        <RangeForm axes={axes} brushes={filters.brushes} onBrush={filters.setBrushes} />
      </Card>
    </div>
  );
}

interface LinesProps {
  axes: Scale[];
  trials: TrialView[];
  shown: Set<number>;
  rank: Map<number, number>;
  brushes: Brushes;
  onBrush: (brushes: Brushes) => void;
  chosen: number | null;
  choose: (trial: number | null) => void;
  tip: (trial: number) => string;
}

function Lines({ axes, trials, shown, rank, brushes, onBrush, chosen, choose, tip }: LinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const top = useRef<HTMLCanvasElement>(null);
  const tones = useTones();
  const [outer, setOuter] = useState(0);
  const [near, setNear] = useState<{ trial: number; x: number; y: number } | null>(null);
  const [drag, setDrag] = useState<{ axis: number; from: number; to: number } | null>(null);
  const width = Math.max(outer, SIDE * 2 + LEAST_GAP * (axes.length - 1));
  const gap = (width - SIDE * 2) / (axes.length - 1);
  const y = (place: number): number => TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
  const lines = useMemo(
    () => trials.filter((trial) => rank.has(trial.number) || trial.state === "running").map((trial) => ({ trial, places: axes.map((axis) => placeOn(axis, fieldOf(trial, axis.name))) })),
    [trials, axes, rank],
  );

  useEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const watcher = new ResizeObserver(() => setOuter(host.clientWidth));
    watcher.observe(host);
    setOuter(host.clientWidth);
    return () => watcher.disconnect();
  }, []);

  useEffect(() => {
    const context = outer ? prepare(base.current, width, HEIGHT) : null;
    if (!context) return;
    const order = [...lines].sort((a, b) => Number(shown.has(a.trial.number)) - Number(shown.has(b.trial.number)) || (rank.get(a.trial.number) ?? 0) - (rank.get(b.trial.number) ?? 0));
    const crowd = shown.size > 200;
    for (const { trial, places } of order) {
      const inside = shown.has(trial.number);
      const place = rank.get(trial.number) ?? 0;
      context.globalAlpha = inside ? (place === 1 ? 1 : crowd ? 0.06 + 0.74 * place ** 4 : 0.85) : crowd || trials.length > 200 ? 0.05 : 0.2;
      context.strokeStyle = !inside ? tones.faint : place === 1 ? tones.best : onRamp(tones.ramp, 0.2 + 0.8 * place);
      context.lineWidth = inside && place === 1 ? 3 : crowd ? 1 : 1.6;
      trace(context, places, gap, y);
    }
    context.globalAlpha = 1;
    drawAxes(context, axes, brushes, gap, y, tones);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [lines, shown, rank, axes, brushes, tones, width, outer, gap]);

  useEffect(() => {
    const context = outer ? prepare(top.current, width, HEIGHT) : null;
    if (!context) return;
    for (const wanted of new Set([chosen, near?.trial ?? null])) {
      const line = wanted === null ? undefined : lines.find(({ trial }) => trial.number === wanted);
      if (!line) continue;
      context.strokeStyle = tones.ink;
      context.lineWidth = 3;
      trace(context, line.places, gap, y);
    }
    if (drag) {
      context.globalAlpha = 0.25;
      context.fillStyle = tones.accent;
      context.fillRect(SIDE + drag.axis * gap - 9, Math.min(drag.from, drag.to), 18, Math.abs(drag.to - drag.from));
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [near, chosen, lines, tones, width, outer, gap, drag]);

  const at = (event: React.PointerEvent): { x: number; y: number } => {
    const bounds = top.current!.getBoundingClientRect();
    return { x: event.clientX - bounds.left, y: event.clientY - bounds.top };
  };
  const axisAt = (x: number): number | null => {
    const axis = Math.round((x - SIDE) / gap);
    return axis >= 0 && axis < axes.length && Math.abs(x - SIDE - axis * gap) < 16 ? axis : null;
  };
  function move(event: React.PointerEvent): void {
    const point = at(event);
    if (drag) return setDrag({ ...drag, to: Math.min(HEIGHT - BOTTOM, Math.max(TOP, point.y)) });
    setNear(nearestLine(lines, shown, point, gap, y));
  }
  function up(): void {
    if (drag) {
      const axis = axes[drag.axis]!;
      const place = (py: number): number => 1 - (py - TOP) / (HEIGHT - TOP - BOTTOM);
      const rest = Object.fromEntries(Object.entries(brushes).filter(([name]) => name !== axis.name));
      const made = Math.abs(drag.to - drag.from) < 4 ? null : brushBetween(axis, place(drag.from), place(drag.to));
      onBrush(made ? { ...rest, [axis.name]: made } : rest);
      setDrag(null);
    } else if (near) choose(near.trial);
  }
  return (
    <div ref={box} className={css.scroller} tabIndex={0} role="group" aria-label="Axes of the parameters">
      <div className={css.canvases} style={{ height: HEIGHT, width }}>
        <canvas ref={base} role="img" aria-label={`${plural(shown.size, "trial")} as lines through ${axes.map((axis) => axis.name).join(", ")}`} />
        <canvas
          ref={top}
          aria-hidden="true"
          data-testid="brush"
          onPointerDown={(event) => {
            const point = at(event);
            const axis = axisAt(point.x);
            if (axis === null || event.button !== 0) return;
            if (point.y < TOP - 6) {
              onBrush(Object.fromEntries(Object.entries(brushes).filter(([name]) => name !== axes[axis]!.name)));
              return;
            }
            event.currentTarget.setPointerCapture(event.pointerId);
            setDrag({ axis, from: point.y, to: point.y });
          }}
          onPointerMove={move}
          onPointerUp={up}
          onPointerLeave={() => !drag && setNear(null)}
        />
        {near && !drag && <div className={css.tip} style={near.x > width / 2 ? { right: width - near.x + 12, top: near.y } : { left: near.x + 12, top: near.y }}>{tip(near.trial)}</div>}
      </div>
    </div>
  );
}

function trace(context: CanvasRenderingContext2D, places: (number | null)[], gap: number, y: (place: number) => number): void {
  context.beginPath();
  let down = false;
  places.forEach((place, axis) => {
    if (place === null) return; // a parameter that this trial does not have: the line goes on to the next axis
    const [px, py] = [SIDE + axis * gap, y(place)];
    if (down) context.lineTo(px, py);
    else context.moveTo(px, py);
    down = true;
  });
  context.stroke();
}

function drawAxes(context: CanvasRenderingContext2D, axes: Scale[], brushes: Brushes, gap: number, y: (place: number) => number, tones: Tones): void {
  axes.forEach((axis, index) => {
    const x = SIDE + index * gap;
    context.strokeStyle = tones.faint;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x + 0.5, y(1));
    context.lineTo(x + 0.5, y(0));
    context.stroke();
    const brush = brushes[axis.name];
    if (brush) {
      const places = "words" in brush ? brush.words.map((word) => placeOn(axis, word) ?? 0) : [placeOn(axis, brush.low) ?? 0, placeOn(axis, brush.high) ?? 1];
      const [low, high] = [Math.max(-0.02, Math.min(...places) - ("words" in brush ? 0.02 : 0)), Math.min(1.02, Math.max(...places) + ("words" in brush ? 0.02 : 0))];
      context.globalAlpha = 0.3;
      context.fillStyle = tones.accent;
      context.fillRect(x - 8, y(high), 16, y(low) - y(high));
      context.globalAlpha = 1;
    }
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.font = "600 12px 'Plex Sans', sans-serif";
    text(context, axis.name, x, 16, tones, tones.ink, gap - 8);
    context.font = "11px 'Plex Sans', sans-serif";
    context.textAlign = "left";
    for (const tick of ticksOf(axis, 5)) {
      const value = axis.words ? axis.words[tick]! : tick;
      const place = placeOn(axis, value);
      if (place !== null && place > -0.001 && place < 1.001) text(context, typeof value === "number" ? tickText(value) : value, x + 5, y(place) + 4, tones, tones.faint, gap - 12);
    }
  });
}

function text(context: CanvasRenderingContext2D, word: string, x: number, y: number, tones: Tones, tone: string, most: number): void {
  context.strokeStyle = tones.surface;
  context.lineWidth = 3;
  context.strokeText(word, x, y, most);
  context.fillStyle = tone;
  context.fillText(word, x, y, most);
}

/** Returns the line that passes nearest to a point between two axes. */
function nearestLine(lines: { trial: TrialView; places: (number | null)[] }[], shown: Set<number>, point: { x: number; y: number }, gap: number, y: (place: number) => number): { trial: number; x: number; y: number } | null {
  const before = Math.floor((point.x - SIDE) / gap);
  const share = (point.x - SIDE) / gap - before;
  let found: number | null = null;
  let least = 8;
  for (const { trial, places } of lines) {
    if (!shown.has(trial.number)) continue;
    const [one, other] = [places[before] ?? places[before + 1], places[before + 1] ?? places[before]];
    if (one === null || one === undefined || other === null || other === undefined) continue;
    const distance = Math.abs(y(one + (other - one) * share) - point.y);
    if (distance < least) [found, least] = [trial.number, distance];
  }
  return found === null ? null : { trial: found, ...point };
}

/** The same ranges by keyboard: an axis, and two ends or a choice. */
function RangeForm({ axes, brushes, onBrush }: { axes: Scale[]; brushes: Brushes; onBrush: (brushes: Brushes) => void }) {
  const [name, setName] = useState(axes[0]!.name);
  const axis = axes.find((one) => one.name === name) ?? axes[0]!;
  return (
    <form
      className={css.tools}
      aria-label="Keep a range"
      onSubmit={(event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        const [low, high] = [Number(form.get("low") || axis.low), Number(form.get("high") || axis.high)];
        if (axis.words) onBrush({ ...brushes, [axis.name]: { words: [String(form.get("word"))] } });
        else if (Number.isFinite(low) && Number.isFinite(high)) onBrush({ ...brushes, [axis.name]: { low, high } });
      }}
    >
      <label>Keep
        <select value={axis.name} onChange={(event) => setName(event.target.value)}>{axes.map((one) => <option key={one.name}>{one.name}</option>)}</select>
      </label>
      {axis.words ? (
        <label>that is <select name="word">{axis.words.map((word) => <option key={word}>{word}</option>)}</select></label>
      ) : (
        <>
          <label>from <input type="text" inputMode="decimal" name="low" size={8} placeholder={number(axis.low)} /></label>
          <label>to <input type="text" inputMode="decimal" name="high" size={8} placeholder={number(axis.high)} /></label>
        </>
      )}
      <Button type="submit" small>Keep</Button>
    </form>
  );
}
