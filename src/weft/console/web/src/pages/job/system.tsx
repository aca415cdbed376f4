/** What a job takes of its hosts: processors, memory, disk, network, accelerators. */
import { useMemo } from "react";
import type { JobDetail } from "../../api/types";
import { Empty } from "../../parts/layout";
import { ChartTools, MetricCharts } from "./curves";
import css from "./job.module.css";

export default function SystemTab({ job }: { job: JobDetail }) {
  const names = useMemo(() => job.metrics.map((metric) => metric.name).filter((name) => name.startsWith("system/")).slice(0, 80), [job.metrics]);
  if (names.length === 0)
    return <Empty title="No samples" text="Processors, memory, disk, network and accelerators are sampled by themselves while a job runs." commands={[`weft job show ${job.id}`]} />;
  return (
    <div className={css.stack}>
      <ChartTools steps={false} />
      <MetricCharts job={job} names={names} system />
    </div>
  );
}
