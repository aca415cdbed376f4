/** All curves of a study on one canvas: smoothed, on log axes, zoomed by dragging; states differ in line and shape. */
import { useCallback, useMemo } from "react";
import type { TrialView } from "../../../api/types";
import { Button, Segments } from "../../../parts/controls";
import { Card, layout } from "../../../parts/layout";
import { useParam, useSetParams } from "../../../text/address";
import { smooth } from "../../../text/curves";
import { count, plural } from "../../../text/format";
import { isPromoted, scaleOf, thin } from "../../../text/studies";
import { Plot, shape, useTones, type Frame, type Mark, type Tones } from "../plot";
import { core } from "./progress";
import css from "../studies.module.css";
import { bestOf, FilterChips, Insights, tipOf, useByNumber, useFilters, type StudyProps } from "../view";

const CROWD = 300; // trials, above which curves are thinned

export interface DrawnCurve {
  trial: TrialView;
  steps: number[];
  values: (number | null)[];
}

/** Returns curves ready to draw: finite values alone, smoothed, and thinned where they are many. */
export function drawnCurves(trials: readonly TrialView[], weight: number): DrawnCurve[] {
  const most = trials.length > CROWD ? 60 : 200;
  return trials.flatMap((trial) => {
    const curve = trial.curve ?? [];
    if (curve.length === 0) return [];
    const raw = curve.map(([, value]) => (typeof value === "number" && Number.isFinite(value) ? value : null));
    const smoothed = smooth(raw, weight);
    const points = thin(curve.map(([step], index) => [step, smoothed[index] ?? null] as const), most);
    return [{ trial, steps: points.map(([step]) => step), values: points.map(([, value]) => value) }];
  });
}

export default function CurvesTab({ trials, detail, metric, small, chosen, choose }: StudyProps) {
  const tones = useTones();
  const filters = useFilters(trials);
  const [weight, setWeight] = useParam("smooth", "0");
  const [logX, setLogX] = useParam("lx");
  const [logY, setLogY] = useParam("y", "linear");
  const [zoomText] = useParam("zoom");
  const setParams = useSetParams();
  const name = Object.keys(detail.study.metrics)[0] ?? metric; // curves are of the first metric
  const smoothing = Math.min(0.99, Number(weight) || 0);
  const curves = useMemo(() => drawnCurves(filters.shown, smoothing), [filters.shown, smoothing]);
  const zoom = useMemo(() => {
    const [low, high] = zoomText.split("-").map(Number);
    return low !== undefined && high !== undefined && high > low ? [low, high] as const : null;
  }, [zoomText]);
  const x = useMemo(() => {
    const whole = scaleOf("step", curves.flatMap((curve) => [curve.steps[0]!, curve.steps.at(-1)!]), null, logX === "log");
    return zoom ? { ...whole, low: zoom[0], high: zoom[1] } : whole;
  }, [curves, logX, zoom]);
  const y = useMemo(() => {
    const values = curves.flatMap((curve) => curve.values.filter((value, index): value is number => value !== null && (!zoom || (curve.steps[index]! >= zoom[0] && curve.steps[index]! <= zoom[1]))));
    return scaleOf(name, core(values, small), null, logY === "log");
  }, [curves, name, logY, zoom, small]);
  const best = bestOf(trials, name, small)?.number ?? null;
  const found = useByNumber(trials);
  const byNumber = useMemo(() => new Map(curves.map((curve) => [curve.trial.number, curve])), [curves]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const marks: Mark[] = [];
      // Those that wait or are over first, so that what runs and what was promoted lies on top.
      const order = [...curves].sort((a, b) => weightOf(a.trial, best) - weightOf(b.trial, best));
      for (const curve of order) drawCurve(context, frame, curve, tones, curves.length, curve.trial.number === best, marks);
      return marks;
    },
    [curves, tones, best],
  );
  const over = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame, trial: number): void => {
      const curve = byNumber.get(trial);
      if (!curve) return;
      context.save();
      context.strokeStyle = tones.surface;
      context.lineWidth = 6;
      path(context, frame, curve);
      context.stroke();
      context.strokeStyle = tones.ink;
      context.lineWidth = 2.4;
      path(context, frame, curve);
      context.stroke();
      context.restore();
    },
    [byNumber, tones],
  );
  return (
    <div className={css.stack}>
      <div className={css.tools} role="toolbar" aria-label="Curves">
        <Segments label="Horizontal axis" value={logX || "linear"} options={[["linear", "Steps"], ["log", "Log steps"]] as const} onChange={(value) => setLogX(value === "linear" ? "" : value)} />
        <Segments label="Vertical axis" value={logY} options={[["linear", "Linear"], ["log", "Log"]] as const} onChange={setLogY} />
        <label>
          Smoothing
          <input type="range" min={0} max={0.98} step={0.02} value={weight} onChange={(event) => setWeight(event.target.value)} />
          <output>{smoothing.toFixed(2)}</output>
        </label>
        {zoom && <Button small icon="close" onClick={() => setParams({ zoom: "" })}>Steps {count(zoom[0])} to {count(zoom[1])}</Button>}
      </div>
      <FilterChips trials={trials} filters={filters} />
      <Card label="Curves">
        <Plot
          title={<>{name} <span className={layout.note}>{plural(curves.length, "curve")}</span></>}
          label={`${name} of ${plural(curves.length, "trial")} over steps; the table of trials has their last values`}
          x={x} y={y} xName={`${(detail.config["resource"] as { name?: string } | null)?.name ?? "steps"}`} height={420}
          draw={draw} over={over} chosen={chosen} onPick={choose} tip={tipOf(found, name)}
          onZoom={(low, high) => setParams({ zoom: Number.isFinite(low) ? `${Math.max(0, Math.floor(low))}-${Math.ceil(high)}` : "" })}
          extra={<Legend />}
        />
        {curves.length === 0 && <p className={layout.note}>None of the trials shown has reported a value.</p>}
      </Card>
      <Insights insights={detail.insights.filter((one) => ["divergence", "overfitting", "plateau", "ignored-flag", "started-over"].includes(one.rule))} choose={choose} />
    </div>
  );
}

function weightOf(trial: TrialView, best: number | null): number {
  return (trial.number === best ? 8 : 0) + (isPromoted(trial) ? 2 : 0) + (trial.state === "running" ? 4 : trial.state === "completed" ? 1 : 0);
}

function path(context: CanvasRenderingContext2D, frame: Frame, curve: DrawnCurve, marks?: Mark[]): { x: number; y: number } | null {
  context.beginPath();
  let down = false;
  let last: { x: number; y: number } | null = null;
  for (let index = 0; index < curve.steps.length; index += 1) {
    const [x, y] = [frame.x(curve.steps[index]!), frame.y(curve.values[index])];
    if (x === null || y === null) {
      down = false;
      continue;
    }
    if (down) context.lineTo(x, y);
    else context.moveTo(x, y);
    down = true;
    last = { x, y };
    marks?.push({ trial: curve.trial.number, x, y });
  }
  return last;
}

function drawCurve(context: CanvasRenderingContext2D, frame: Frame, curve: DrawnCurve, tones: Tones, crowd: number, best: boolean, marks: Mark[]): void {
  const { trial } = curve;
  const promoted = isPromoted(trial);
  const tone = best ? tones.best : (tones[trial.state as "running"] ?? tones.ink);
  const loud = best || promoted || trial.state === "running";
  context.globalAlpha = best || trial.state === "running" ? 1 : crowd <= CROWD ? (promoted ? 0.95 : 0.6) : promoted ? 0.5 : 0.25;
  context.strokeStyle = context.fillStyle = tone;
  context.lineWidth = best ? 2.6 : promoted ? (crowd > CROWD ? 1.3 : 1.8) : 1;
  // Dashes cost much on a canvas: in a crowd the marks at the ends tell the states apart.
  context.setLineDash(crowd > CROWD ? [] : trial.state === "paused" ? [5, 3] : trial.state === "stopped" ? [1.5, 3] : []);
  const last = path(context, frame, curve, marks);
  context.stroke();
  context.setLineDash([]);
  if (last) shape(context, trial.state, last.x, last.y, loud ? 7 : 5, promoted);
  context.globalAlpha = 1;
}

function Legend() {
  return (
    <ul className={css.legend} aria-label="How trials are drawn">
      <li><i data-kind="best" />best</li>
      <li><i data-kind="running" />running ●</li>
      <li><i data-kind="promoted" />promoted ▲</li>
      <li><i data-kind="paused" />paused ❚❚</li>
      <li><i data-kind="stopped" />stopped ×</li>
    </ul>
  );
}
