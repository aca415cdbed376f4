/** One job as a row of the table. */
import { memo, useState } from "react";
import { Link } from "wouter";
import type { JobView } from "../../api/types";
import { Icon } from "../../parts/icons";
import { Sparkline } from "../../parts/sparkline";
import { ACTIVE, StateMark, WAITING } from "../../parts/state";
import { ago, duration, moment, number, until } from "../../text/format";
import type { ColumnKey } from "./columns";
import css from "./jobs.module.css";

const DRAGGED = "application/x-weft-job";

/** Returns how long a job ran, waits, or will still take. */
export function timeOf(job: JobView, now: number): string {
  if (job.ended_ms !== null) return job.started_ms === null ? "–" : duration(job.ended_ms - job.started_ms);
  if (job.started_ms === null || !ACTIVE.includes(job.state)) return `waits ${duration(now - job.queued_ms)}`;
  const ran = now - job.started_ms;
  if (job.progress && job.progress > 0.02 && job.progress < 1) {
    const left = (ran / job.progress) * (1 - job.progress);
    return `${shorter(duration(ran))}, ${shorter(duration(left))} left`;
  }
  return duration(ran);
}

const shorter = (text: string): string => text.replace(/( m) \d+ s$/, "$1");

/** Returns why a job waits, why it failed, or when it came. */
export function whyOf(job: JobView, now: number): string {
  if (job.reason) {
    const place = job.reason.place ? `#${job.reason.place}, ` : "";
    const start = job.reason.earliest_ms ? `, start ${until(job.reason.earliest_ms, now)}` : "";
    return `${place}${job.reason.text}${start}`;
  }
  if (job.state === "failed" && job.message) return job.message;
  return ago(job.ended_ms ?? job.created_ms, now);
}

export function workersOf(job: JobView): string {
  const wish = job.min_workers === job.max_workers ? `${job.max_workers}` : `${job.min_workers}–${job.max_workers}`;
  return job.workers ? (job.min_workers === job.max_workers ? `${job.workers}` : `${job.workers} of ${wish}`) : wish;
}

export interface RowProps {
  job: JobView;
  index: number;
  top: number;
  active: boolean;
  selected: boolean;
  queue: boolean;
  now: number;
  onSelect: (job: JobView, range: boolean) => void;
  onFilter: (name: "user" | "project", value: string) => void;
  onPriority: (job: JobView, change: number) => void;
  onPlace: (moved: number, before: JobView) => void;
  hidden: ReadonlySet<ColumnKey>;
}

export const JobRow = memo(function JobRow(props: RowProps) {
  const { job, index, top, active, selected, queue, now, hidden } = props;
  const [over, setOver] = useState(false);
  const dragged = queue && job.mine && WAITING.includes(job.state);
  const why = whyOf(job, now);
  return (
    <div
      role="row"
      id={`job-row-${job.id}`}
      aria-rowindex={index + 2}
      aria-selected={selected}
      data-active={active}
      data-over={over}
      draggable={dragged}
      onDragStart={(event) => {
        event.dataTransfer.setData(DRAGGED, String(job.id));
        event.dataTransfer.effectAllowed = "move";
      }}
      onDragOver={(event) => {
        if (!queue || !event.dataTransfer.types.includes(DRAGGED)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        props.onPlace(Number(event.dataTransfer.getData(DRAGGED)), job);
      }}
      className={css.row}
      style={{ transform: `translateY(${top}px)` }}
    >
      <div role="gridcell" className={css.select}>
        <input
          type="checkbox"
          checked={selected}
          aria-label={`select job ${job.id}`}
          onChange={(event) => props.onSelect(job, (event.nativeEvent as MouseEvent).shiftKey)}
        />
      </div>
      <div role="gridcell" className={css.stateCell}>
        <StateMark state={job.state} wanted={job.wanted} />
      </div>
      <div role="gridcell" className={css.name}>
        <span className={css.id}>{job.id}</span>
        <Link href={`/jobs/${job.id}`} title={job.name}>
          {job.name}
        </Link>
        {job.pinned && <Icon name="pin" size={12} />}
      </div>
      {!hidden.has("project") && (
        <div role="gridcell" className={`${css.wide} ${css.narrow}`}>
          <button type="button" className={css.filterLink} onClick={() => props.onFilter("project", job.project)}>
            {job.project}
          </button>
        </div>
      )}
      {!hidden.has("user") && (
        <div role="gridcell" className={`${css.wide} ${css.narrow}`}>
          <button type="button" className={css.filterLink} onClick={() => props.onFilter("user", job.user)}>
            {job.user}
          </button>
        </div>
      )}
      {queue ? (
        <div role="gridcell" className={`${css.priority} ${css.narrow}`}>
          <button type="button" className={css.step} aria-label={`lower the priority of job ${job.id}`} onClick={() => props.onPriority(job, -10)}>
            <Icon name="down" size={12} />
          </button>
          {job.priority}
          <button type="button" className={css.step} aria-label={`raise the priority of job ${job.id}`} onClick={() => props.onPriority(job, 10)}>
            <Icon name="up" size={12} />
          </button>
        </div>
      ) : null}
      {!hidden.has("workers") && (
        <div role="gridcell" className={`${css.quiet} ${css.narrow}`}>
          {workersOf(job)}
        </div>
      )}
      {queue || hidden.has("metric") ? null : (
        <div role="gridcell" className={css.metric}>
          {job.headline && (
            <>
              <Sparkline values={job.headline.values} label={`${job.headline.name} so far`} width={64} />
              <span className={css.narrow} title={job.headline.name}>
                {typeof job.headline.last === "string" ? job.headline.last : number(job.headline.last)}
              </span>
            </>
          )}
        </div>
      )}
      {!hidden.has("time") && (
        <div role="gridcell" className={`${css.time} ${css.quiet}`} title={moment(job.created_ms)}>
          {timeOf(job, now)}
        </div>
      )}
      {!hidden.has("why") && (
        <div role="gridcell" className={`${css.why} ${job.state === "failed" ? css.orange : css.faint}`} title={why}>
          {why}
        </div>
      )}
    </div>
  );
});
