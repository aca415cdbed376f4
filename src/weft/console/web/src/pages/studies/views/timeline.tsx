/** The timeline of a study: when each trial ran, in slots or on hosts, and how each part of it ended. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { get } from "../../../api/client";
import type { JobDetail, TrialView } from "../../../api/types";
import { Button, Segments, useNow, Wrong } from "../../../parts/controls";
import { Card, layout, Skeleton } from "../../../parts/layout";
import { useParam, useSetParams } from "../../../text/address";
import { plural } from "../../../text/format";
import { packLanes, type Span } from "../../../text/studies";
import { useSpans } from "../live";
import { Plot, useTones, type Frame, type Mark } from "../plot";
import css from "../studies.module.css";
import { tipOf, useByNumber, type StudyProps } from "../view";

const MOST_JOBS = 120; // whose hosts are asked for

export default function TimelineTab({ id, trials, metric, chosen, choose, detail }: StudyProps) {
  const spans = useSpans(id);
  const now = useNow(2000);
  const tones = useTones();
  const [by, setBy] = useParam("lanes", "slots");
  const [zoomText] = useParam("span");
  const setParams = useSetParams();
  const found = useByNumber(trials);
  const all = useMemo(() => spans.data?.spans ?? [], [spans.data]);
  const hosts = useHostsOf(trials, by === "hosts");
  const running = detail.study.state === "running";
  const end = running ? now : all.reduce((last, span) => Math.max(last, span.end_ms ?? span.start_ms), 0);
  const { lanes, laneOf } = useMemo(() => laneNames(all, end, by === "hosts" ? hosts.data ?? new Map() : null), [all, end, by, hosts.data]);
  const start = all.reduce((first, span) => Math.min(first, span.start_ms), Infinity);
  const x = useMemo(() => {
    const [low, high] = zoomText.split("-").map((text) => start + Number(text) * 1000);
    return { name: "time", log: false, words: null, low: zoomText ? low! : start, high: zoomText ? high! : Math.max(end, start + 1000) };
  }, [zoomText, start, end]);
  const y = useMemo(() => ({ name: "lane", log: false, words: null, low: 0, high: Math.max(1, lanes.length) }), [lanes.length]);
  const draw = useCallback(
    (context: CanvasRenderingContext2D, frame: Frame): Mark[] => {
      const marks: Mark[] = [];
      const high = frame.height / Math.max(1, lanes.length);
      all.forEach((span, index) => {
        const [from, to] = [frame.x(span.start_ms)!, frame.x(span.end_ms ?? end)!];
        if (to < frame.left || from > frame.left + frame.width) return;
        const top = frame.top + laneOf[index]! * high + high * 0.12;
        const tall = Math.max(1.5, high * 0.76);
        const wide = Math.max(1, to - from - 0.5);
        const state = span.end === "lost" ? "failed" : span.end;
        context.fillStyle = tones[state];
        context.globalAlpha = 0.8;
        context.fillRect(from, top, wide, tall);
        context.globalAlpha = 1;
        // A part after a promotion has an edge at its start, one that ended in a pause a light end.
        if (span.part > 0 && wide > 8) {
          context.fillStyle = tones.ink;
          context.fillRect(from, top, 3, tall);
        }
        if (span.end === "paused" && wide > 5) {
          context.fillStyle = tones.surface;
          context.fillRect(from + wide - 3, top + tall * 0.15, 1.2, tall * 0.7);
        }
        if (wide > 24 && tall > 10) {
          context.fillStyle = tones.surface;
          context.font = "11px 'Plex Sans', sans-serif";
          context.textBaseline = "middle";
          context.textAlign = "left";
          context.fillText(String(span.trial), from + 5, top + tall / 2 + 0.5, wide - 6);
        }
        for (let px = from + 2; px < from + wide; px += 12) marks.push({ trial: span.trial, x: px, y: top + tall / 2 });
      });
      return marks;
    },
    [all, lanes, laneOf, end, tones],
  );
  if (spans.error) return <Wrong error={spans.error} />;
  if (!spans.data) return <Skeleton lines={6} />;
  if (all.length === 0) return <p className={layout.note}>No trial has run yet.</p>;
  const busy = all.reduce((sum, span) => sum + (span.end_ms ?? end) - span.start_ms, 0);
  const slots = Math.max(1, Number(detail.config["parallel"] ?? 1));
  return (
    <div className={css.stack}>
      <div className={css.tools}>
        <Segments label="Rows" value={by} options={[["slots", "Slots"], ["hosts", "Hosts"]] as const} onChange={setBy} />
        {zoomText && <Button small icon="close" onClick={() => setParams({ span: "" })}>All of the time</Button>}
        <span className={layout.note}>
          {plural(all.length, "part")} of {plural(trials.length, "trial")}; slots were busy {Math.round(Math.min(1, busy / Math.max(1, (end - start) * slots)) * 100)} % of the time
        </span>
      </div>
      {hosts.error ? <Wrong error={hosts.error} /> : null}
      <Card label="Timeline">
        <Plot
          title="Trials over time" time since_ms={start} xName="since the first trial began"
          label={`${plural(all.length, "part")} of trials on ${plural(lanes.length, "row")}; the table has the times of each trial`}
          x={x} y={y} lanes={lanes} height={Math.min(620, Math.max(160, lanes.length * 24 + 40))} draw={draw} chosen={chosen} onPick={choose} tip={tipOf(found, metric)}
          onZoom={(low, high) => setParams({ span: Number.isFinite(low) ? `${Math.floor((low - start) / 1000)}-${Math.ceil((high - start) / 1000)}` : "" })}
          extra={
            <ul className={css.legend} aria-label="How parts of trials are drawn">
              <li><i data-kind="running" />running</li><li><i data-kind="paused" />ended in a pause</li><li><i data-kind="completed" />completed</li><li><i data-kind="stopped" />stopped</li><li>edge at the start: promoted</li>
            </ul>
          }
        />
        {by === "hosts" && <p className={layout.note}>{hosts.isPending ? "Hosts are being asked for. " : ""}Hosts are those of each trial's job, of the last {MOST_JOBS} trials; others are in rows without a host.</p>}
      </Card>
    </div>
  );
}

/** Returns the names of rows and the row of each span: slots, or hosts with as many rows as each needs. */
export function laneNames(spans: readonly Span[], now_ms: number, hosts: Map<number, string> | null): { lanes: string[]; laneOf: number[] } {
  if (!hosts) {
    const laneOf = packLanes(spans, now_ms);
    return { lanes: Array.from({ length: laneOf.reduce((most, lane) => Math.max(most, lane + 1), 0) }, (_, lane) => `slot ${lane + 1}`), laneOf };
  }
  const groups = new Map<string, number[]>();
  spans.forEach((span, index) => {
    const host = hosts.get(span.trial) ?? "no host";
    groups.set(host, [...(groups.get(host) ?? []), index]);
  });
  const lanes: string[] = [];
  const laneOf = new Array<number>(spans.length).fill(0);
  for (const [host, members] of [...groups].sort(([a], [b]) => a.localeCompare(b))) {
    const packed = packLanes(members.map((index) => spans[index]!), now_ms);
    packed.forEach((lane, place) => (laneOf[members[place]!] = lanes.length + lane));
    const needed = Math.max(...packed) + 1;
    for (let lane = 0; lane < needed; lane += 1) lanes.push(lane === 0 ? host : "");
  }
  return { lanes, laneOf };
}

/** Returns the host of each trial's job; jobs that are over are asked for once. */
function useHostsOf(trials: TrialView[], on: boolean) {
  const wanted = trials.filter((trial) => trial.job_id).slice(-MOST_JOBS);
  return useQuery({
    queryKey: ["study-hosts", wanted.map((trial) => `${trial.job_id}:${trial.starts}`).join()],
    enabled: on,
    staleTime: Infinity,
    queryFn: async ({ signal }) => {
      const found = new Map<number, string>();
      const rest = [...wanted];
      const work = async (): Promise<void> => {
        for (let trial = rest.pop(); trial; trial = rest.pop()) {
          const job = await get<JobDetail>(`/jobs/${trial.job_id}`, {}, signal).catch(() => null);
          const shares = job?.hosts.length ? job.hosts : (job?.attempts.at(-1)?.hosts ?? []);
          if (shares[0]) found.set(trial.number, shares.map((share) => share.host).join(" "));
        }
      };
      await Promise.all(Array.from({ length: 6 }, work));
      return found;
    },
  });
}
