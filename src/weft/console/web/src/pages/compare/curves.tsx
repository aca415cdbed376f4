/** Curves of several jobs, one chart a metric; jobs may be gathered into groups, drawn as means within bands. */
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { get } from "../../api/client";
import type { CurvesAnswer, CurveView, JobDetail } from "../../api/types";
import { Chart } from "../../parts/chart";
import { Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { groupCurve } from "../../text/compare";
import type { Line } from "../../text/curves";
import { ChartTools, matches, useChartView } from "../job/curves";
import job_css from "../job/job.module.css";
import css from "./compare.module.css";

export function CompareCurves({ jobs }: { jobs: JobDetail[] }) {
  const view = useChartView();
  const [filter, setFilter] = useParam("metric");
  const [group, setGroup] = useParam("group");
  const names = useMemo(() => {
    const all = new Set(jobs.flatMap((job) => job.metrics.map((metric) => metric.name)).filter((name) => !name.startsWith("system/")));
    return [...all].filter((name) => matches(name, filter)).slice(0, 24);
  }, [jobs, filter]);
  const results = useQueries({
    queries: jobs.map((job) => ({
      queryKey: ["job", job.id, "curves", names, view.zoom, 600],
      queryFn: () => get<CurvesAnswer>(`/jobs/${job.id}/curves`, { names: names.join(","), first_step: view.zoom?.first, last_step: view.zoom?.last, points: 600 }),
      enabled: names.length > 0,
      staleTime: 30_000,
    })),
  });
  const keys = useMemo(() => groupKeys(jobs), [jobs]);
  const ready = results.every((result) => result.data || result.error);
  if (!ready && names.length > 0) return <Skeleton lines={6} />;
  const curveOf = (index: number, name: string): CurveView | undefined => results[index]?.data?.curves.find((curve) => curve.name === name && curve.steps.length > 0);
  return (
    <div className={job_css.stack}>
      <div className={css.tools}>
        <ChartTools />
        <label>
          Group by{" "}
          <select value={group} onChange={(event) => setGroup(event.target.value)}>
            <option value="">nothing</option>
            {keys.map((key) => <option key={key}>{key}</option>)}
          </select>
        </label>
        <input className={css.push} type="search" aria-label="Find metrics" placeholder="Find metrics" value={filter} onChange={(event) => setFilter(event.target.value)} />
      </div>
      <div className={job_css.charts}>
        {names.map((name) => (
          <Chart key={name} title={name} lines={linesOf(jobs, name, group, curveOf)} axis={view.axis} smoothing={view.smoothing} log={view.log} zoom={view.zoom} onZoom={view.setZoom} height={220} />
        ))}
      </div>
    </div>
  );
}

function linesOf(jobs: JobDetail[], name: string, group: string, curveOf: (index: number, name: string) => CurveView | undefined): Line[] {
  if (!group) {
    return jobs.flatMap((job, index) => {
      const curve = curveOf(index, name);
      return curve ? [{ label: `${job.id} ${job.name}`, colour: index, curve, start_ms: job.started_ms }] : [];
    });
  }
  const values = [...new Set(jobs.map((job) => groupValue(job, group)))];
  return values.flatMap((value, colour) => {
    const members = jobs.flatMap((job, index) => (groupValue(job, group) === value ? (curveOf(index, name) ?? []) : []));
    return members.length ? [{ label: `${group} ${value} (${members.length})`, colour, curve: groupCurve(members), start_ms: null }] : [];
  });
}

const FIELDS = ["user", "project", "name"] as const;

function groupValue(job: JobDetail, key: string): string {
  if ((FIELDS as readonly string[]).includes(key)) return String(job[key as (typeof FIELDS)[number]]);
  return job.params[key] ?? job.tags[key] ?? "–";
}

/** Returns what jobs may be grouped by: fields that at least two jobs share and that are not the same for all. */
export function groupKeys(jobs: JobDetail[]): string[] {
  const keys = new Set<string>([...FIELDS, ...jobs.flatMap((job) => [...Object.keys(job.params), ...Object.keys(job.tags)])]);
  return [...keys].filter((key) => {
    const values = new Set(jobs.map((job) => groupValue(job, key)));
    return values.size > 1 && values.size < jobs.length;
  });
}
