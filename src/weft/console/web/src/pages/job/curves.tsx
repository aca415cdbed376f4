/** Curves of a job: live, smoothed, on a step or time axis, zoomed by dragging; the address keeps all of it. */
import { useMemo } from "react";
import { useCurves } from "../../api/queries";
import type { JobDetail } from "../../api/types";
import { Chart } from "../../parts/chart";
import { Button, Segments, Wrong } from "../../parts/controls";
import { Empty, Skeleton } from "../../parts/layout";
import { ACTIVE } from "../../parts/state";
import { useParam } from "../../text/address";
import { extend, groupMetrics, parseZoom, type Line, type XAxis } from "../../text/curves";
import css from "./job.module.css";
import { useLivePoints } from "./live";

const POINTS = 1000;
const AXES = [["step", "Step"], ["relative", "Elapsed"], ["time", "Clock"]] as const;

/** Tools above charts; without steps where the metrics have none, as those of the system. */
export function ChartTools({ steps = true }: { steps?: boolean }) {
  const [axis, setAxis] = useParam("x", steps ? "step" : "relative");
  const [log, setLog] = useParam("y", "linear");
  const [smoothing, setSmoothing] = useParam("smooth", "0");
  const [zoom, setZoom] = useParam("zoom");
  return (
    <div className={css.tools} role="toolbar" aria-label="Charts">
      <Segments
        label="Horizontal axis"
        value={axis}
        options={steps ? AXES : AXES.slice(1)}
        onChange={setAxis}
      />
      <Segments label="Vertical axis" value={log} options={[["linear", "Linear"], ["log", "Log"]] as const} onChange={setLog} />
      <label>
        Smoothing
        <input
          type="range"
          min={0}
          max={0.98}
          step={0.02}
          value={smoothing}
          onChange={(event) => setSmoothing(event.target.value)}
        />
        <output>{Number(smoothing).toFixed(2)}</output>
      </label>
      {zoom && (
        <Button small icon="close" onClick={() => setZoom("")}>
          {steps ? `Steps ${zoom.replace("-", " to ")}` : "All of it"}
        </Button>
      )}
    </div>
  );
}

/** Returns what the tools above charts are set to. */
export function useChartView(steps: boolean = true) {
  const [axis] = useParam("x", steps ? "step" : "relative");
  const [scale] = useParam("y", "linear");
  const [smoothing] = useParam("smooth", "0");
  const [text, setZoom] = useParam("zoom");
  const zoom = useMemo(() => parseZoom(text), [text]);
  return {
    axis: axis as XAxis,
    log: scale === "log",
    smoothing: Math.min(0.99, Number(smoothing) || 0),
    zoom,
    setZoom: (range: { first: number; last: number } | null) => setZoom(range && range.last > range.first ? `${range.first}-${range.last}` : ""),
  };
}

export function MetricCharts({ job, names, system = false }: { job: JobDetail; names: string[]; system?: boolean }) {
  const view = useChartView(!system);
  const curves = useCurves(job.id, names, { first: view.zoom?.first, last: view.zoom?.last }, POINTS);
  const points = useLivePoints(job.id, ACTIVE.includes(job.state));
  const groups = useMemo(() => (system ? names.map((name) => ({ key: name, names: [name] })) : groupMetrics(names)), [names, system]);
  if (curves.error) return <Wrong error={curves.error} />;
  if (!curves.data) return <Skeleton lines={6} />;
  const found = new Map(curves.data.curves.map((curve) => [curve.name, curve]));
  const open = view.zoom?.last ?? Infinity;
  return (
    <div className={css.charts}>
      {groups.map((group) => {
        const lines: Line[] = group.names.flatMap((name, index) => {
          const curve = found.get(name);
          if (!curve) return [];
          const fresh = (points[name] ?? []).filter(([step]) => step <= open);
          return [{ label: system ? systemTitle(name) : name, colour: index, curve: extend(curve, fresh), start_ms: job.started_ms }];
        });
        return (
          <Chart
            key={group.key}
            title={system ? systemTitle(group.key) : group.names.length > 1 ? group.key : group.names[0]!}
            metric={group.names[0]!}
            lines={lines}
            axis={view.axis}
            smoothing={view.smoothing}
            log={view.log}
            zoom={view.zoom}
            onZoom={view.setZoom}
          />
        );
      })}
    </div>
  );
}

export default function CurvesTab({ job }: { job: JobDetail }) {
  const [filter, setFilter] = useParam("metric");
  const all = useMemo(() => job.metrics.map((metric) => metric.name).filter((name) => !name.startsWith("system/")), [job.metrics]);
  const names = useMemo(() => all.filter((name) => matches(name, filter)).slice(0, 60), [all, filter]);
  if (all.length === 0)
    return (
      <Empty
        title={ACTIVE.includes(job.state) ? "Nothing logged so far" : "It logged no metrics"}
        text="One line in the training loop fills this page while the job runs; TensorBoard files and MLflow calls are read too."
        commands={["weft.log(step=step, loss=loss)"]}
      />
    );
  return (
    <div className={css.stack}>
      <div className={css.tools}>
        <ChartTools />
        <input
          className={css.push}
          type="search"
          aria-label="Find metrics"
          placeholder={`Find among ${all.length} metrics`}
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
        />
      </div>
      <MetricCharts job={job} names={names} />
    </div>
  );
}

const SYSTEM: Record<string, string> = {
  cpu: "Processors",
  memory: "Memory, share of the host",
  memory_bytes: "Memory",
  disk_bytes_s: "Disk",
  net_bytes_s: "Network of the host",
  gpu: "Accelerators",
  gpu_memory: "Accelerator memory, share",
  gpu_memory_bytes: "Accelerator memory",
};

/** Returns a metric of the system in words: system/cpu@gx01 is "Processors, gx01". */
export function systemTitle(name: string): string {
  const [key, host] = name.replace("system/", "").split("@") as [string, string | undefined];
  return `${SYSTEM[key] ?? key}${host ? `, ${host}` : ""}`;
}

/** Returns whether a name has the text in it, or matches it as a regular expression. */
export function matches(name: string, filter: string): boolean {
  if (!filter || name.includes(filter)) return true;
  try {
    return new RegExp(filter, "i").test(name);
  } catch {
    return false;
  }
}
