/** One study: how far it is, what it found, a tab for each way to look at its trials, and what can be asked of it. */
import { lazy, Suspense, useMemo, useState } from "react";
import { useLocation } from "wouter";
import { ApiError } from "../../api/client";
import { useMayAct } from "../../api/queries";
import type { StudyAnswer, StudyDetail, TrialView } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, Segments, Tabs, useNow, Wrong } from "../../parts/controls";
import { Empty, Facts, Page, Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { count, duration, number } from "../../text/format";
import { valueOf } from "../../text/studies";
import { AddTrialDialog, CloneStudyDialog, KeepModelDialog } from "./dialogs";
import { useAskStudy, useStudy, useStudyStream, useTrials, verbsOf, type Verb } from "./live";
import css from "./studies.module.css";
import { TrialPanel } from "./trial";
import { bestOf, domainsOf, TrialMark, type StudyProps } from "./view";

const TABS = {
  progress: { text: "Progress", part: lazy(() => import("./views/progress")) },
  curves: { text: "Curves", part: lazy(() => import("./views/curves")) },
  parallel: { text: "Parallel", part: lazy(() => import("./views/parallel")) },
  importance: { text: "Importance", part: lazy(() => import("./views/importance")) },
  slices: { text: "Slices", part: lazy(() => import("./views/slices")) },
  timeline: { text: "Timeline", part: lazy(() => import("./views/timeline")) },
  trials: { text: "Trials", part: lazy(() => import("./views/table")) },
  settings: { text: "Settings", part: lazy(() => import("./views/settings")) },
} as const;
type TabKey = keyof typeof TABS;

const WORDS: Record<Verb, string> = { stop: "Stop", pause: "Pause", resume: "Resume" };
const DONE: Record<Verb, string> = { stop: "it stops with its trials", pause: "it pauses; trials end at their checkpoints", resume: "it goes on" };

export default function StudyPage({ id, tab }: { id: number; tab: string }) {
  const study = useStudy(id);
  const trials = useTrials(id);
  useStudyStream(id);
  const name = `Study ${id}`;
  const error = study.error ?? trials.error;
  if (error instanceof ApiError && error.status === 404)
    return (
      <Page name={name} title={name}>
        <Empty title={`There is no study ${id}`} text="It may have been removed, or it is not yours to see." commands={["weft studies"]} />
      </Page>
    );
  if (error && (!study.data || !trials.data)) return <Page name={name} title={name}><Wrong error={error} /></Page>;
  if (!study.data || !trials.data) return <Page name={name} title={name}><Skeleton lines={8} /></Page>;
  return <Content id={id} detail={study.data} trials={trials.data.trials} tab={tab in TABS ? (tab as TabKey) : "progress"} />;
}

function Content({ id, detail, trials, tab }: { id: number; detail: StudyDetail; trials: TrialView[]; tab: TabKey }) {
  const [, go] = useLocation();
  const [wanted, setMetric] = useParam("metric");
  const [picked, setPicked] = useParam("trial");
  const metrics = Object.keys(detail.study.metrics);
  const metric = metrics.includes(wanted) ? wanted : (metrics[0] ?? "");
  const space = JSON.stringify(detail.config["space"] ?? {});
  // Messages of the stream make another detail several times a second; the space stays, and with it all scales.
  const domains = useMemo(() => domainsOf(JSON.parse(space) as Record<string, unknown>), [space]);
  const chosen = /^\d+$/.test(picked) ? Number(picked) : null;
  const props: StudyProps = {
    id, detail, trials, metric, domains, chosen,
    small: detail.study.metrics[metric] !== "maximize",
    choose: (trial) => setPicked(trial === null ? "" : String(trial)),
  };
  const keys = Object.keys(TABS) as TabKey[];
  const search = window.location.search;
  useKeys([
    ...keys.map((key, index) => ({ keys: String(index + 1), label: TABS[key].text, run: () => go(`/studies/${id}/${key}${window.location.search}`, { replace: true }) })),
    { keys: "u", label: "Up to the list of studies", run: () => go("/studies") },
    { keys: "b", label: "The best trial", run: () => props.choose(bestOf(trials, metric, props.small)?.number ?? null) },
    ...(chosen === null ? [] : [{ keys: "Escape", label: "Close the trial", run: () => props.choose(null) }]),
  ]);
  const { part: Part } = TABS[tab];
  const shown = chosen === null ? undefined : trials.find((trial) => trial.number === chosen);
  return (
    <Page name={`${detail.study.name} ${id}`} title={<Title detail={detail} />} actions={<Actions {...props} />}>
      {detail.study.message && <p role="status" className={css.message}>{detail.study.message}</p>}
      <StudyFacts {...props} />
      <div className={css.tabRow}>
        <Tabs label="Parts of the study" open={tab} tabs={keys.map((key) => ({ key, text: TABS[key].text, to: `/studies/${id}/${key}${search}`, count: key === "trials" ? trials.length : key === "progress" ? detail.insights.length : undefined }))} />
        {metrics.length > 1 && <Segments label="Metric" value={metric} options={metrics.map((name) => [name, name] as const)} onChange={setMetric} />}
      </div>
      {shown && <TrialPanel key={shown.number} {...props} trial={shown} />}
      {trials.length === 0 && tab !== "settings" ? (
        <Empty title="No trial yet" text="The first trials start when hosts are free; this page fills by itself." commands={[`weft study show ${id}`]} />
      ) : (
        <Suspense fallback={<Skeleton lines={5} />}>
          <Part {...props} />
        </Suspense>
      )}
    </Page>
  );
}

function Title({ detail }: { detail: StudyDetail }) {
  return (
    <span className={css.title}>
      <span>{detail.study.name} <small>{detail.study.id}</small></span>
      <span className={css.badge}><TrialMark state={detail.study.state} /></span>
    </span>
  );
}

function Actions({ id, detail, trials, domains, metric, small, chosen }: StudyProps) {
  const mayAct = useMayAct();
  const ask = useAskStudy();
  const [, go] = useLocation();
  const [open, setOpen] = useParam("open");
  const [sure, setSure] = useState(false);
  const own = mayAct && detail.mine;
  const kept = trials.find((trial) => trial.number === chosen && trial.job_id) ?? bestOf(trials, metric, small);
  const verbs = own ? verbsOf(detail.study.state) : [];
  const tellVerb = (verb: Verb): void => void ask<StudyAnswer>("POST", `/studies/${id}/${verb}`, undefined, DONE[verb]);
  useKeys([
    ...verbs.map((verb) => ({ keys: verb === "stop" ? "s" : "p", label: WORDS[verb], run: () => tellVerb(verb) })),
    ...(own ? [{ keys: "a", label: "Add a trial", run: () => setOpen("add") }] : []),
    ...(mayAct ? [{ keys: "c", label: "Clone", run: () => setOpen("clone") }] : []),
  ]);
  const over = !["running", "paused"].includes(detail.study.state);
  return (
    <>
      {verbs.map((verb) => <Button key={verb} icon={verb === "resume" ? "play" : verb} onClick={() => tellVerb(verb)}>{WORDS[verb]}</Button>)}
      {own && <Button icon="plus" onClick={() => setOpen("add")}>Add trial</Button>}
      {mayAct && <Button icon="copy" onClick={() => setOpen("clone")}>Clone</Button>}
      {own && kept && <Button icon="load" title={`The model of trial ${kept.number} goes to the model store`} onClick={() => setOpen("model")}>Keep model</Button>}
      <a className={css.csv} href={`/api/v1/studies/${id}/export`} download>CSV</a>
      {own && over && (
        <Button kind="danger" icon="trash" aria-label={sure ? "Remove: sure?" : "Remove"} title="Remove; its jobs stay" onBlur={() => setSure(false)} onClick={() => (sure ? void ask("DELETE", `/studies/${id}`, undefined, "removed").then((done) => done !== null && go("/studies")) : setSure(true))}>
          {sure ? "Sure?" : null}
        </Button>
      )}
      {open === "add" && own && <AddTrialDialog id={id} domains={domains} trials={trials} onClose={() => setOpen("")} />}
      {open === "model" && own && kept && <KeepModelDialog id={id} detail={detail} trial={kept} onClose={() => setOpen("")} />}
      {open === "clone" && mayAct && <CloneStudyDialog id={id} detail={detail} onClose={() => setOpen("")} />}
    </>
  );
}

function StudyFacts({ detail, trials, metric, small, choose }: StudyProps) {
  const now = useNow();
  const { study } = detail;
  const best = bestOf(trials, metric, small);
  const end = study.ended_ms ?? now;
  return (
    <Facts
      facts={[
        ["Best so far", best ? <button type="button" className={css.bestLink} onClick={() => choose(best.number)}>{metric} {number(valueOf(best, metric))}, trial {best.number}</button> : "–"],
        ["Trials", `${count(trials.length)}${study.budget_trials ? ` of ${count(study.budget_trials)}` : ""}`],
        ["Goal", Object.entries(study.metrics).map(([name, goal]) => `${goal} ${name}`).join(", ")],
        ["Search, schedule", `${study.search}, ${study.schedule === "none" ? "no schedule" : study.schedule}`],
        study.begun_ms ? ["Time", duration(end - study.begun_ms)] : null,
        study.gpu_hours ? ["GPU-hours", number(study.gpu_hours)] : null,
        study.user ? ["Owner", study.user] : null,
      ]}
    />
  );
}
