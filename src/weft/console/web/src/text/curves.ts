/** Curves made ready to draw: smoothed, grouped, aligned; all pure. */
import type { CurveView } from "../api/types";

export type XAxis = "step" | "time" | "relative";

/** One curve with a name for the legend and the place of its colour. */
export interface Line {
  label: string;
  colour: number;
  curve: CurveView;
  start_ms: number | null; // what relative times count from
}

/** Returns an exponential moving average without the pull towards zero at the start; gaps stay gaps. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let last = 0;
  let seen = 0;
  return values.map((value) => {
    if (value === null || !Number.isFinite(value)) return null;
    seen += 1;
    last = last * weight + value * (1 - weight);
    return last / (1 - weight ** seen);
  });
}

const SPLIT = /^(?:train|val|valid|validation|test|eval)[_/.-]/;

/** Returns charts of metrics that belong together: loss beside val_loss, each other metric alone. */
export function groupMetrics(names: readonly string[]): { key: string; names: string[] }[] {
  const groups = new Map<string, string[]>();
  for (const name of names) {
    const key = name.replace(SPLIT, "");
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups].map(([key, members]) => ({ key, names: members.sort((a, b) => a.length - b.length || a.localeCompare(b)) }));
}

export function xValues(line: Line, axis: XAxis): number[] {
  if (axis === "step") return line.curve.steps;
  const times = line.curve.times_ms;
  const start = line.start_ms ?? times[0] ?? 0;
  return axis === "time" ? times.map((time) => time / 1000) : times.map((time) => (time - start) / 1000);
}

/** Returns the step of a curve at a place of the axis. */
export function stepAt(line: Line, axis: XAxis, x: number): number {
  if (axis === "step") return Math.round(x);
  const xs = xValues(line, axis);
  const index = xs.findIndex((value) => value >= x);
  return line.curve.steps[index < 0 ? xs.length - 1 : index] ?? 0;
}

/** Returns a curve with points that came live after it was read; those it has already are left out. */
export function extend(curve: CurveView, points: readonly (readonly [number, number, number | null])[]): CurveView {
  const last = curve.steps.at(-1) ?? -Infinity;
  const fresh = points.filter(([step]) => step > last);
  if (fresh.length === 0) return curve;
  const values = fresh.map(([, , value]) => value);
  return {
    ...curve,
    steps: [...curve.steps, ...fresh.map(([step]) => step)],
    times_ms: [...curve.times_ms, ...fresh.map(([, time]) => time)],
    mean: [...curve.mean, ...values],
    low: [...curve.low, ...values],
    high: [...curve.high, ...values],
  };
}

/** Returns the ends of a zoom that the address holds: "200-900". */
export function parseZoom(text: string): { first: number; last: number } | null {
  const found = /^(-?\d+)-(\d+)$/.exec(text);
  if (!found) return null;
  const [first, last] = [Number(found[1]), Number(found[2])];
  return last > first ? { first, last } : null;
}
