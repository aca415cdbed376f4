/** Studies made ready to show: scales, best so far, filters, brushes, spans of time, surfaces; all pure. */
import type { TrialView } from "../api/types";

export type Scalar = number | string | boolean | null;
export const TRIAL_STATES = ["running", "waiting", "paused", "completed", "stopped", "failed"] as const;
export type TrialState = (typeof TRIAL_STATES)[number];

/** Returns a metric of a trial where it is a finite number. */
export function valueOf(trial: TrialView, metric: string): number | null {
  const value = trial.values[metric];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/** Whether a trial went on after a pause: its schedule has promoted it, or somebody resumed the study. */
export const isPromoted = (trial: TrialView): boolean => (trial.starts ?? 0) > 1;

export const isOver = (trial: TrialView): boolean => ["completed", "stopped", "failed"].includes(trial.state);

/** Returns trials by number with those that changed in the place of the old ones; what is new of a curve follows what was there. */
export function mergeTrials(old: readonly TrialView[], fresh: readonly TrialView[]): TrialView[] {
  if (fresh.length === 0) return old as TrialView[];
  const found = new Map(old.map((trial) => [trial.number, trial]));
  for (const trial of fresh) {
    const known = trial.curve_from ? (found.get(trial.number)?.curve ?? []).slice(0, trial.curve_from) : [];
    found.set(trial.number, known.length > 0 ? { ...trial, curve: [...known, ...(trial.curve ?? [])] } : trial);
  }
  return [...found.values()].sort((a, b) => a.number - b.number);
}

/** Returns trials that count for the best: those that are complete, or all with a value where none is. */
export function rankable(trials: readonly TrialView[], metric: string): TrialView[] {
  const known = trials.filter((trial) => valueOf(trial, metric) !== null && trial.state !== "failed");
  const complete = known.filter((trial) => trial.state === "completed");
  return complete.length > 0 ? complete : known;
}

/** Returns the numbers of trials from the best to the worst, and 0 (worst) to 1 (best) for each that has a value. */
export function ranks(trials: readonly TrialView[], metric: string, small: boolean): Map<number, number> {
  const known = trials.filter((trial) => valueOf(trial, metric) !== null);
  known.sort((a, b) => (valueOf(a, metric)! - valueOf(b, metric)!) * (small ? -1 : 1));
  const last = Math.max(1, known.length - 1);
  return new Map(known.map((trial, index) => [trial.number, known.length === 1 ? 1 : index / last]));
}

export interface Better {
  trial: number;
  time_ms: number;
  value: number;
}

/** Returns each trial that beat all that count before it, in the order of their ends or of their numbers. */
export function bestSoFar(trials: readonly TrialView[], metric: string, small: boolean, byTime: boolean): Better[] {
  const end = (trial: TrialView): number => (byTime ? (trial.ended_ms ?? Infinity) : 0);
  const done = rankable(trials, metric).sort((a, b) => (end(a) < end(b) ? -1 : end(a) > end(b) ? 1 : a.number - b.number));
  const found: Better[] = [];
  for (const trial of done) {
    const value = valueOf(trial, metric)!;
    const last = found.at(-1);
    if (!last || (small ? value < last.value : value > last.value)) found.push({ trial: trial.number, time_ms: trial.ended_ms ?? 0, value });
  }
  return found;
}

// -- domains and scales ---------------------------------------------------------------------------------------------

export interface Domain {
  kind: "number" | "choice";
  log: boolean;
  low: number | null;
  high: number | null;
  choices: string[];
  text: string; // as a study file writes it
}

function written(value: unknown): string {
  return Array.isArray(value) ? `[${value.map(written).join(" ")}]` : String(value);
}

/** Returns a domain of a space from what a study's settings hold: text, a list, a mapping or one value. */
export function domainOf(raw: unknown): Domain {
  const choice = (values: unknown[], text: string): Domain => ({ kind: "choice", log: false, low: null, high: null, choices: values.map(String), text });
  if (Array.isArray(raw)) return choice(raw, raw.map(written).join(","));
  if (raw && typeof raw === "object") {
    const { choices, ordered, if: when } = raw as { choices?: unknown[]; ordered?: unknown[]; if?: string };
    const values = choices ?? ordered ?? [];
    return choice(values, `${ordered ? "ordered:" : ""}${values.map(written).join(",")}${when ? ` if ${when}` : ""}`);
  }
  const text = String(raw);
  const found = /^(float|log|int):([^:\s]+):([^:\s]+)(?::(\S+))?(?: if .*)?$/.exec(text);
  if (found) {
    const [low, high] = [Number(found[2]), Number(found[3])];
    if (Number.isFinite(low) && Number.isFinite(high)) return { kind: "number", log: found[1] === "log" || found[4] === "log", low, high, choices: [], text };
  }
  const words = text.replace(/ if .*$/, "").replace(/^ordered:/, "").split(",").map((word) => word.trim());
  return choice(words.map((word) => (word !== "" && Number.isFinite(Number(word)) ? Number(word) : word)), text);
}

export interface Scale {
  name: string;
  log: boolean;
  low: number;
  high: number;
  words: string[] | null; // of a scale of choices, in order
}

/** Returns the scale of values that are there; a domain gives its ends and whether it is logarithmic. */
export function scaleOf(name: string, values: readonly (Scalar | undefined)[], domain: Domain | null = null, log: boolean = domain?.log ?? false): Scale {
  const known = values.filter((value): value is number | string | boolean => value !== null && value !== undefined);
  const numbers = known.filter((value): value is number => typeof value === "number" && Number.isFinite(value));
  const numeric = domain ? domain.kind === "number" && numbers.length === known.length : known.length > 0 && numbers.length === known.length;
  if (!numeric) {
    const words = [...new Set([...(domain?.choices ?? []), ...known.map(String)])];
    return { name, log: false, low: 0, high: Math.max(1, words.length - 1), words };
  }
  const usable = log ? numbers.filter((value) => value > 0) : numbers;
  const ends = [...usable, ...[domain?.low, domain?.high].filter((value): value is number => typeof value === "number" && (!log || value > 0))];
  let low = ends.reduce((least, value) => Math.min(least, value), Infinity);
  let high = ends.reduce((most, value) => Math.max(most, value), -Infinity);
  if (!Number.isFinite(low)) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  return { name, log, low, high, words: null };
}

/** Returns the place of a value on a scale, 0 at its low end to 1; null where it has none. */
export function placeOn(scale: Scale, value: Scalar | undefined): number | null {
  if (value === null || value === undefined) return null;
  if (scale.words) {
    const index = scale.words.indexOf(String(value));
    return index < 0 ? null : scale.words.length === 1 ? 0.5 : index / (scale.words.length - 1);
  }
  const amount = typeof value === "number" ? value : Number(value);
  if (!Number.isFinite(amount) || (scale.log && amount <= 0)) return null;
  return scale.log ? Math.log(amount / scale.low) / Math.log(scale.high / scale.low) : (amount - scale.low) / (scale.high - scale.low);
}

/** Returns the number at a place of a scale. */
export function numberAt(scale: Scale, place: number): number {
  return scale.log ? scale.low * (scale.high / scale.low) ** place : scale.low + place * (scale.high - scale.low);
}

/** Returns round numbers along a scale, about as many as asked for. */
export function ticksOf(scale: Scale, wanted: number = 5): number[] {
  if (scale.words) return scale.words.map((_, index) => index);
  if (scale.log) {
    const [first, last] = [Math.ceil(Math.log10(scale.low) - 1e-9), Math.floor(Math.log10(scale.high) + 1e-9)];
    if (last - first >= 1) {
      const every = Math.max(1, Math.ceil((last - first + 1) / wanted));
      return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, index) => 10 ** (first + index * every));
    }
    return [0, 0.5, 1].map((place) => Number(numberAt(scale, place).toPrecision(2)));
  }
  const rough = (scale.high - scale.low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough - power * 1e-9) ?? power * 10;
  const found: number[] = [];
  for (let value = Math.ceil(scale.low / step - 1e-9) * step; value <= scale.high + step * 1e-9; value += step) found.push(Number(value.toPrecision(10)));
  return found;
}

const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];

/** Returns round times along an axis in milliseconds, counted from a moment. */
export function timeTicks(low: number, high: number, since: number, wanted: number): number[] {
  const step = 1000 * (STEPS_S.find((size) => (high - low) / 1000 / size <= wanted) ?? (high - low) / 1000 / wanted);
  const found: number[] = [];
  for (let at = since + Math.ceil((low - since) / step) * step; at <= high; at += step) found.push(at);
  return found;
}

// -- filters and brushes --------------------------------------------------------------------------------------------

export type Brush = { low: number; high: number } | { words: string[] };
export type Brushes = Record<string, Brush>;

/** Returns the brushes that the address holds: "lr=0.001..0.01;optimizer=adam|sgd". */
export function parseBrushes(text: string): Brushes {
  const found: Brushes = {};
  for (const part of text.split(";")) {
    const cut = part.lastIndexOf("=");
    if (cut <= 0) continue;
    const [name, rest] = [part.slice(0, cut), part.slice(cut + 1)];
    const range = /^(-?[\d.]+(?:e[+-]?\d+)?)\.\.(-?[\d.]+(?:e[+-]?\d+)?)$/i.exec(rest);
    if (range) found[name] = { low: Number(range[1]), high: Number(range[2]) };
    else if (rest) found[name] = { words: rest.split("|") };
  }
  return found;
}

export function writeBrushes(brushes: Brushes): string {
  return Object.entries(brushes)
    .map(([name, brush]) => `${name}=${"words" in brush ? brush.words.join("|") : `${Number(brush.low.toPrecision(4))}..${Number(brush.high.toPrecision(4))}`}`)
    .join(";");
}

/** Returns the value of a trial under a name: a parameter, or a metric. */
export function fieldOf(trial: TrialView, name: string): Scalar | undefined {
  return name in trial.params ? trial.params[name] : trial.values[name];
}

export function inBrushes(trial: TrialView, brushes: Brushes): boolean {
  return Object.entries(brushes).every(([name, brush]) => {
    const value = fieldOf(trial, name);
    if (value === null || value === undefined) return false;
    if ("words" in brush) return brush.words.includes(String(value));
    return typeof value === "number" && value >= brush.low && value <= brush.high;
  });
}

const TERM = /^([\w./-]+)(<=|>=|!=|=|<|>)(.+)$/;

/** Returns whether a trial has all that a filter asks for: "lr<0.01 optimizer=adam", or words in its text. */
export function matchesFilter(trial: TrialView, filter: string): boolean {
  return filter.trim().split(/\s+/).filter(Boolean).every((term) => {
    const found = TERM.exec(term);
    if (!found) return `${trial.number} ${trial.state} ${trial.message ?? ""} ${Object.values(trial.params).join(" ")}`.toLowerCase().includes(term.toLowerCase());
    const [, name, how, text] = found as unknown as [string, string, string, string];
    const value = name === "trial" ? trial.number : name === "state" ? trial.state : name === "step" ? trial.step : fieldOf(trial, name);
    if (value === null || value === undefined) return how === "!=";
    if (how === "=") return typeof value === "number" ? value === Number(text) : String(value) === text;
    if (how === "!=") return typeof value === "number" ? value !== Number(text) : String(value) !== text;
    const [left, right] = [Number(value), Number(text)];
    return how === "<" ? left < right : how === ">" ? left > right : how === "<=" ? left <= right : left >= right;
  });
}

/** Returns trials in the order of a column: "-loss" is from the largest; those without a value come last. */
export function sortTrials(trials: readonly TrialView[], sort: string): TrialView[] {
  const down = sort.startsWith("-");
  const name = sort.replace(/^-/, "");
  const key = (trial: TrialView): Scalar | undefined =>
    name === "trial" ? trial.number : name === "state" ? trial.state : name === "step" ? trial.step : name === "time" ? (trial.run_s ?? 0) : fieldOf(trial, name);
  const keyed = trials.map((trial) => [key(trial), trial] as const);
  const known = keyed.filter(([value]) => value !== null && value !== undefined && !(typeof value === "number" && Number.isNaN(value)));
  const unknown = keyed.filter(([value]) => value === null || value === undefined || (typeof value === "number" && Number.isNaN(value)));
  known.sort(([a, one], [b, other]) => {
    const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return (down ? -order : order) || one.number - other.number;
  });
  return [...known, ...unknown].map(([, trial]) => trial);
}

// -- time -----------------------------------------------------------------------------------------------------------

export interface Span {
  trial: number;
  start_ms: number;
  end_ms: number | null; // it still runs
  end: "paused" | "completed" | "stopped" | "failed" | "lost" | "running";
  part: number; // 0 for the first, 1 after a promotion, and so on
}

/** Adds what events tell to spans in which trials ran; a span is open until its trial pauses, ends or is lost. */
export function addSpans(spans: readonly Span[], events: readonly Record<string, unknown>[]): Span[] {
  const found = [...spans];
  const open = new Map<number, number>();
  const parts = new Map<number, number>();
  found.forEach((span, index) => {
    parts.set(span.trial, span.part + 1);
    if (span.end_ms === null) open.set(span.trial, index);
  });
  for (const event of events) {
    const trial = event["trial"];
    if (typeof trial !== "number") continue;
    const at = Number(event["at_s"] ?? 0) * 1000;
    const is = event["is"];
    if (is === "started") {
      open.set(trial, found.length);
      found.push({ trial, start_ms: at, end_ms: null, end: "running", part: parts.get(trial) ?? 0 });
      parts.set(trial, (parts.get(trial) ?? 0) + 1);
    } else if (is === "paused" || is === "lost" || is === "ended") {
      const index = open.get(trial);
      if (index === undefined) continue;
      open.delete(trial);
      found[index] = { ...found[index]!, end_ms: at, end: is === "ended" ? (event["state"] as Span["end"]) : is };
    }
  }
  return found;
}

/** Returns a lane for each span, so that spans of a lane do not overlap and lanes are few. */
export function packLanes(spans: readonly Span[], now_ms: number): number[] {
  const order = spans.map((_, index) => index).sort((a, b) => spans[a]!.start_ms - spans[b]!.start_ms);
  const free: number[] = []; // when each lane is free
  const lanes = new Array<number>(spans.length).fill(0);
  for (const index of order) {
    const span = spans[index]!;
    let lane = free.findIndex((until) => until <= span.start_ms);
    if (lane < 0) lane = free.push(0) - 1;
    free[lane] = span.end_ms ?? now_ms;
    lanes[index] = lane;
  }
  return lanes;
}

// -- surfaces -------------------------------------------------------------------------------------------------------

/** Returns a surface over points of the unit square, row by row: means weighted by nearness; NaN far from any point. */
export function surfaceOf(points: readonly { x: number; y: number; value: number }[], columns: number, rows: number, width: number = 0.09): number[] {
  const found = new Array<number>(columns * rows).fill(NaN);
  if (points.length < 3) return found;
  const scale = -1 / (2 * width * width);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const [x, y] = [(column + 0.5) / columns, (row + 0.5) / rows];
      let sum = 0;
      let weights = 0;
      let near = false;
      for (const point of points) {
        const distance = (point.x - x) ** 2 + (point.y - y) ** 2;
        if (distance > 9 * width * width) continue; // it weighs nothing there
        if (distance < 2.56 * width * width) near = true;
        const weight = Math.exp(distance * scale);
        sum += weight * point.value;
        weights += weight;
      }
      if (near && weights > 1e-12) found[row * columns + column] = sum / weights;
    }
  }
  return found;
}

/** Returns a surface with so many times the columns and rows, in straight lines between its cells; blank stays blank. */
export function finer(surface: readonly number[], columns: number, rows: number, times: number): number[] {
  const [wide, high] = [columns * times, rows * times];
  const found = new Array<number>(wide * high).fill(NaN);
  const at = (column: number, row: number): number => surface[Math.min(rows - 1, Math.max(0, row)) * columns + Math.min(columns - 1, Math.max(0, column))]!;
  for (let row = 0; row < high; row += 1) {
    for (let column = 0; column < wide; column += 1) {
      const own = at(Math.floor(column / times), Math.floor(row / times));
      if (Number.isNaN(own)) continue;
      const [x, y] = [(column + 0.5) / times - 0.5, (row + 0.5) / times - 0.5];
      const [left, low] = [Math.floor(x), Math.floor(y)];
      const cell = (dx: number, dy: number): number => {
        const value = at(left + dx, low + dy);
        return Number.isNaN(value) ? own : value;
      };
      const [a, b] = [x - left, y - low];
      found[row * wide + column] = (cell(0, 0) * (1 - a) + cell(1, 0) * a) * (1 - b) + (cell(0, 1) * (1 - a) + cell(1, 1) * a) * b;
    }
  }
  return found;
}

/** Returns points of a curve thinned to about so many, with the first and the last; for crowded charts. */
export function thin<T>(points: readonly T[], most: number): readonly T[] {
  if (points.length <= most || most < 2) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, index) => points[Math.round(index * step)]!);
}
