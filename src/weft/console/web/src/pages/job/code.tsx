/** The code that a job runs, as it was when it was submitted, and how it differs from another job's. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { get, getText } from "../../api/client";
import type { CodeAnswer, JobDetail } from "../../api/types";
import { Button, Wrong } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import { Card, Empty, layout, Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { bytes, plural } from "../../text/format";
import { CodeText } from "../../parts/code";
import css from "./job.module.css";

export default function CodeTab({ job }: { job: JobDetail }) {
  const [file, setFile] = useParam("file");
  const code = useQuery({ queryKey: ["job", job.id, "code"], queryFn: () => get<CodeAnswer>(`/jobs/${job.id}/code`), enabled: job.snapshot !== null, staleTime: Infinity });
  if (job.snapshot === null)
    return <Empty title="No code was kept" text="Jobs that are submitted from a folder keep a snapshot of it, so that they can be run again exactly." commands={["weft submit -- train.py"]} />;
  if (code.error) return <Wrong error={code.error} />;
  if (!code.data) return <Skeleton lines={5} />;
  const { files, git_commit: commit, git_dirty: dirty } = code.data;
  const shown = files.find((one) => one.path === file) ?? files.find((one) => one.path.endsWith(".py")) ?? files[0];
  return (
    <div className={css.stack}>
      <div className={css.tools}>
        <span>
          {plural(files.length, "file")}
          {commit && <>, commit <code>{commit.slice(0, 10)}</code>{dirty ? " with changes" : ""}</>}
        </span>
        <CompareWith job={job} />
      </div>
      <div className={css.two}>
        <ul className={css.list}>
          {files.map((one) => (
            <li key={one.path}>
              <button type="button" className={css.entry} aria-current={one.path === shown?.path ? "true" : undefined} onClick={() => setFile(one.path)}>
                <Icon name="file" size={14} />
                <span>{one.path}</span>
                <small>{bytes(one.size)}</small>
              </button>
            </li>
          ))}
        </ul>
        {shown && <CodeCard job={job.id} path={shown.path} />}
      </div>
    </div>
  );
}

function CompareWith({ job }: { job: JobDetail }) {
  const [, go] = useLocation();
  const [other, setOther] = useState(job.parent_id === null ? "" : String(job.parent_id));
  return (
    <form className={`${css.tools} ${css.push}`} onSubmit={(event) => { event.preventDefault(); if (other) go(`/compare?jobs=${other},${job.id}&tab=code`); }}>
      <label>
        Compare with job
        <input type="number" min={1} value={other} onChange={(event) => setOther(event.target.value)} style={{ width: "6rem" }} />
      </label>
      <Button small type="submit" disabled={!other}>Compare</Button>
    </form>
  );
}

function CodeCard({ job, path }: { job: number; path: string }) {
  const where = `/jobs/${job}/code/${path.split("/").map(encodeURIComponent).join("/")}`;
  const text = useQuery({ queryKey: ["file", where], queryFn: () => getText(where, {}, 500_000), staleTime: Infinity });
  return (
    <Card title={path}>
      {text.error ? <Wrong error={text.error} /> : text.data === undefined ? <Skeleton /> : text.data.includes("\u0000") ? <p className={layout.note}>This is no text.</p> : <CodeText text={text.data} />}
    </Card>
  );
}
