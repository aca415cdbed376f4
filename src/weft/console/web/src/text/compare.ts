/** Jobs side by side: what differs between them, groups of their curves, their best values; all pure. */
import type { CurveView, JobDetail, MetricView } from "../api/types";

/** Returns nested data as one level: {"resources.cpus": "4"}. */
export function flatten(value: unknown, prefix: string = ""): Record<string, string> {
  if (value === null || value === undefined || value === "") return {};
  if (Array.isArray(value)) {
    if (value.length === 0) return {};
    if (value.every((item) => typeof item !== "object")) return { [prefix]: value.join(" ") };
    return Object.assign({}, ...value.map((item, index) => flatten(item, `${prefix}[${index}]`))) as Record<string, string>;
  }
  if (typeof value === "object") {
    return Object.assign(
      {},
      ...Object.entries(value).map(([name, inner]) => flatten(inner, prefix ? `${prefix}.${name}` : name)),
    ) as Record<string, string>;
  }
  return { [prefix]: String(value) };
}

export interface CompareRow {
  section: "Parameters" | "Specification" | "Environment" | "Metrics, best" | "Metrics, last";
  name: string;
  values: (string | null)[];
  differs: boolean;
}

export function lowerIsBetter(name: string): boolean {
  return /loss|error|perplexity|mae|mse|rmse|latency|(^|[_/])time|wer|cer/i.test(name);
}

export function best(metric: MetricView): number | null {
  return lowerIsBetter(metric.name) ? metric.lowest : metric.highest;
}

/** Returns one row for each field that any job has. */
export function compareRows(jobs: readonly JobDetail[], write: (value: number | null) => string): CompareRow[] {
  const sections: [CompareRow["section"], Record<string, string>[]][] = [
    ["Parameters", jobs.map((job) => job.params)],
    ["Metrics, best", jobs.map((job) => metrics(job, best, write))],
    ["Metrics, last", jobs.map((job) => metrics(job, (metric) => (typeof metric.last === "number" ? metric.last : null), write))],
    ["Specification", jobs.map((job) => flatten(job.spec))],
    ["Environment", jobs.map((job) => job.environment)],
  ];
  return sections.flatMap(([section, columns]) => {
    const names = [...new Set(columns.flatMap((column) => Object.keys(column)))].sort();
    return names.map((name) => {
      const values = columns.map((column) => column[name] ?? null);
      return { section, name, values, differs: new Set(values).size > 1 };
    });
  });
}

function metrics(job: JobDetail, pick: (metric: MetricView) => number | null, write: (value: number | null) => string): Record<string, string> {
  const shown = job.metrics.filter((metric) => !metric.name.startsWith("system/"));
  return Object.fromEntries(shown.map((metric) => [metric.name, write(pick(metric))]));
}

/** Returns the place of the best value of a metric; -1 where there is none, or all are alike. */
export function bestOf(row: CompareRow): number {
  if (row.section !== "Metrics, best" || !row.differs) return -1;
  const sign = lowerIsBetter(row.name) ? -1 : 1;
  let found = -1;
  row.values.forEach((value, index) => {
    const amount = value === null || value === "–" ? NaN : Number(value);
    if (Number.isFinite(amount) && (found < 0 || amount * sign > Number(row.values[found]) * sign)) found = index;
  });
  return found;
}

export function csv(rows: readonly CompareRow[], jobs: readonly JobDetail[]): string {
  const quote = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const head = ["section", "name", ...jobs.map((job) => `${job.id} ${job.name}`)];
  return [head, ...rows.map((row) => [row.section, row.name, ...row.values.map((value) => value ?? "")])]
    .map((cells) => cells.map(quote).join(","))
    .join("\n");
}

/** Returns the value of a curve at a step, between its points in a straight line; null outside. */
export function valueAtStep(curve: CurveView, step: number): number | null {
  const { steps, mean } = curve;
  if (steps.length === 0 || step < steps[0]! || step > steps.at(-1)!) return null;
  let low = 0;
  let high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle]! <= step) low = middle;
    else high = middle;
  }
  const [a, b] = [mean[low] ?? null, mean[high] ?? null];
  if (a === null || b === null || steps[high] === steps[low]) return a ?? b;
  return a + ((b - a) * (step - steps[low]!)) / (steps[high]! - steps[low]!);
}

/** Returns one curve for several of one metric: their mean, and the band from the lowest to the highest of them. */
export function groupCurve(curves: readonly CurveView[], points: number = 400): CurveView {
  const first = Math.min(...curves.map((curve) => curve.steps[0] ?? Infinity));
  const last = Math.max(...curves.map((curve) => curve.steps.at(-1) ?? -Infinity));
  const name = curves[0]?.name ?? "";
  const merged: CurveView = { name, steps: [], times_ms: [], mean: [], low: [], high: [], odd: [] };
  if (!Number.isFinite(first) || !Number.isFinite(last)) return merged;
  const every = Math.max(1, (last - first) / (points - 1));
  for (let step = first; step <= last + 0.5; step += every) {
    const at = Math.min(Math.round(step), last);
    const values = curves.map((curve) => valueAtStep(curve, at)).filter((value) => value !== null);
    if (values.length === 0) continue;
    merged.steps.push(at);
    merged.times_ms.push(0);
    merged.mean.push(values.reduce((sum, value) => sum + value, 0) / values.length);
    merged.low.push(Math.min(...values));
    merged.high.push(Math.max(...values));
  }
  return merged;
}

export interface Axis {
  name: string;
  numeric: boolean;
  low: number;
  high: number;
  words: string[]; // of an axis that is not numeric, in order
}

/** Returns the axis of values of one field. */
export function axisOf(name: string, values: readonly (string | null)[]): Axis {
  const known = values.filter((value) => value !== null);
  const numbers = known.map(Number);
  const numeric = known.length > 0 && numbers.every((value) => Number.isFinite(value));
  return {
    name,
    numeric,
    low: numeric ? Math.min(...numbers) : 0,
    high: numeric ? Math.max(...numbers) : 0,
    words: numeric ? [] : [...new Set(known)].sort(),
  };
}

/** Returns the place of a value on its axis, 0 at the bottom to 1 at the top. */
export function placeOn(axis: Axis, value: string | null): number | null {
  if (value === null) return null;
  if (!axis.numeric) return axis.words.length < 2 ? 0.5 : axis.words.indexOf(value) / (axis.words.length - 1);
  return axis.high === axis.low ? 0.5 : (Number(value) - axis.low) / (axis.high - axis.low);
}
