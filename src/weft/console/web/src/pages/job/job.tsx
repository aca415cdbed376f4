/** One job: what it is and does, what can be done to it, and a tab for each kind of thing it left. */
import { lazy, Suspense, useState } from "react";
import { Link, useLocation } from "wouter";
import { ApiError } from "../../api/client";
import { useJob, useMayAct, useRefresh } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, Tabs, useNow, Wrong } from "../../parts/controls";
import type { IconName } from "../../parts/icons";
import { Bar, Empty, Facts, Page, Skeleton } from "../../parts/layout";
import { ACTIVE, ENDED, StateMark, WAITING } from "../../parts/state";
import { ago, moment, percent, plural, until } from "../../text/format";
import { actionsOf, useJobActions, type Action } from "../jobs/actions";
import { timeOf, workersOf } from "../jobs/row";
import { CloneDialog, RemoveDialog, ScaleDialog } from "./dialogs";
import css from "./job.module.css";

const TABS = {
  curves: { text: "Curves", part: lazy(() => import("./curves")) },
  logs: { text: "Logs", part: lazy(() => import("./logs")) },
  workers: { text: "Workers", part: lazy(() => import("./workers")) },
  events: { text: "Events", part: lazy(() => import("./events")) },
  system: { text: "System", part: lazy(() => import("./system")) },
  files: { text: "Files", part: lazy(() => import("./files")) },
  code: { text: "Code", part: lazy(() => import("./code")) },
  findings: { text: "Findings", part: lazy(() => import("./findings")) },
  spec: { text: "Spec", part: lazy(() => import("./spec")) },
} as const;

const ICONS: Record<Action, IconName> = { stop: "stop", pause: "pause", resume: "play", retry: "retry", hold: "pause", release: "play" };
const WORDS: Record<Action, string> = { stop: "Stop", pause: "Pause", resume: "Resume", retry: "Retry", hold: "Hold", release: "Release" };

export default function JobPage({ id, tab }: { id: number; tab: string }) {
  const job = useJob(id);
  useRefresh([`job:${id}`, "jobs"], [["job", id]], 1000);
  if (job.error instanceof ApiError && job.error.status === 404)
    return (
      <Page name={`Job ${id}`} title={`Job ${id}`}>
        <Empty title={`There is no job ${id}`} text="It may have been removed, or it is not yours to see." commands={["weft jobs"]} />
      </Page>
    );
  if (job.error) return <Page name={`Job ${id}`} title={`Job ${id}`}><Wrong error={job.error} /></Page>;
  if (!job.data) return <Page name={`Job ${id}`} title={`Job ${id}`}><Skeleton lines={8} /></Page>;
  return <Content job={job.data} tab={tab in TABS ? (tab as keyof typeof TABS) : "curves"} />;
}

function Content({ job, tab }: { job: JobDetail; tab: keyof typeof TABS }) {
  const [, go] = useLocation();
  const { part: Part } = TABS[tab];
  const keys = Object.keys(TABS) as (keyof typeof TABS)[];
  const counts: Partial<Record<keyof typeof TABS, number>> = { findings: job.findings.length };
  useKeys([
    ...keys.map((key, index) => ({ keys: String(index + 1), label: TABS[key].text, run: () => go(`/jobs/${job.id}/${key}`, { replace: true }) })),
    { keys: "u", label: "Up to the list of jobs", run: () => go("/jobs") },
  ]);
  return (
    <Page name={`${job.name} ${job.id}`} title={<Title job={job} />} actions={<Actions job={job} />}>
      <Banner job={job} />
      <JobFacts job={job} />
      <Tabs
        label="Parts of the job"
        open={tab}
        tabs={keys.map((key) => ({ key, text: TABS[key].text, to: `/jobs/${job.id}/${key}`, count: counts[key] }))}
      />
      <Suspense fallback={<Skeleton lines={5} />}>
        <Part job={job} />
      </Suspense>
    </Page>
  );
}

function Title({ job }: { job: JobDetail }) {
  return (
    <span className={css.title}>
      <span style={{ fontSize: "inherit" }}>
        {job.name} <small>{job.id}</small>
      </span>
      <StateMark state={job.state} wanted={job.wanted} badge />
    </span>
  );
}

function Actions({ job }: { job: JobDetail }) {
  const mayAct = useMayAct();
  const actions = useJobActions();
  const [, go] = useLocation();
  const [open, setOpen] = useState<"scale" | "clone" | "remove" | null>(null);
  const elastic = job.max_workers > job.min_workers && job.state === "running";
  useKeys(
    mayAct
      ? [
          { keys: "s", label: "Stop", run: () => void actions.act("stop", [job]) },
          { keys: "p", label: "Pause", run: () => void actions.act("pause", [job]) },
          { keys: "r", label: "Retry", run: () => void actions.act("retry", [job]) },
          { keys: "c", label: "Clone", run: () => setOpen("clone") },
        ]
      : [],
  );
  return (
    <>
      {mayAct &&
        actionsOf(job).map((action) => (
          <Button key={action} icon={ICONS[action]} onClick={() => void actions.act(action, [job])}>
            {WORDS[action]}
          </Button>
        ))}
      {mayAct && job.mine && elastic && <Button icon="compare" onClick={() => setOpen("scale")}>Scale</Button>}
      {mayAct && <Button icon="copy" onClick={() => setOpen("clone")}>Clone</Button>}
      {mayAct && job.mine && (
        <Button icon="pin" aria-pressed={job.pinned} aria-label="Pin" title={job.pinned ? "Pinned: kept for good" : "Pin: keep it for good"} onClick={() => void actions.change([job], { pinned: !job.pinned })} />
      )}
      {job.parent_id !== null && (
        <Button icon="compare" onClick={() => go(`/compare?jobs=${job.parent_id},${job.id}`)}>Compare with {job.parent_id}</Button>
      )}
      {mayAct && job.mine && ENDED.includes(job.state) && <Button kind="danger" icon="trash" aria-label="Remove" title="Remove" onClick={() => setOpen("remove")} />}
      {open === "scale" && <ScaleDialog job={job} onClose={() => setOpen(null)} />}
      {open === "clone" && <CloneDialog job={job} onClose={() => setOpen(null)} />}
      {open === "remove" && <RemoveDialog job={job} onClose={() => setOpen(null)} />}
    </>
  );
}

function Banner({ job }: { job: JobDetail }) {
  const now = useNow();
  if (job.state === "failed")
    return (
      <div className={`${css.banner} ${css.failed}`} role="status">
        <p>
          {job.cause ? <b>{job.cause}: </b> : null}
          {job.message ?? "it ended with an error"}
        </p>
        <Link href={`/jobs/${job.id}/logs?error=1`}>First error in the log</Link>
      </div>
    );
  if (WAITING.includes(job.state) && job.reason)
    return (
      <div className={`${css.banner} ${css.waits}`} role="status">
        <p>
          {job.reason.place ? <b>Place {job.reason.place}. </b> : null}
          {job.reason.text}
          {job.reason.earliest_ms ? `; may start ${until(job.reason.earliest_ms, now)}` : ""}
        </p>
        <Link href="/jobs?view=queue">Show the queue</Link>
      </div>
    );
  return null;
}

function JobFacts({ job }: { job: JobDetail }) {
  const now = useNow(1000);
  const active = ACTIVE.includes(job.state);
  return (
    <Facts
      facts={[
        ["Project", <Link href={`/jobs?project=${job.project}`}>{job.project}</Link>],
        ["User", <Link href={`/jobs?user=${job.user}`}>{job.user}</Link>],
        ["Time", timeOf(job, now)],
        active && job.progress !== null && [
          "Progress",
          <span className={css.sliderRow}>
            <span className={css.progress}><Bar share={job.progress} label={`${percent(job.progress)} done`} /></span>
            {percent(job.progress)}
          </span>,
        ],
        ["Workers", workersOf(job)],
        job.hosts.length > 0 && ["Hosts", job.hosts.map((share) => `${share.host} ×${share.workers}`).join(", ")],
        ["Queue", `${job.queue}, priority ${job.priority}`],
        job.attempts.length > 1 && ["Attempts", plural(job.attempts.length, "attempt")],
        ["Submitted", <time title={moment(job.created_ms)}>{ago(job.created_ms, now)}</time>],
        job.after.length > 0 && ["After", job.after.map((other) => <Link key={other} href={`/jobs/${other}`}>{other} </Link>)],
        job.parent_id !== null && ["Cloned from", <Link href={`/jobs/${job.parent_id}`}>{job.parent_id}</Link>],
        Object.keys(job.tags).length > 0 && [
          "Tags",
          <span className={css.tags}>
            {Object.entries(job.tags).map(([name, value]) => (
              <Link key={name} className={css.tag} href={`/jobs?q=${encodeURIComponent(`${name}=${value}`)}`}>{name}={value}</Link>
            ))}
          </span>,
        ],
      ]}
    />
  );
}
