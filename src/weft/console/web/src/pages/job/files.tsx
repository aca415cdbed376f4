/** Files of a job: folders in the address, previews of text, tables and pictures, everything to take away. */
import { useQuery } from "@tanstack/react-query";
import { get, getText, url } from "../../api/client";
import type { FileEntry, FilesAnswer, JobDetail } from "../../api/types";
import { Command, Wrong } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import { Card, Empty, layout, Skeleton } from "../../parts/layout";
import { useSetParams, useParam } from "../../text/address";
import { bytes, moment } from "../../text/format";
import css from "./job.module.css";

const PREVIEW_BYTES = 200_000;
const ROWS = 200;

export default function FilesTab({ job }: { job: JobDetail }) {
  const [path] = useParam("path");
  const [file] = useParam("file");
  const setParams = useSetParams();
  const listing = useQuery({ queryKey: ["job", job.id, "files", path], queryFn: () => get<FilesAnswer>(`/jobs/${job.id}/files`, { path }) });
  if (listing.error) return <Wrong error={listing.error} />;
  if (!listing.data) return <Skeleton lines={5} />;
  const entries = [...listing.data.entries].sort((a, b) => Number(b.is_dir) - Number(a.is_dir) || a.path.localeCompare(b.path));
  if (entries.length === 0 && !path)
    return <Empty title="No files" text="What a worker writes into the folder WEFT_OUTPUTS, and its checkpoints, are kept and listed here." commands={['torch.save(model, os.environ["WEFT_OUTPUTS"] + "/model.pt")', `weft job pull ${job.id}`]} />;
  const chosen = entries.find((entry) => entry.path === file);
  return (
    <div className={css.two}>
      <div className={css.stack}>
        <ul className={css.list}>
          {path && (
            <li>
              <button type="button" className={css.entry} onClick={() => setParams({ path: path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "", file: "" })}>
                <Icon name="up" size={14} /> <span>{path}</span>
              </button>
            </li>
          )}
          {entries.map((entry) => (
            <li key={entry.path}>
              <button
                type="button"
                className={css.entry}
                aria-current={entry.path === file ? "true" : undefined}
                onClick={() => setParams(entry.is_dir ? { path: entry.path, file: "" } : { file: entry.path })}
              >
                <Icon name={entry.is_dir ? "folder" : "file"} size={14} />
                <span>{entry.path.split("/").at(-1)}</span>
                {!entry.is_dir && <small>{bytes(entry.size)}</small>}
              </button>
            </li>
          ))}
        </ul>
        {listing.data.truncated && <p className={layout.note}>There are more files than are shown.</p>}
        <Command text={`weft job pull ${job.id}`} />
      </div>
      {chosen ? <FileCard job={job} entry={chosen} /> : <p className={layout.note}>Choose a file to look at it.</p>}
    </div>
  );
}

function FileCard({ job, entry }: { job: JobDetail; entry: FileEntry }) {
  const where = `/jobs/${job.id}/files/${entry.path.split("/").map(encodeURIComponent).join("/")}`;
  return (
    <Card title={entry.path.split("/").at(-1)!} extra={<a href={url(where)} download>Download, {bytes(entry.size)}</a>}>
      <div className={css.preview}>
        <p className={layout.note}>{moment(entry.modified_ms)}</p>
        {entry.kind === "image" ? <img src={url(where, { preview: true })} alt={entry.path} /> : null}
        {entry.kind === "text" || entry.kind === "table" ? <TextPreview where={where} entry={entry} /> : null}
        {entry.kind === "other" ? <p className={layout.note}>There is no preview of such a file.</p> : null}
      </div>
    </Card>
  );
}

function TextPreview({ where, entry }: { where: string; entry: FileEntry }) {
  const text = useQuery({ queryKey: ["file", where, entry.modified_ms], queryFn: () => getText(where, { preview: true }, PREVIEW_BYTES) });
  if (text.error) return <Wrong error={text.error} />;
  if (text.data === undefined) return <Skeleton lines={5} />;
  const cut = text.data.length >= PREVIEW_BYTES || entry.size > text.data.length * 4;
  return (
    <>
      {entry.kind === "table" ? <TablePreview text={text.data} path={entry.path} /> : <pre className={css.text} tabIndex={0}>{text.data}</pre>}
      {cut && <p className={layout.note}>This is its beginning.</p>}
    </>
  );
}

/** Returns the cells of delimited text: quotes may hold delimiters and lines. */
export function cells(text: string, delimiter: string): string[][] {
  const rows: string[][] = [[]];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at]!;
    if (quoted) {
      if (sign === '"' && text[at + 1] === '"') cell += text[at++]!;
      else if (sign === '"') quoted = false;
      else cell += sign;
    } else if (sign === '"') quoted = true;
    else if (sign === delimiter || sign === "\n") {
      rows.at(-1)!.push(cell.replace(/\r$/, ""));
      cell = "";
      if (sign === "\n") rows.push([]);
      if (rows.length > ROWS + 1) return rows.slice(0, -1);
    } else cell += sign;
  }
  if (cell || rows.at(-1)!.length) rows.at(-1)!.push(cell);
  return rows.filter((row) => row.length > 0);
}

function TablePreview({ text, path }: { text: string; path: string }) {
  const [head, ...rows] = cells(text, path.endsWith(".tsv") ? "\t" : ",");
  return (
    <div className={css.text} tabIndex={0} role="group" aria-label={`rows of ${path}`}>
      <table className={layout.table}>
        <thead>
          <tr>{head?.map((cell, index) => <th key={index}>{cell}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>{row.map((cell, place) => <td key={place}>{cell}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
