/** Slices: a metric over each parameter; and the surface over two of them, drawn where trials have been. */
import { useCallback, useMemo, useRef } from "react";
import type { TrialView } from "../../../api/types";
import { Card, layout } from "../../../parts/layout";
import { Segments } from "../../../parts/controls";
import { useParam } from "../../../text/address";
import { number } from "../../../text/format";
import { finer, isPromoted, placeOn, ranks, scaleOf, surfaceOf, valueOf, type Domain } from "../../../text/studies";
import { onRamp, Plot, shape, useTones, type Frame, type Mark } from "../plot";
import { core } from "./progress";
import css from "../studies.module.css";
import { FilterChips, tipOf, useByNumber, useFilters, useParameters, type StudyProps } from "../view";

const MOST = 12; // slices at once
const [COLUMNS, ROWS, LEVELS, FINER] = [48, 32, 9, 4];

export default function SlicesTab(props: StudyProps) {
  const { trials, metric, domains, detail } = props;
  const filters = useFilters(trials);
  const [log, setLog] = useParam("y", "linear");
  const names = useParameters(props);
  const [px, setPx] = useParam("px");
  const [py, setPy] = useParam("py");
  // The most important first, where that is known.
  const order = useMemo(() => {
    const share = new Map(detail.importances.map((one) => [one.name, one.share]));
    const varied = names.filter((name) => differs(trials, name));
    return varied.sort((a, b) => (share.get(b) ?? -1) - (share.get(a) ?? -1));
  }, [names, trials, detail.importances]);
  // Trials that run are left out: their values are of a moment, and all charts would be drawn again for each report.
  const known = useSame(useMemo(() => filters.shown.filter((trial) => trial.state !== "running" && valueOf(trial, metric) !== null), [filters.shown, metric]));
  if (order.length === 0) return <p className={layout.note}>All trials have the same parameters so far.</p>;
  const first = order.includes(px) ? px : order[0]!;
  const second = order.includes(py) && py !== first ? py : (order.find((name) => name !== first) ?? "");
  const slices = px && order.includes(px) ? [px, ...order.filter((name) => name !== px)] : order;
  return (
    <div className={css.stack}>
      <div className={css.tools}>
        <Segments label="Vertical axis" value={log} options={[["linear", "Linear"], ["log", "Log"]] as const} onChange={setLog} />
        <FilterChips trials={trials} filters={filters} />
      </div>
      {second && (
        <Card
          title={`${metric} over two parameters`}
          extra={
            <span className={css.tools}>
              <label>across <select value={first} onChange={(event) => setPx(event.target.value)}>{order.map((name) => <option key={name}>{name}</option>)}</select></label>
              <label>up <select value={second} onChange={(event) => setPy(event.target.value)}>{order.filter((name) => name !== first).map((name) => <option key={name}>{name}</option>)}</select></label>
            </span>
          }
        >
          <Contour {...props} known={known} first={first} second={second} />
        </Card>
      )}
      <div className={css.grid}>
        {slices.slice(0, MOST).map((name) => (
          <Card key={name} label={name}><Slice {...props} known={known} name={name} domain={domains[name] ?? null} log={log === "log"} /></Card>
        ))}
      </div>
      {order.length > MOST && <p className={layout.note}>The first {MOST} of {order.length} parameters are shown.</p>}
    </div>
  );
}

/** Returns whether trials differ in a parameter. */
function differs(trials: TrialView[], name: string): boolean {
  const first = trials[0]?.params[name];
  return trials.some((trial) => trial.params[name] !== first);
}

/** Returns the list of before while the same trials are in it. */
function useSame(trials: TrialView[]): TrialView[] {
  const kept = useRef(trials);
  if (kept.current.length !== trials.length || kept.current.some((trial, index) => trial !== trials[index])) kept.current = trials;
  return kept.current;
}

function Slice({ known, name, domain, metric, small, chosen, choose, log, trials }: StudyProps & { known: TrialView[]; name: string; domain: Domain | null; log: boolean }) {
  const tones = useTones();
  const found = useByNumber(trials);
  const x = useMemo(() => scaleOf(name, known.map((trial) => trial.params[name]), domain), [known, name, domain]);
  const y = useMemo(() => scaleOf(metric, core(known.map((trial) => valueOf(trial, metric)!), small), null, log), [known, metric, log, small]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const marks: Mark[] = [];
      context.globalAlpha = known.length > 200 ? 0.5 : 0.8;
      for (const trial of known) {
        const spread = x.words ? (((trial.number * 7919) % 17) - 8) * Math.min(1.6, frame.width / x.words.length / 30) : 0;
        const [px, py] = [frame.x(trial.params[name]), frame.y(valueOf(trial, metric))];
        if (px === null || py === null) continue;
        context.fillStyle = context.strokeStyle = tones[trial.state as "running"] ?? tones.ink;
        shape(context, trial.state, px + spread, py, 5, isPromoted(trial));
        marks.push({ trial: trial.number, x: px + spread, y: py });
      }
      return marks;
    },
    [known, name, metric, tones, x.words],
  );
  const over = useRing(known, name, metric);
  return <Plot title={name} label={`${metric} of ${known.length} trials over ${name}`} x={x} y={y} height={210} draw={draw} over={over} chosen={chosen} onPick={choose} tip={tipOf(found, metric)} />;
}

function useRing(known: TrialView[], name: string, metric: string) {
  const tones = useTones();
  return useCallback(
    (context: CanvasRenderingContext2D, frame: Frame, wanted: number): void => {
      const trial = known.find((one) => one.number === wanted);
      const [px, py] = [trial ? frame.x(trial.params[name]) : null, trial ? frame.y(valueOf(trial, metric)) : null];
      if (px === null || py === null) return;
      context.strokeStyle = tones.ink;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(px, py, 7, 0, 7);
      context.stroke();
    },
    [known, name, metric, tones],
  );
}

function Contour({ known, first, second, metric, small, domains, trials, chosen, choose }: StudyProps & { known: TrialView[]; first: string; second: string }) {
  const tones = useTones();
  const found = useByNumber(trials);
  const x = useMemo(() => scaleOf(first, known.map((trial) => trial.params[first]), domains[first] ?? null), [known, first, domains]);
  const y = useMemo(() => scaleOf(second, known.map((trial) => trial.params[second]), domains[second] ?? null), [known, second, domains]);
  const rank = useMemo(() => ranks(known, metric, small), [known, metric, small]);
  const surface = useMemo(() => {
    const points = known.flatMap((trial) => {
      const [px, py] = [placeOn(x, trial.params[first]), placeOn(y, trial.params[second])];
      return px === null || py === null ? [] : [{ x: px, y: py, value: rank.get(trial.number) ?? 0 }];
    });
    return finer(surfaceOf(points, COLUMNS, ROWS), COLUMNS, ROWS, FINER);
  }, [known, x, y, first, second, rank]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const columns = COLUMNS * FINER;
      const [wide, high] = [frame.width / columns, frame.height / (ROWS * FINER)];
      for (let row = 0; !x.words && !y.words && row < ROWS * FINER; row += 1) {
        // Bands with clear edges read as contours; cells of a band that touch are one rectangle.
        const level = (column: number): number => Math.round(surface[row * columns + column]! * LEVELS);
        for (let from = 0, to = 0; from < columns; from = to) {
          const here = level(from);
          for (to = from + 1; to < columns && Object.is(level(to), here); ) to += 1;
          if (Number.isNaN(here)) continue;
          context.fillStyle = onRamp(tones.ramp, here / LEVELS);
          context.fillRect(frame.left + from * wide, frame.top + frame.height - (row + 1) * high, (to - from) * wide + 0.6, high + 0.6);
        }
      }
      const marks: Mark[] = [];
      for (const trial of known) {
        const [px, py] = [frame.x(trial.params[first]), frame.y(trial.params[second])];
        if (px === null || py === null) continue;
        const place = rank.get(trial.number) ?? 0;
        const spread = x.words || y.words ? ((trial.number * 7919) % 17) - 8 : 0;
        const [mx, my] = [px + (x.words ? spread : 0), py + (y.words ? spread / 2 : 0)];
        context.fillStyle = place === 1 ? tones.best : onRamp(tones.ramp, place);
        context.strokeStyle = tones.ink;
        context.lineWidth = place === 1 ? 2 : 0.6;
        context.beginPath();
        context.arc(mx, my, place === 1 ? 6 : known.length > 300 ? 2.2 : 3.2, 0, 7);
        context.fill();
        context.stroke();
        marks.push({ trial: trial.number, x: mx, y: my });
      }
      return marks;
    },
    [known, first, second, rank, surface, tones, x.words, y.words],
  );
  const best = known.find((trial) => rank.get(trial.number) === 1);
  return (
    <>
      <Plot title={`${first} and ${second}`} label={`Trials by ${first} and ${second}${best ? `; the best ${metric}, ${number(valueOf(best, metric))}, is at ${first} ${best.params[first]}, ${second} ${best.params[second]}` : ""}`} x={x} y={y} xName={first} height={340} draw={draw} chosen={chosen} onPick={choose} tip={tipOf(found, metric)} />
      <p className={layout.note}>
        <span className={css.ramp} aria-hidden="true" /> worse to better, by rank among the trials shown. Means of the trials near by, blank where there are none; show completed trials alone to compare them at the same step{x.words || y.words ? "; choices have no surface" : ""}.
      </p>
    </>
  );
}
