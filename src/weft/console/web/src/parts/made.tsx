/** A list of jobs that make models: the state, the score and the model of each, between columns of their own kind. */
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { JobView } from "../api/types";
import { ago, percent } from "../text/format";
import { Card, layout } from "./layout";
import { ACTIVE, StateMark } from "./state";

export interface MakingJob {
  job: JobView;
  to: string;
  cells: ReactNode[];
  score: string | null;
  model: string | null;
  modelTo: string;
}

/** `kind` heads the first column, `heads` those of the jobs' own cells. */
export function MakingJobs({ title, label, kind, heads, jobs }: { title: string; label: string; kind: string; heads: string[]; jobs: MakingJob[] }) {
  return (
    <Card title={title}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label={label}>
        <table className={`${layout.table} ${layout.whole}`}>
          <thead><tr><th>{kind}</th><th>State</th>{heads.map((head) => <th key={head}>{head}</th>)}<th className={layout.number}>Score</th><th>Model</th><th>Begun</th></tr></thead>
          <tbody>
            {jobs.map(({ job, to, cells, score, model, modelTo }) => (
              <tr key={job.id}>
                <td><Link href={to}>{job.name} {job.id}</Link></td>
                <td><StateMark state={job.state} wanted={job.wanted} />{ACTIVE.includes(job.state) && job.progress !== null ? ` ${percent(job.progress)}` : ""}</td>
                {cells.map((cell, place) => <td key={heads[place]}>{cell}</td>)}
                <td className={layout.number}>{score ?? "–"}</td>
                <td>{model ? <Link href={modelTo}>{model}</Link> : "–"}</td>
                <td>{ago(job.created_ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
