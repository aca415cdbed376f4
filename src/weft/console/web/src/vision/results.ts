/** Results of a trained model, as its folder's results.json has them; what is not there is left out of a page. */

export interface ClassResult {
  readonly label: string;
  readonly precision?: number;
  readonly recall?: number;
  readonly f1?: number;
  readonly map50?: number | null;
  readonly map50_95?: number | null;
  readonly pictures?: number;
  readonly objects?: number;
}
export interface PrecisionCurve {
  readonly label: string;
  readonly average_precision: number | null;
  readonly recall: readonly number[];
  readonly precision: readonly number[];
  readonly confidence: readonly number[];
}
export interface SweepPoint {
  readonly threshold: number;
  readonly precision?: number;
  readonly recall?: number;
  readonly f1?: number;
  readonly answered?: number;
  readonly accuracy?: number;
}
export interface Mistake {
  readonly picture: string;
  readonly truth?: string;
  readonly guess?: string;
  readonly confidence?: number;
  readonly missed?: number;
  readonly invented?: number;
  readonly confused?: number;
}
export interface Results {
  readonly metrics: Readonly<Record<string, number>>;
  readonly classes: readonly ClassResult[];
  readonly confusion: { readonly labels: readonly string[]; readonly counts: readonly (readonly number[])[] } | null;
  readonly curves: readonly PrecisionCurve[];
  readonly sweep: readonly SweepPoint[];
  readonly worst: readonly Mistake[];
  readonly threshold: number;
}

/** What a model finds in one picture that it did not learn from. */
export interface Example {
  readonly picture: string;
  readonly name: string;
  readonly category?: string;
  readonly confidence?: number;
  readonly detections?: readonly { readonly label: string; readonly confidence: number; readonly box: readonly [number, number, number, number] }[];
}

/** Returns the examples of an examples.json; what is none is left out. */
export function readExamples(found: unknown): readonly Example[] {
  const rows = list<Example>((found as { pictures?: unknown } | null)?.pictures);
  return rows.filter((one) => typeof one?.picture === "string" && typeof one.name === "string");
}

/** Returns how long a training still takes, in milliseconds: by its progress, and no longer than it was allowed to. */
export function timeLeft(took_ms: number, progress: number | null, config: Record<string, unknown>): number | null {
  if (!progress || progress <= 0.02) return null;
  const byProgress = (took_ms * (1 - progress)) / progress;
  const most = (config["schedule"] as { max_minutes?: number | null } | undefined)?.max_minutes;
  return most ? Math.min(byProgress, Math.max(0, most * 60_000 - took_ms)) : byProgress;
}

const SCORES: Record<string, string> = { map50: "mAP@.5", map50_95: "mAP@.5:.95", accuracy: "Accuracy", top5: "Top 5", loss: "Loss", auroc: "AUROC" };

/** Returns how people write the name of a figure: "map50_95" is mAP@.5:.95. */
export function scoreWord(name: string): string {
  return SCORES[name] ?? name.replaceAll("_", " ");
}

/** Returns a figure between 0 and 1 with three decimals, and others as they are. */
export function scoreText(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return value >= 0 && value <= 1 ? value.toFixed(3) : String(Number(value.toPrecision(4)));
}

const list = <T>(value: unknown): readonly T[] => (Array.isArray(value) ? (value as T[]) : []);

/** Returns what a page shows of a results.json. */
export function readResults(found: Record<string, unknown>): Results | null {
  const inner = (found["results"] ?? {}) as Record<string, unknown>;
  if (!found["results"] && !found["metrics"]) return null;
  const metrics = Object.fromEntries(Object.entries((found["metrics"] ?? {}) as Record<string, unknown>).filter(([, value]) => typeof value === "number")) as Record<string, number>;
  const confusion = inner["confusion"] as Results["confusion"] | undefined;
  return {
    metrics, classes: list<ClassResult>(inner["classes"]).filter((one) => typeof one === "object"), confusion: confusion?.counts ? confusion : null,
    curves: list(inner["curves"]), sweep: list(inner["sweep"]), worst: list(inner["worst"]),
    threshold: typeof inner["threshold"] === "number" ? inner["threshold"] : 0.5,
  };
}

/** Returns the point of a sweep that is nearest to a threshold. */
export function atThreshold(sweep: readonly SweepPoint[], threshold: number): SweepPoint | null {
  return sweep.reduce<SweepPoint | null>((best, one) => (best === null || Math.abs(one.threshold - threshold) < Math.abs(best.threshold - threshold) ? one : best), null);
}

/** Returns a curve of precision over recall as an SVG path in a square of side 100. */
export function curvePath(curve: PrecisionCurve): string {
  return curve.recall.map((recall, index) => `${index ? "L" : "M"}${(recall * 100).toFixed(2)} ${(100 - (curve.precision[index] ?? 0) * 100).toFixed(2)}`).join("");
}

/** Returns the part of each row of a confusion matrix that a cell is, for its colour. */
export function shareOfRow(counts: readonly (readonly number[])[], row: number, column: number): number {
  const sum = (counts[row] ?? []).reduce((all, one) => all + one, 0);
  return sum ? (counts[row]?.[column] ?? 0) / sum : 0;
}

/** Returns the settings of a training from the choices of the dialog: only what was chosen. */
export function trainingConfig(form: { pace: string; epochs: string; lr: string; batch: string; size: string; minutes: string; early: boolean }): Record<string, unknown> {
  const number = (text: string): number | undefined => (text.trim() === "" ? undefined : Number(text));
  const schedule = { epochs: form.pace === "first" ? 0 : number(form.epochs), max_minutes: number(form.minutes), early_stop: form.early ? 5 : undefined };
  const whole = { schedule, optimizer: { lr: number(form.lr) }, batch: number(form.batch), size: number(form.size) };
  return pruned(whole) as Record<string, unknown>;
}

function pruned(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [key, pruned(inner)] as const).filter(([, inner]) => inner !== undefined && !(typeof inner === "object" && inner !== null && Object.keys(inner).length === 0));
  return Object.fromEntries(entries);
}
