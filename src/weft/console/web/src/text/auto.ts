/** Models of tables: what a form asks for, and how scores, curves and shares are drawn. Pure. */
import type { AutoDependence, AutoRunDetail, NewAutoRun, TableColumnView, TableLook } from "../api/types";
import { number, percent } from "./format";

export const METRICS: readonly (readonly [NonNullable<NewAutoRun["metric"]>, string])[] = [
  ["log_loss", "log-loss (classes)"], ["auc", "AUC (classes)"], ["accuracy", "accuracy (classes)"], ["rmse", "RMSE (numbers)"], ["mae", "mean absolute error (numbers)"],
];
const METRIC_WORDS: Record<string, string> = { log_loss: "log-loss", auc: "AUC", accuracy: "accuracy", rmse: "RMSE", mae: "mean absolute error" };
export const metricWord = (metric: string): string => METRIC_WORDS[metric] ?? metric;

export interface BeginForm {
  target: string;
  minutes: string;
  metric: string;
  task: "auto" | "classes" | "numbers";
  split: "random" | "time" | "group";
  splitBy: string;
  drop: readonly string[];
  fairness: readonly string[];
  name: string;
  trials: string;
  cpus: string;
  memory: string;
}

export const FRESH: BeginForm = {
  target: "", minutes: "10", metric: "", task: "auto", split: "random", splitBy: "", drop: [], fairness: [], name: "", trials: "", cpus: "2", memory: "",
};

/** Returns what a form still lacks, as a sentence; nothing if it can be sent. */
export function lacking(look: TableLook | null, form: BeginForm): string | null {
  if (!look) return "Choose a table first.";
  if (!form.target) return "Choose the column to predict.";
  if (!(Number(form.minutes) > 0)) return "The minutes must be a number above 0.";
  if (form.split !== "random" && !form.splitBy) return form.split === "time" ? "Choose the column that orders the rows." : "Choose the column whose groups stay together.";
  if (form.split !== "random" && form.splitBy === form.target) return "The rows cannot be split by the column to predict.";
  return null;
}

/** Returns the request of a form; columns that serve another purpose are not left out as well. */
export function bodyOf(look: TableLook, form: BeginForm): NewAutoRun {
  const by = form.split === "random" ? null : form.splitBy;
  return {
    target: form.target, file: look.file, ...(look.upload ? { upload: look.upload } : { dataset: look.dataset }),
    name: form.name.trim() || null, minutes: Number(form.minutes), task: form.task, metric: (form.metric || null) as NewAutoRun["metric"] & string | null,
    time: form.split === "time" ? by : null, group: form.split === "group" ? by : null,
    drop: form.drop.filter((name) => name !== form.target && name !== by), fairness: form.fairness.filter((name) => name !== form.target),
    trials: form.trials ? Number(form.trials) : null, cpus: Number(form.cpus) || 1, memory: form.memory.trim() || null,
  };
}

/** Returns the column that is most likely the target: one that is named so, or else the last. */
export function likelyTarget(columns: readonly TableColumnView[]): string {
  const named = columns.find(({ name }) => /^(y|target|label|class|outcome)$/i.test(name));
  return (named ?? columns.at(-1))?.name ?? "";
}

/** Returns the columns that rows may be ordered by, dates first. */
export function ordering(columns: readonly TableColumnView[]): readonly TableColumnView[] {
  return [...columns.filter(({ kind }) => kind === "date"), ...columns.filter(({ kind }) => kind === "number")];
}

/** Returns the share of a value among those of its column, for bars. */
export function shareOf(value: number | null, values: readonly (number | null)[]): number {
  const most = Math.max(...values.map((one) => Math.abs(one ?? 0)), 0);
  return most > 0 ? Math.abs(value ?? 0) / most : 0;
}

/** Returns a value of a column as a person reads it: dates are seconds since 1970. */
export function valueText(value: number | string | null, kind: string): string {
  if (value === null) return "–";
  if (kind === "date" && typeof value === "number") return new Date(value * 1000).toISOString().slice(0, 10);
  if (typeof value === "number") return number(value);
  return value === "" ? "(missing)" : value;
}

export interface DrawnCurve {
  readonly path: string; // of a line in a box of 100 by 100
  readonly points: readonly { readonly x: number; readonly y: number; readonly text: string; readonly mean: number }[];
}

/** Returns the range of all means, so that curves of several columns can be compared. */
export function spanOf(curves: readonly AutoDependence[]): readonly [number, number] {
  const means = curves.flatMap((one) => one.means).filter((one) => one !== null);
  const [low, high] = [Math.min(...means), Math.max(...means)];
  return means.length === 0 ? [0, 1] : low < high ? [low, high] : [low - 0.5, high + 0.5];
}

/** Returns a curve in a box of 100 by 100: numbers and dates by their value, categories side by side. */
export function drawn(curve: AutoDependence, kind: string, [low, high]: readonly [number, number]): DrawnCurve {
  const known = curve.values.flatMap((value, index) => (typeof curve.means[index] === "number" ? [{ value, mean: curve.means[index] }] : []));
  const sizes = known.map((one) => one.value).filter((value) => typeof value === "number");
  const first = Math.min(...sizes);
  const width = Math.max(...sizes) - first;
  const points = known.map(({ value, mean }, index) => ({
    x: kind !== "text" && typeof value === "number" && width > 0 ? (100 * (value - first)) / width : (100 * (index + 0.5)) / known.length,
    y: 100 - (100 * (mean - low)) / (high - low), text: valueText(value, kind), mean,
  }));
  return { points, path: points.map(({ x, y }, index) => `${index ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("") };
}

/** Returns how far a run is, from 0 to 1. */
export function doneShare(run: Pick<AutoRunDetail, "spent_s" | "budget_s">): number {
  return run.spent_s !== null && run.budget_s ? Math.min(1, run.spent_s / run.budget_s) : 0;
}

/** Returns parameters of a model in a line. */
export function paramsText(params: Record<string, unknown>): string {
  return Object.entries(params).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : String(value)}`).join(", ");
}

export const missingText = (share: number | null): string => (share ? percent(share) : "–");
