/** One trial beside any view: its parameters, values and message, its job's curves and logs, and a trial like it. */
import { Link } from "wouter";
import { useMayAct } from "../../api/queries";
import type { StudyAnswer, TrialView } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, Wrong } from "../../parts/controls";
import { Card, Facts, layout } from "../../parts/layout";
import { Sparkline } from "../../parts/sparkline";
import { useSetParams } from "../../text/address";
import { count, duration, moment, number } from "../../text/format";
import { isPromoted } from "../../text/studies";
import { trialVerbs, useAskStudy, type TrialVerb } from "./live";
import css from "./studies.module.css";
import { TrialMark, type StudyProps } from "./view";

const TRIAL_WORDS: Record<TrialVerb, string> = { promote: "Promote", pause: "Pause", stop: "Stop" };
const TRIAL_HINTS: Record<TrialVerb, string> = {
  promote: "Let it go on before all others, to its next rung",
  pause: "It ends at its checkpoint and rests until it is promoted",
  stop: "End this trial for good",
};
const TRIAL_DONE: Record<TrialVerb, string> = { promote: "it goes on before all others", pause: "it rests until it is promoted", stop: "the trial ends" };

export function TrialPanel({ trial, detail, choose, trials }: StudyProps & { trial: TrialView }) {
  const mayAct = useMayAct() && detail.mine;
  const setParams = useSetParams();
  const ask = useAskStudy();
  const verbs = mayAct ? trialVerbs(trial) : [];
  const tellVerb = (verb: TrialVerb): void => void ask<StudyAnswer>("POST", `/studies/${detail.study.id}/trials/${trial.number}/${verb}`, verb === "promote" ? {} : undefined, TRIAL_DONE[verb]);
  useKeys(verbs.includes("promote") ? [{ keys: "m", label: "Promote the trial", run: () => tellVerb("promote") }] : []);
  const place = trials.findIndex((one) => one.number === trial.number);
  const job = trial.job_id;
  return (
    <Card
      label={`Trial ${trial.number}`}
      title={<span className={css.panelTitle}>Trial {trial.number} <TrialMark state={trial.state} promoted={isPromoted(trial)} /></span>}
      extra={
        <span className={css.tools}>
          <Button small icon="up" aria-label="trial before" disabled={place <= 0} onClick={() => choose(trials[place - 1]!.number)} />
          <Button small icon="down" aria-label="next trial" disabled={place >= trials.length - 1} onClick={() => choose(trials[place + 1]!.number)} />
          {verbs.map((verb) => <Button key={verb} small icon={verb === "promote" ? "play" : verb} title={TRIAL_HINTS[verb]} onClick={() => tellVerb(verb)}>{TRIAL_WORDS[verb]}</Button>)}
          {mayAct && <Button small icon="plus" onClick={() => setParams({ open: "add" })}>One like it</Button>}
          <Button small icon="close" aria-label="close the trial" onClick={() => choose(null)} />
        </span>
      }
    >
      <div className={css.panel}>
        {trial.message ? <Wrong error={trial.message} /> : null}
        <Facts
          facts={[
            ...Object.entries(trial.values).map(([name, value]) => [name, typeof value === "number" ? number(value) : (value ?? "–")] as const),
            ["Step", `${count(trial.step)}${trial.until ? ` of ${count(trial.until)}` : ""}`],
            ["Ran", duration((trial.run_s ?? 0) * 1000)],
            ["Starts", count(trial.starts ?? 0)],
            trial.bracket ? ["Bracket", trial.bracket] : null,
            trial.begun_ms ? ["Begun", moment(trial.begun_ms)] : null,
            trial.given ? ["Given", "by hand"] : null,
            trial.held ? ["Held", "until it is promoted"] : null,
            trial.source ? ["Taken from", trial.source] : null,
            trial.parent !== null && trial.parent !== undefined ? ["Weights of", <button type="button" className={css.link} onClick={() => choose(trial.parent!)}>trial {trial.parent}</button>] : null,
          ]}
        />
        <dl className={css.params}>
          {Object.entries(trial.params).map(([name, value]) => (
            <div key={name}><dt>{name}</dt><dd>{typeof value === "number" ? number(value) : String(value)}</dd></div>
          ))}
        </dl>
        <div className={css.panelFoot}>
          <Sparkline values={(trial.curve ?? []).map(([, value]) => (typeof value === "number" ? value : null))} label={`curve of trial ${trial.number}`} width={220} height={48} />
          {job ? (
            <nav aria-label={`Job of trial ${trial.number}`} className={css.jobLinks}>
              <Link href={`/jobs/${job}`}>Job {job}</Link>
              <Link href={`/jobs/${job}/logs`}>Logs</Link>
              <Link href={`/jobs/${job}/curves`}>Metrics</Link>
              <Link href={`/jobs/${job}/system`}>System</Link>
              <Link href={`/jobs/${job}/files`}>Files</Link>
            </nav>
          ) : (
            <span className={layout.note}>It has no job yet.</span>
          )}
        </div>
      </div>
    </Card>
  );
}
