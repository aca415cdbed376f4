/** Events and attempts of a job: its life, newest last, in words. */
import { useMemo, useState } from "react";
import { useEvents } from "../../api/queries";
import type { EventView, JobDetail } from "../../api/types";
import { Button, Wrong } from "../../parts/controls";
import { Card, layout, Skeleton } from "../../parts/layout";
import { clock, duration, moment } from "../../text/format";
import { folded, happened } from "../../text/happened";
import css from "./job.module.css";

export default function EventsTab({ job }: { job: JobDetail }) {
  const events = useEvents(job.id);
  const [all, setAll] = useState(false);
  const groups = useMemo(() => folded(events.data?.events ?? [], all), [events.data, all]);
  if (events.error) return <Wrong error={events.error} />;
  if (!events.data) return <Skeleton lines={6} />;
  const first: EventView = { id: 0, time_ms: job.created_ms, kind: "submitted", data: { user: job.user } };
  const shown = events.data.events.some((event) => event.kind === "submitted") ? groups : [{ event: first, left: 0 }, ...groups];
  let day = "";
  return (
    <div className={css.stack}>
      {job.attempts.length > 0 && (
        <Card title="Attempts">
          <div className={layout.scroll}>
            <table className={layout.table}>
              <thead>
                <tr><th>Attempt</th><th>Began</th><th>Took</th><th>Hosts</th><th>Ended with</th></tr>
              </thead>
              <tbody>
                {job.attempts.map((attempt) => (
                  <tr key={attempt.number}>
                    <td>{attempt.number}</td>
                    <td>{moment(attempt.started_ms)}</td>
                    <td>{attempt.ended_ms === null ? "goes on" : duration(attempt.ended_ms - attempt.started_ms)}</td>
                    <td>{attempt.hosts.map((share) => `${share.host} ×${share.workers}`).join(", ") || "–"}</td>
                    <td>{attempt.ended_ms === null ? "–" : `${attempt.code ?? "no code"}${attempt.message ? `: ${attempt.message}` : ""}`}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      <Card title="Events">
        <ol className={css.timeline}>
          {shown.map(({ event, left }) => {
            const words = happened(event);
            const today = moment(event.time_ms).slice(0, 10);
            const turned = today !== day;
            day = today;
            return (
              <li key={event.id}>
                <time title={moment(event.time_ms)}>
                  {turned && <>{today}<br /></>}
                  {clock(event.time_ms)}
                </time>
                <span className={css.knot} style={{ borderColor: `var(--${words.tone})` }} />
                <p>
                  {words.head} {words.more && <small>{words.more}</small>}
                  {left > 0 && <Button small kind="quiet" onClick={() => setAll(true)}>{left} more reports before it</Button>}
                </p>
              </li>
            );
          })}
        </ol>
      </Card>
    </div>
  );
}
