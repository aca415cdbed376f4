/** The overview: what runs, what waits and why, what failed, what the advice found, and how full the hosts are. */
import type { ReactNode } from "react";
import { Link } from "wouter";
import { useOverview, useRefresh } from "../api/queries";
import type { JobView, OverviewAnswer } from "../api/types";
import { ButtonLink, useNow, Wrong } from "../parts/controls";
import { Bar, Card, Empty, layout, Page, Skeleton } from "../parts/layout";
import { Sparkline } from "../parts/sparkline";
import { ACTIVE, SEVERITY_TONES, StateMark, StateShape, toneClass, WAITING, type JobState } from "../parts/state";
import { ago, bytes, count, number, percent, plural } from "../text/format";
import { timeOf, whyOf, workersOf } from "./jobs/row";
import css from "./overview.module.css";

export function OverviewPage() {
  const overview = useOverview();
  useRefresh(["jobs", "hosts"], [["overview"]], 1500);
  return (
    <Page name="Overview" title="Overview" actions={<ButtonLink to="/new" icon="plus" kind="primary">New job</ButtonLink>}>
      {overview.isPending && <Skeleton lines={8} />}
      {overview.error ? <Wrong error={overview.error} /> : null}
      {overview.data && <Content data={overview.data} />}
    </Page>
  );
}

function Content({ data }: { data: OverviewAnswer }) {
  const now = useNow();
  const jobs = Object.values(data.counts).reduce((sum, one) => sum + one, 0);
  const { up, drained, lost } = data.hosts;
  if (jobs === 0 && up + drained + lost === 0)
    return (
      <Empty
        title="A loom without threads"
        text="Add the machines that may run jobs, this one for a start, then submit a script from its folder."
        commands={["weft hosts add localhost", "weft submit -- train.py"]}
      />
    );
  return (
    <>
      <Figures data={data} />
      {jobs === 0 && (
        <Empty title="No jobs yet" text="The hosts are idle. Submit a script from its folder:" commands={["weft submit -- train.py"]} />
      )}
      <div className={css.columns}>
        <div className={css.column}>
          {data.running.length > 0 && (
            <JobCard title="Running" to="/jobs?state=active" jobs={data.running.slice(0, 9)}>
              {(job) => (
                <Line key={job.id} job={job} under={[job.user, job.workers > 0 && plural(job.workers, "worker"), timeOf(job, now)].filter(Boolean).join(", ")}>
                  {job.headline && (
                    <>
                      <Sparkline values={job.headline.values} label={`${job.headline.name} so far`} />
                      <span className={css.value}>{typeof job.headline.last === "string" ? job.headline.last : number(job.headline.last)}</span>
                    </>
                  )}
                  {job.progress !== null && (
                    <div className={`${css.progress} ${layout.number}`}>
                      <Bar share={job.progress} label={`${percent(job.progress)} done`} />
                    </div>
                  )}
                </Line>
              )}
            </JobCard>
          )}
          {data.failures.length > 0 && (
            <JobCard title="Failed last" to="/jobs?state=failed" jobs={data.failures.slice(0, 6)}>
              {(job) => (
                <Line key={job.id} job={job} under={job.message ?? job.cause ?? ""}>
                  {ago(job.ended_ms ?? job.created_ms, now)}
                </Line>
              )}
            </JobCard>
          )}
        </div>
        <div className={css.column}>
          {data.waiting.length > 0 && (
            <JobCard title="Waiting" to="/jobs?view=queue" jobs={data.waiting}>
              {(job) => (
                <Line key={job.id} job={job} under={whyOf(job, now).replace(/^#\d+, /, "")}>
                  <span>{plural(Number(workersOf(job).split("–")[0]), "worker")}</span>
                  {job.reason?.place && (
                    <span className={css.place} aria-label={`place ${job.reason.place} in the queue`} role="img">
                      {job.reason.place}
                    </span>
                  )}
                </Line>
              )}
            </JobCard>
          )}
          {data.findings.length > 0 && (
            <Card title="Findings">
              <ul>
                {data.findings.slice(0, 8).map((finding, index) => (
                  <li key={index} className={css.line}>
                    <div className={css.name}>
                      <span className={toneClass(SEVERITY_TONES[finding.severity] ?? "grey")}>{finding.rule}</span>
                      <Link href={`/jobs/${finding.job}/findings`}>{finding.name}</Link>
                    </div>
                    <div className={css.under}>{finding.text}</div>
                    <div className={css.side}>{ago(finding.last_ms, now)}</div>
                  </li>
                ))}
              </ul>
            </Card>
          )}
        </div>
      </div>
    </>
  );
}

function Figures({ data }: { data: OverviewAnswer }) {
  const { total, used } = data.capacity;
  const sum = (states: readonly JobState[]): number => states.reduce((all, state) => all + (data.counts[state] ?? 0), 0);
  const { up, drained, lost } = data.hosts;
  const odd = [drained && `${drained} drained`, lost && `${lost} lost`].filter(Boolean).join(", ");
  return (
    <div className={css.figures}>
      <Figure to="/jobs?state=active" value={sum(ACTIVE)} shape="running" text="running" />
      <Figure to="/jobs?view=queue" value={sum(WAITING)} shape="queued" text="waiting" />
      <Figure to="/jobs?state=failed" value={data.counts["failed"] ?? 0} shape="failed" text="failed" />
      <Link href="/hosts" className={css.figure}>
        <b>
          {up}
          <small> of {up + drained + lost}</small>
        </b>
        <span>hosts up{odd ? `, ${odd}` : ""}</span>
      </Link>
      {total.gpus! > 0 ? (
        <Use text="GPUs in use" used={used.gpus!} total={total.gpus!} />
      ) : (
        <Use text={used.memory_bytes! > 0 ? `cores in use, ${bytes(used.memory_bytes!)}` : "cores in use"} used={used.cpus!} total={total.cpus!} />
      )}
    </div>
  );
}

function Figure({ to, value, shape, text }: { to: string; value: number; shape: JobState; text: string }) {
  return (
    <Link href={to} className={css.figure}>
      <b>{count(value)}</b>
      <span>
        <StateMarkShape state={shape} /> {text}
      </span>
    </Link>
  );
}

function StateMarkShape({ state }: { state: JobState }) {
  const tones = { running: "blue", queued: "amber", failed: "orange" } as const;
  return (
    <span className={toneClass(tones[state as keyof typeof tones])} style={{ display: "inline-flex" }}>
      <StateShape state={state} />
    </span>
  );
}

function Use({ text, used, total }: { text: string; used: number; total: number }) {
  return (
    <Link href="/hosts" className={css.figure}>
      <b>
        {number(Number(used.toFixed(1)))}
        <small> of {count(Math.round(total))}</small>
      </b>
      <span>{text}</span>
      <Bar share={total ? used / total : 0} label={`${percent(total ? used / total : 0)} in use`} />
    </Link>
  );
}

function JobCard({ title, to, jobs, children }: { title: string; to: string; jobs: JobView[]; children: (job: JobView) => ReactNode }) {
  return (
    <Card title={title} extra={<Link href={to}>Show all</Link>}>
      <ul>{jobs.map(children)}</ul>
    </Card>
  );
}

function Line({ job, under, children }: { job: JobView; under: string; children?: ReactNode }) {
  const plain = job.state === "running" || job.state === "queued" || job.state === "failed";
  return (
    <li className={css.line}>
      <div className={css.name}>
        <Link href={`/jobs/${job.id}`}>{job.name}</Link>
        {!plain && <StateMark state={job.state} />}
      </div>
      <div className={css.under}>{under}</div>
      <div className={css.side}>{children}</div>
    </li>
  );
}
