/** Jobs side by side: curves, only what differs, code, and lines through parameters and results. */
import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link } from "wouter";
import { get } from "../../api/client";
import { useRefresh } from "../../api/queries";
import type { DiffAnswer, JobDetail } from "../../api/types";
import { DiffText } from "../../parts/code";
import { Button, Chip, Tabs, tell, Wrong } from "../../parts/controls";
import { Card, Empty, layout, Page, Skeleton } from "../../parts/layout";
import { StateMark } from "../../parts/state";
import { useParam, useSetParams } from "../../text/address";
import { bestOf, compareRows, csv, type CompareRow } from "../../text/compare";
import { number, plural } from "../../text/format";
import job_css from "../job/job.module.css";
import css from "./compare.module.css";
import { CompareCurves } from "./curves";
import { Parallel } from "./parallel";

const MOST = 24;

export default function ComparePage() {
  const [text] = useParam("jobs");
  const [tab] = useParam("tab", "curves");
  const ids = useMemo(() => [...new Set(text.split(",").map(Number).filter((id) => Number.isInteger(id) && id > 0))].slice(0, MOST), [text]);
  const results = useQueries({ queries: ids.map((id) => ({ queryKey: ["job", id], queryFn: () => get<JobDetail>(`/jobs/${id}`) })) });
  useRefresh(ids.slice(0, 8).map((id) => `job:${id}`), ids.map((id) => ["job", id]), 3000);
  const jobs = results.flatMap((result) => (result.data ? [result.data] : []));
  const wrong = results.find((result) => result.error)?.error;
  const rows = useMemo(() => compareRows(jobs, (value) => (value === null ? "–" : number(value).replace(/\u202f/g, ""))), [jobs]);
  const here = (key: string): string => `/compare?jobs=${ids.join(",")}${key === "curves" ? "" : `&tab=${key}`}`;
  return (
    <Page name="Compare" title="Compare">
      <Chosen jobs={jobs} ids={ids} />
      {wrong ? <Wrong error={wrong} /> : null}
      {ids.length < 2 && (
        <Empty title="Choose jobs to compare" text="Select two or more in the list of jobs (x selects, c compares), or name their numbers above." commands={["weft job show 7 --json"]}>
          <Link href="/jobs">To the list of jobs</Link>
        </Empty>
      )}
      {ids.length >= 2 && (
        <>
          <Tabs
            label="Ways to compare"
            open={tab}
            tabs={[
              { key: "curves", text: "Curves", to: here("curves") },
              { key: "fields", text: "Fields", to: here("fields"), count: rows.filter((row) => row.differs).length },
              { key: "parallel", text: "Parallel", to: here("parallel") },
              { key: "code", text: "Code", to: here("code") },
            ]}
          />
          {jobs.length < ids.length && !wrong && <Skeleton lines={6} />}
          {jobs.length >= 2 && tab === "curves" && <CompareCurves jobs={jobs} />}
          {jobs.length >= 2 && tab === "fields" && <FieldsTable jobs={jobs} rows={rows} />}
          {jobs.length >= 2 && tab === "parallel" && <Card title="Through parameters and best results"><Parallel jobs={jobs} rows={rows} /></Card>}
          {jobs.length >= 2 && tab === "code" && <CodeDiffs jobs={jobs} />}
        </>
      )}
    </Page>
  );
}

function Chosen({ jobs, ids }: { jobs: JobDetail[]; ids: number[] }) {
  const setParams = useSetParams();
  const [text, setText] = useState("");
  const set = (next: number[]): void => setParams({ jobs: next.join(",") });
  return (
    <div className={css.jobs}>
      {jobs.map((job, index) => (
        <span key={job.id} className={css.job}>
          <i style={{ background: `var(--line-${(index % 8) + 1})` }} />
          <Link href={`/jobs/${job.id}`}>{job.name}</Link>
          <small>{job.id}</small>
          {index === 0 && jobs.length > 1 ? <small>baseline</small> : null}
          {index > 0 && <Button small kind="quiet" icon="up" aria-label={`make job ${job.id} the baseline`} title="Make it the baseline" onClick={() => set([job.id, ...ids.filter((id) => id !== job.id)])} />}
          <Button small kind="quiet" icon="close" aria-label={`leave out job ${job.id}`} onClick={() => set(ids.filter((id) => id !== job.id))} />
        </span>
      ))}
      <form
        className={css.add}
        onSubmit={(event) => {
          event.preventDefault();
          const more = text.split(/[\s,]+/).map(Number).filter((id) => Number.isInteger(id) && id > 0);
          if (more.length === 0) return;
          if (ids.length + more.length > MOST) tell(`at most ${plural(MOST, "job")} are compared at once`, true);
          set([...ids, ...more]);
          setText("");
        }}
      >
        <input type="text" inputMode="numeric" aria-label="Numbers of jobs to add" placeholder="Add job" value={text} onChange={(event) => setText(event.target.value)} />
        <Button type="submit" icon="plus" aria-label="add the job" />
      </form>
    </div>
  );
}

function FieldsTable({ jobs, rows }: { jobs: JobDetail[]; rows: CompareRow[] }) {
  const [every, setEvery] = useParam("all");
  const shown = every ? rows : rows.filter((row) => row.differs);
  const sections = [...new Set(shown.map((row) => row.section))];
  function download(): void {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(shown, jobs)], { type: "text/csv" }));
    link.download = `jobs-${jobs.map((job) => job.id).join("-")}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  return (
    <div className={job_css.stack}>
      <div className={css.tools}>
        <Chip on={!every} onClick={() => setEvery(every ? "" : "1")}>Only differences</Chip>
        <span className={layout.note}>{plural(shown.length, "field")}</span>
        <span className={css.push}><Button small icon="load" onClick={download}>CSV</Button></span>
      </div>
      <div className={css.table} tabIndex={0} role="group" aria-label="Fields of the jobs">
        <table>
          <thead>
            <tr>
              <th scope="col">Field</th>
              {jobs.map((job, index) => (
                <th key={job.id} scope="col">
                  <i style={{ background: `var(--line-${(index % 8) + 1})` }} />
                  {job.id} <StateMark state={job.state} />
                </th>
              ))}
            </tr>
          </thead>
          {sections.map((section) => (
            <tbody key={section}>
              <tr className={css.section}>
                <th scope="rowgroup" colSpan={jobs.length + 1}>{section}</th>
              </tr>
              {shown.filter((row) => row.section === section).map((row) => (
                <tr key={row.name}>
                  <th scope="row">{row.name}</th>
                  {row.values.map((value, index) => (
                    <td key={index} data-differs={!row.section.startsWith("Metrics") && index > 0 && value !== row.values[0]} data-best={index === bestOf(row)} data-none={value === null}>
                      {value ?? "–"}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          ))}
        </table>
      </div>
    </div>
  );
}

function CodeDiffs({ jobs }: { jobs: JobDetail[] }) {
  const [text, setOther] = useParam("with");
  const base = jobs[0]!;
  const other = jobs.find((job) => String(job.id) === text && job.id !== base.id) ?? jobs[1]!;
  const diff = useQuery({ queryKey: ["job", base.id, "diff", other.id], queryFn: () => get<DiffAnswer>(`/jobs/${base.id}/diff`, { with: other.id }) });
  return (
    <div className={job_css.stack}>
      <div className={css.tools}>
        <label>
          From {base.id} {base.name} to{" "}
          <select value={String(other.id)} onChange={(event) => setOther(event.target.value)}>
            {jobs.slice(1).map((job) => <option key={job.id} value={String(job.id)}>{job.id} {job.name}</option>)}
          </select>
        </label>
      </div>
      {diff.error ? <Wrong error={diff.error} /> : null}
      {diff.isPending && <Skeleton lines={5} />}
      {diff.data && diff.data.code.length === 0 && <p>They run the same code.</p>}
      {diff.data?.code.map((file) => (
        <Card key={file.path} title={file.path} extra={<span className={layout.note}>{file.change}</span>}>
          {file.diff === null ? <p className={layout.note}>It is binary, or too long to show.</p> : <DiffText text={file.diff} label={`differences in ${file.path}`} />}
        </Card>
      ))}
      {diff.data?.truncated && <p className={layout.note}>There are more files than are shown.</p>}
    </div>
  );
}
