/** Progress of a study: the best so far over time, its front where it has several metrics, and what the rules found. */
import { useCallback, useMemo } from "react";
import { useMayAct } from "../../../api/queries";
import { Card, layout } from "../../../parts/layout";
import { Segments } from "../../../parts/controls";
import { useParam, useSetParams } from "../../../text/address";
import { number } from "../../../text/format";
import { bestSoFar, isPromoted, scaleOf, valueOf } from "../../../text/studies";
import { useAskStudy } from "../live";
import { Plot, shape, useTones, type Frame, type Mark } from "../plot";
import css from "../studies.module.css";
import { bestOf, FilterChips, Insights, tipOf, useByNumber, useFilters, type StudyProps } from "../view";

/** What a rule does where the study lets it act. */
const ACTS: Record<string, string> = {
  edge: "widen the range",
  divergence: "keep below what diverged",
  "no-matter": "fix the parameter",
  overfitting: "stop such trials",
  plateau: "end the study",
};

export default function ProgressTab(props: StudyProps) {
  const { detail, choose, id } = props;
  const mayAct = useMayAct() && detail.mine;
  const ask = useAskStudy();
  const setParams = useSetParams();
  const acts = (detail.config["act"] ?? {}) as Record<string, boolean>;
  return (
    <div className={css.stack}>
      <div className={css.wideAndSide}>
        <Card label="Best so far"><History {...props} /></Card>
        <Card title="Best parameters"><BestParams {...props} /></Card>
      </div>
      {Object.keys(detail.study.metrics).length > 1 && <Card label="Front"><Front {...props} /></Card>}
      <Card title="Insights" extra={<span className={layout.note}>rules with the numbers behind them; advice, unless you let one act</span>}>
        {detail.insights.length === 0 && <p className={layout.note}>The rules find nothing: no divergence, no plateau, no range whose edge is best.</p>}
        <Insights
          insights={detail.insights}
          choose={choose}
          onClone={mayAct ? () => setParams({ open: "clone" }) : undefined}
          onAct={(insight) =>
            insight.rule in ACTS && mayAct ? (
              <label className={css.act}>
                <input type="checkbox" checked={acts[insight.rule] ?? false} onChange={(event) => void ask("PATCH", `/studies/${id}`, { act: { ...acts, [insight.rule]: event.target.checked } }, event.target.checked ? `the study may ${ACTS[insight.rule]}` : "it is advice alone")} />
                {ACTS[insight.rule]} by itself
              </label>
            ) : null
          }
        />
      </Card>
    </div>
  );
}

function History({ trials: all, metric, small, chosen, choose }: StudyProps) {
  const tones = useTones();
  const filters = useFilters(all);
  const trials = filters.shown;
  const [log, setLog] = useParam("y", "linear");
  const [along, setAlong] = useParam("x", "trial");
  const known = useMemo(() => trials.filter((trial) => valueOf(trial, metric) !== null), [trials, metric]);
  const byTime = along === "time";
  const better = useMemo(() => bestSoFar(trials, metric, small, byTime), [trials, metric, small, byTime]);
  const xOf = useCallback((trial: { number: number; ended_ms?: number | null; begun_ms?: number | null }) => (byTime ? (trial.ended_ms ?? trial.begun_ms ?? null) : trial.number), [byTime]);
  const x = useMemo(() => scaleOf("trial", known.map(xOf)), [known, xOf]);
  const y = useMemo(() => scaleOf(metric, core(known.map((trial) => valueOf(trial, metric)!), small), null, log === "log"), [known, metric, log, small]);
  const found = useByNumber(trials);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const marks: Mark[] = [];
      for (const trial of known) {
        const [px, py] = [frame.x(xOf(trial)), frame.y(valueOf(trial, metric))];
        if (px === null || py === null) continue;
        context.globalAlpha = trial.state === "completed" ? 0.85 : 0.5;
        context.fillStyle = context.strokeStyle = tones[trial.state as "running"] ?? tones.ink;
        shape(context, trial.state, px, py, 6, isPromoted(trial));
        marks.push({ trial: trial.number, x: px, y: py });
      }
      context.globalAlpha = 1;
      context.strokeStyle = tones.best;
      context.lineWidth = 2;
      context.beginPath();
      let before: number | null = null;
      for (const one of better) {
        const trial = found.get(one.trial);
        const [px, py] = [trial ? frame.x(xOf(trial)) : null, frame.y(one.value)];
        if (px === null || py === null) continue;
        if (before === null) context.moveTo(px, py);
        else {
          context.lineTo(px, before);
          context.lineTo(px, py);
        }
        before = py;
      }
      if (before !== null) context.lineTo(frame.left + frame.width, before);
      context.stroke();
      return marks;
    },
    [known, better, found, metric, tones, xOf],
  );
  const over = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame, number_: number): void => {
      const trial = found.get(number_);
      const [px, py] = [trial ? frame.x(xOf(trial)) : null, trial ? frame.y(valueOf(trial, metric)) : null];
      if (px === null || py === null) return;
      context.strokeStyle = tones.ink;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(px, py, 7, 0, 7);
      context.stroke();
    },
    [found, metric, tones, xOf],
  );
  const last = better.at(-1);
  return (
    <>
      <Plot
        title={<>Best {metric} so far {last ? <b>{number(last.value)}</b> : null}</>}
      label={`${metric} of ${known.length} trials; ${last ? `the best is ${number(last.value)} of trial ${last.trial}; it got better ${better.length} times` : "none is complete"}`}
      x={x} y={y} xName={byTime ? "clock" : "trial"} time={byTime} draw={draw} over={over} chosen={chosen} onPick={choose} tip={tipOf(found, metric)}
      extra={
        <span className={css.tools}>
          <Segments label="Horizontal axis" value={along} options={[["trial", "Trial"], ["time", "Clock"]] as const} onChange={setAlong} />
          <Segments label="Vertical axis" value={log} options={[["linear", "Linear"], ["log", "Log"]] as const} onChange={setLog} />
        </span>
      }
    />
    <FilterChips trials={all} filters={filters} />
    </>
  );
}

/** Returns values without the far worst ones, which would flatten all others: those beyond four spreads of the middle. */
export function core(values: number[], small: boolean): number[] {
  if (values.length < 8) return values;
  const order = [...values].sort((a, b) => a - b);
  const [low, middle, high] = [0.1, 0.5, 0.9].map((share) => order[Math.floor(share * (order.length - 1))]!) as [number, number, number];
  const reach = 4 * Math.max(high - middle, middle - low);
  return reach === 0 ? values : values.filter((value) => (small ? value <= middle + reach : value >= middle - reach));
}

function BestParams({ trials, metric, small, choose, detail }: StudyProps) {
  const best = bestOf(trials, metric, small);
  if (!best) return <p className={layout.note}>No trial has a value of {metric} yet. Trials report it by weft.report(step, {metric}=...).</p>;
  return (
    <div className={css.stack}>
      <dl className={css.params}>
        {Object.entries(best.params).map(([name, value]) => (
          <div key={name}><dt>{name}</dt><dd>{typeof value === "number" ? number(value) : String(value)}</dd></div>
        ))}
      </dl>
      <p className={layout.note}>
        <button type="button" className={css.link} onClick={() => choose(best.number)}>Trial {best.number}</button> As a file:
      </p>
      <code className={css.hint}>weft study best {detail.study.id} -o best.yaml</code>
    </div>
  );
}

/** The trials that no other beats in both of two metrics. */
function Front({ trials, detail, chosen, choose }: StudyProps) {
  const tones = useTones();
  const names = Object.keys(detail.study.metrics);
  const [first, second] = [names[0]!, names[1]!];
  const front = useMemo(() => new Set(detail.front), [detail.front]);
  const known = useMemo(() => trials.filter((trial) => valueOf(trial, first) !== null && valueOf(trial, second) !== null), [trials, first, second]);
  const x = useMemo(() => scaleOf(first, known.map((trial) => valueOf(trial, first))), [known, first]);
  const y = useMemo(() => scaleOf(second, known.map((trial) => valueOf(trial, second))), [known, second]);
  const found = useByNumber(trials);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const marks: Mark[] = [];
      for (const trial of known) {
        const [px, py] = [frame.x(valueOf(trial, first)), frame.y(valueOf(trial, second))];
        if (px === null || py === null) continue;
        context.fillStyle = front.has(trial.number) ? tones.best : tones.faint;
        context.globalAlpha = front.has(trial.number) ? 1 : 0.4;
        context.beginPath();
        context.arc(px, py, front.has(trial.number) ? 5 : 3, 0, 7);
        context.fill();
        marks.push({ trial: trial.number, x: px, y: py });
      }
      return marks;
    },
    [known, first, second, front, tones],
  );
  return (
    <Plot title={`${first} and ${second}: large dots are not beaten in both`} label={`${known.length} trials, ${front.size} of which no other beats in both metrics`} x={x} y={y} xName={first} draw={draw} chosen={chosen} onPick={choose} tip={tipOf(found, first)} />
  );
}
