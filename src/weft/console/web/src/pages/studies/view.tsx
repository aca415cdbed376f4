/** What all views of a study share: its trials, what is to be best, the trial that is looked at, small parts. */
import { useMemo } from "react";
import type { StudyDetail, StudyInsight, TrialView } from "../../api/types";
import { Button, Chip, Chips } from "../../parts/controls";
import { StateShape, toneClass, type JobState } from "../../parts/state";
import { useParam, useSetParams } from "../../text/address";
import { number } from "../../text/format";
import { domainOf, inBrushes, isPromoted, matchesFilter, parseBrushes, rankable, TRIAL_STATES, valueOf, writeBrushes, type Brushes, type Domain } from "../../text/studies";
import css from "./studies.module.css";

export interface StudyProps {
  id: number;
  detail: StudyDetail;
  trials: TrialView[];
  metric: string; // the one that is looked at
  small: boolean; // whether it is to be small
  domains: Record<string, Domain>;
  chosen: number | null;
  choose: (trial: number | null) => void;
}

const SHAPES: Record<string, JobState> = { waiting: "queued", running: "running", paused: "paused", completed: "completed", stopped: "stopped", failed: "failed" };
const TONES = { waiting: "amber", running: "blue", paused: "purple", completed: "green", stopped: "grey", failed: "orange" } as const;

export function TrialMark({ state, promoted }: { state: string; promoted?: boolean }) {
  return (
    <span className={css.state}>
      <span className={toneClass(TONES[state as keyof typeof TONES] ?? "grey")}>
        <StateShape state={SHAPES[state] ?? "queued"} />
      </span>
      {state}
      {promoted && <b title="it went on from its checkpoint" className={css.promoted}>▲ promoted</b>}
    </span>
  );
}

/** Returns the domains of a space as a study's settings hold it. */
export function domainsOf(space: Record<string, unknown>): Record<string, Domain> {
  return Object.fromEntries(Object.entries(space).filter(([name]) => name !== "...").map(([name, raw]) => [name, domainOf(raw)]));
}

/** Returns the names of parameters, of the space first and then those that only trials have. */
export function useParameters({ domains, trials }: Pick<StudyProps, "domains" | "trials">): string[] {
  return useMemo(() => {
    const names = new Set(Object.keys(domains));
    for (const trial of trials) for (const name of Object.keys(trial.params)) names.add(name);
    return [...names];
  }, [domains, trials]);
}

/** Returns trials that pass the filters of the address, which hold in every view, and the filters. */
export function useFilters(trials: TrialView[]) {
  const [states, setStates] = useParam("state");
  const [text, setText] = useParam("q");
  const [brush] = useParam("brush");
  const [promoted, setPromoted] = useParam("promoted");
  const setParams = useSetParams();
  const brushes = useMemo(() => parseBrushes(brush), [brush]);
  const unbrushed = useMemo(() => {
    const wanted = new Set(states.split(",").filter(Boolean));
    return trials.filter(
      (trial) => (wanted.size === 0 || wanted.has(trial.state)) && (!promoted || isPromoted(trial)) && matchesFilter(trial, text),
    );
  }, [trials, states, text, promoted]);
  const shown = useMemo(() => unbrushed.filter((trial) => inBrushes(trial, brushes)), [unbrushed, brushes]);
  return {
    shown,
    unbrushed, // all that pass but for the ranges
    states: states.split(",").filter(Boolean),
    setStates: (next: string[]) => setStates(next.join(",")),
    text,
    setText,
    promoted: promoted !== "",
    setPromoted: (on: boolean) => setPromoted(on ? "1" : ""),
    brushes,
    setBrushes: (next: Brushes) => setParams({ brush: writeBrushes(next) }),
  };
}

export type Filters = ReturnType<typeof useFilters>;

/** Chips of states with counts, of promoted trials, and of ranges that are brushed. */
export function FilterChips({ trials, filters }: { trials: TrialView[]; filters: Filters }) {
  const counts = new Map<string, number>();
  let promoted = 0;
  for (const trial of trials) {
    counts.set(trial.state, (counts.get(trial.state) ?? 0) + 1);
    if (isPromoted(trial)) promoted += 1;
  }
  const { states, brushes } = filters;
  return (
    <Chips label="Trials that are shown">
      {TRIAL_STATES.filter((state) => counts.has(state) || states.includes(state)).map((state) => (
        <Chip key={state} on={states.includes(state)} onClick={() => filters.setStates(states.includes(state) ? states.filter((one) => one !== state) : [...states, state])}>
          <TrialMark state={state} /> <b>{counts.get(state) ?? 0}</b>
        </Chip>
      ))}
      {promoted > 0 && (
        <Chip on={filters.promoted} onClick={() => filters.setPromoted(!filters.promoted)}>
          <span className={css.promoted} aria-hidden="true">▲</span> promoted <b>{promoted}</b>
        </Chip>
      )}
      {Object.entries(brushes).map(([name, brush]) => (
        <Button key={name} small icon="close" title="Drop this range" onClick={() => filters.setBrushes(Object.fromEntries(Object.entries(brushes).filter(([other]) => other !== name)))}>
          {name} {"words" in brush ? brush.words.join(", ") : `${number(brush.low)} to ${number(brush.high)}`}
        </Button>
      ))}
    </Chips>
  );
}

/** Returns the best trial of those there are. */
export function bestOf(trials: TrialView[], metric: string, small: boolean): TrialView | null {
  let best: TrialView | null = null;
  for (const trial of rankable(trials, metric)) {
    const value = valueOf(trial, metric)!;
    if (best === null || (small ? value < valueOf(best, metric)! : value > valueOf(best, metric)!)) best = trial;
  }
  return best;
}

/** Returns a line or more about a trial, for pointers. */
export function tipOf(trials: Map<number, TrialView>, metric: string): (trial: number) => string {
  return (numbered) => {
    const trial = trials.get(numbered);
    if (!trial) return "";
    const params = Object.entries(trial.params).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`);
    return [`Trial ${numbered}, ${trial.state}${isPromoted(trial) ? ", promoted" : ""}`, `${metric} ${number(valueOf(trial, metric))} at ${trial.step}`, ...params].join("\n");
  };
}

export function useByNumber(trials: TrialView[]): Map<number, TrialView> {
  return useMemo(() => new Map(trials.map((trial) => [trial.number, trial])), [trials]);
}

/** What the rules found, with the numbers behind it, and what can be done about it. */
export function Insights({ insights, choose, onAct, onClone }: { insights: StudyInsight[]; choose: (trial: number | null) => void; onAct?: ((insight: StudyInsight) => React.ReactNode) | undefined; onClone?: (() => void) | undefined }) {
  if (insights.length === 0) return null;
  return (
    <ul className={css.insights}>
      {insights.map((insight) => (
        <li key={`${insight.rule} ${insight.text}`} data-severity={insight.severity}>
          <p>
            <b>{insight.rule}</b> {insight.text}. <span className={css.advice}>{sentence(insight.advice)}.</span>
          </p>
          <p className={css.evidence}>
            {Object.entries(insight.evidence).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : String(value)}`).join(", ")}
            {(insight.trials ?? []).slice(0, 5).map((trial) => (
              <button key={trial} type="button" className={css.link} onClick={() => choose(trial)}>trial {trial}</button>
            ))}
            {["edge", "no-matter", "divergence"].includes(insight.rule) && onClone && <button type="button" className={css.link} onClick={onClone}>clone with another space</button>}
            {onAct?.(insight)}
          </p>
        </li>
      ))}
    </ul>
  );
}

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
