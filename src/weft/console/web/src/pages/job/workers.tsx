/** Workers of a job: a heat strip of step times by rank, time spent waiting for peers, views, pauses, the ledger. */
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { JobDetail, LedgerView, RanksAnswer, TimelineView } from "../../api/types";
import { Bar, Card, Empty, layout, Skeleton } from "../../parts/layout";
import { ACTIVE, toneClass } from "../../parts/state";
import { bytes, clock, count, number, percent, plural } from "../../text/format";
import { median, shade } from "../../text/heat";
import css from "./heat.module.css";
import job_css from "./job.module.css";

interface Change {
  view: number;
  kind: string;
  cause: string;
  detected_t: number;
  pause_s: number | null;
  agreed_s: number | null;
  healed_bytes: number;
  step: number | null;
  after: string[];
  joined: string[];
  left: string[];
}

export default function WorkersTab({ job }: { job: JobDetail }) {
  const live = ACTIVE.includes(job.state) ? 2000 : false;
  const ranks = useQuery({ queryKey: ["job", job.id, "ranks"], queryFn: () => get<RanksAnswer>(`/jobs/${job.id}/ranks`), refetchInterval: live });
  const timeline = useQuery({ queryKey: ["job", job.id, "timeline"], queryFn: () => get<TimelineView>(`/jobs/${job.id}/timeline`) });
  const ledger = useQuery({ queryKey: ["job", job.id, "ledger"], queryFn: () => get<LedgerView>(`/jobs/${job.id}/ledger`) });
  if (job.attempts.length === 0)
    return <Empty title="No workers yet" text="When it runs, this shows how long each rank takes for a step, and every change of who takes part." commands={[`weft job show ${job.id}`]} />;
  if (ranks.isPending || timeline.isPending || ledger.isPending) return <Skeleton lines={6} />;
  const rows = (ranks.data?.ranks ?? []).filter((rank) => rank.values.some((value) => value !== null));
  const changes = (timeline.data?.items ?? []) as unknown as Change[];
  const nothing = rows.length === 0 && changes.length === 0 && !ledger.data?.elastic;
  if (nothing) return <WithoutSteps job={job} ranks={ranks.data?.ranks ?? []} />;
  return (
    <div className={job_css.stack}>
      {rows.length > 0 && <HeatCard ranks={{ ...ranks.data!, ranks: rows }} />}
      {ledger.data?.elastic && <LedgerCard ledger={ledger.data} />}
      {changes.length > 0 && <ViewsCard changes={changes} />}
    </div>
  );
}

/** Workers that tell nothing of their steps: where they are, and the line that would tell more. */
function WithoutSteps({ job, ranks }: { job: JobDetail; ranks: RanksAnswer["ranks"] }) {
  const shares = job.attempts.at(-1)?.hosts ?? [];
  return (
    <div className={job_css.stack}>
      <Card title="Workers">
        <div className={layout.scroll}>
          <table className={layout.table}>
            <thead>
              <tr><th>Host</th><th>Ranks</th><th className={layout.number}>Workers</th></tr>
            </thead>
            <tbody>
              {shares.map((share) => (
                <tr key={share.host}>
                  <td>{share.host}</td>
                  <td>{ranks.filter((rank) => rank.host === share.host).map((rank) => rank.rank).join(", ") || "–"}</td>
                  <td className={layout.number}>{share.workers}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Card>
      <Empty title="No step times" text="Workers whose torch optimizer steps tell how long that takes by themselves; others log it." commands={["weft.log(step=step, step_s=seconds)"]} />
    </div>
  );
}

function HeatCard({ ranks }: { ranks: RanksAnswer }) {
  const usual = median(ranks.ranks.flatMap((rank) => rank.values));
  const slowest = ranks.ranks.reduce((most, rank) => ((rank.step_ms ?? 0) > (most.step_ms ?? 0) ? rank : most));
  return (
    <Card title="Time of the last steps, by rank" extra={<HeatKey />}>
      <div className={job_css.stack}>
        <div className={css.scroll} tabIndex={0} role="group" aria-label="Heat strip of ranks">
          <div className={css.strip}>
            {ranks.ranks.map((rank) => (
              <Row key={rank.rank} rank={rank} usual={usual} />
            ))}
          </div>
        </div>
        <p className={layout.note}>
          A step takes {number(usual)} ms in the median; rank {slowest.rank} on {slowest.host} is slowest with {number(slowest.step_ms)} ms.
        </p>
        {ranks.exposed_share !== null && (
          <div className={css.share}>
            <span>{percent(ranks.exposed_share)} of a step is spent waiting for peers</span>
            <Bar share={ranks.exposed_share} label={`communication: ${percent(ranks.exposed_share)}`} tone={ranks.exposed_share > 0.3 ? "var(--orange)" : "var(--blue)"} />
          </div>
        )}
      </div>
    </Card>
  );
}

function Row({ rank, usual }: { rank: RanksAnswer["ranks"][number]; usual: number }) {
  const wide = rank.values.length || 1;
  const ratio = usual > 0 && rank.step_ms ? rank.step_ms / usual : null;
  return (
    <>
      <span className={css.who}>
        {rank.rank} <small>{rank.host}</small>
      </span>
      <svg className={css.cells} viewBox={`0 0 ${wide} 1`} preserveAspectRatio="none" role="img" aria-label={`rank ${rank.rank} on ${rank.host}: ${number(rank.step_ms)} ms a step`} shapeRendering="crispEdges">
        {rank.values.map((value, index) => {
          const level = shade(value, usual);
          return level === null ? null : <rect key={index} x={index} y={0} width={1} height={1} fill={`var(--heat-${level})`} />;
        })}
      </svg>
      <span className={css.value}>
        {number(rank.step_ms)} ms{ratio && ratio >= 1.4 ? <b className={toneClass("orange")}> ×{number(Number(ratio.toFixed(2)))}</b> : null}
      </span>
    </>
  );
}

function HeatKey() {
  return (
    <span className={css.key}>
      faster
      {[0, 1, 2, 3, 4, 5].map((level) => (
        <i key={level} style={{ background: `var(--heat-${level})` }} />
      ))}
      slower
    </span>
  );
}

function LedgerCard({ ledger }: { ledger: LedgerView }) {
  const tones = { whole: "green", broken: "orange", running: "blue", none: "grey" } as const;
  const words = { whole: "Whole", broken: "Broken", running: "So far whole", none: "None" } as const;
  return (
    <Card title="Ledger of samples">
      <p className={css.verdict}>
        <b className={toneClass(tones[ledger.verdict])}>{words[ledger.verdict]}</b>
        <span>
          {ledger.text}: {plural(ledger.steps, "step")}, {plural(ledger.samples, "sample")}
        </span>
      </p>
      <ul>
        {ledger.problems.map((problem) => (
          <li key={problem}>{problem}</li>
        ))}
      </ul>
    </Card>
  );
}

function ViewsCard({ changes }: { changes: Change[] }) {
  const pauses = changes.reduce((sum, change) => sum + (change.pause_s ?? 0), 0);
  return (
    <Card title="Changes of who takes part" extra={<span className={layout.note}>{number(Number(pauses.toFixed(2)))} s paused in all</span>}>
      <div className={layout.scroll}>
        <table className={layout.table}>
          <thead>
            <tr>
              <th>When</th>
              <th>What</th>
              <th>Why</th>
              <th className={layout.number}>Workers</th>
              <th className={layout.number}>Pause</th>
              <th className={layout.number}>Sent to heal</th>
              <th className={layout.number}>At step</th>
            </tr>
          </thead>
          <tbody>
            {changes.map((change) => (
              <tr key={change.view}>
                <td>{clock(change.detected_t * 1000)}</td>
                <td>{change.kind}</td>
                <td>
                  {change.cause}
                  {change.left.length > 0 && <div className={layout.note}>left: {change.left.join(", ")}</div>}
                  {change.joined.length > 0 && change.kind !== "start" && <div className={layout.note}>joined: {change.joined.join(", ")}</div>}
                </td>
                <td className={layout.number}>{change.after.length}</td>
                <td className={layout.number}>{change.pause_s === null ? "–" : `${number(Number(change.pause_s.toFixed(2)))} s`}</td>
                <td className={layout.number}>{change.healed_bytes ? bytes(change.healed_bytes) : "–"}</td>
                <td className={layout.number}>{change.step === null ? "–" : count(change.step)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
