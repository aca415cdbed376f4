/** A search for a model from a page: a table that is sent or registered, the column to predict, and the minutes. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState, type DragEvent } from "react";
import { useLocation } from "wouter";
import { get, onceKey, send, sendFile } from "../../api/client";
import type { AutoRunView, DatasetsAnswer, TableLook } from "../../api/types";
import { Button, Dialog, Field, Segments, Wrong } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import { Bar, layout } from "../../parts/layout";
import { bodyOf, FRESH, lacking, likelyTarget, METRICS, ordering, type BeginForm } from "../../text/auto";
import { count, percent } from "../../text/format";
import css from "./auto.module.css";

type Change = (changes: Partial<BeginForm>) => void;

export function BeginDialog({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [source, setSource] = useState<"upload" | "dataset">("upload");
  const [look, setLook] = useState<TableLook | null>(null);
  const [form, setForm] = useState<BeginForm>(FRESH);
  const [wrong, setWrong] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const change: Change = (changes) => setForm((old) => ({ ...old, ...changes }));
  const lacks = lacking(look, form);
  function looked(found: TableLook | null): void {
    setLook(found);
    setWrong(null);
    change({ target: found ? likelyTarget(found.columns) : "", splitBy: "", split: "random", drop: [], fairness: [] });
  }
  function begin(): void {
    if (!look || lacks) return;
    setBusy(true);
    send<AutoRunView>("POST", "/auto/runs", bodyOf(look, form), { "idempotency-key": onceKey() }).then(
      (made) => {
        void client.invalidateQueries({ queryKey: ["auto"] });
        go(`/tables/${made.job.id}`);
      },
      (error: unknown) => {
        setBusy(false);
        setWrong(error);
      },
    );
  }
  return (
    <Dialog wide title="Find a model of a table" onClose={onClose} foot={<><span className={css.lacks}>{lacks}</span><Button onClick={onClose}>Cancel</Button><Button kind="primary" icon="play" disabled={busy || lacks !== null} onClick={begin}>Begin</Button></>}>
      <div className={css.stack}>
        {wrong ? <Wrong error={wrong} /> : null}
        <Segments label="Where the table is" value={source} options={[["upload", "A file of mine"], ["dataset", "A registered data set"]]} onChange={(next) => { setSource(next); looked(null); }} />
        {source === "upload" ? <UploadPart look={look} onLook={looked} /> : <DatasetPart look={look} onLook={looked} />}
        {look && <><MainPart look={look} form={form} change={change} /><MorePart look={look} form={form} change={change} /></>}
      </div>
    </Dialog>
  );
}

function UploadPart({ look, onLook }: { look: TableLook | null; onLook: (found: TableLook | null) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [sent, setSent] = useState<number | null>(null);
  const [wrong, setWrong] = useState<unknown>(null);
  function take(file: File | undefined): void {
    if (!file) return;
    setWrong(null);
    setSent(0);
    sendFile<TableLook>("/auto/tables", { name: file.name }, file, setSent).then(onLook, (error: unknown) => { onLook(null); setWrong(error); }).finally(() => setSent(null));
  }
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files[0]);
  };
  return (
    <div>
      <button type="button" className={css.zone} data-over={over || undefined} disabled={sent !== null} onClick={() => input.current?.click()} onDrop={drop} onDragOver={(event) => { event.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}>
        <Icon name="table" size={24} />
        {look ? <b>{look.file}</b> : <span>Drop a table here, or press to choose one</span>}
        <small>{look ? `${shapeText(look)}; press to choose another` : "CSV, Parquet, Arrow or Feather, up to 100 MiB; register larger ones as a data set"}</small>
      </button>
      <input ref={input} type="file" hidden accept=".csv,.tsv,.parquet,.pq,.arrow,.feather,.ipc" onChange={(event) => { take(event.target.files?.[0]); event.target.value = ""; }} />
      {sent !== null && <div className={css.sending} role="status"><Bar share={sent} label={`${percent(sent)} sent`} /><span className={layout.note}>{sent < 1 ? `${percent(sent)} sent` : "the service looks at it"}</span></div>}
      {wrong ? <Wrong error={wrong} /> : null}
    </div>
  );
}

const shapeText = (look: TableLook): string => [look.rows !== null && `${count(look.rows)} rows`, look.columns.length ? `${count(look.columns.length)} columns` : "its columns are seen when the job begins"].filter(Boolean).join(", ");

function DatasetPart({ look, onLook }: { look: TableLook | null; onLook: (found: TableLook | null) => void }) {
  const sets = useQuery({ queryKey: ["datasets"], queryFn: () => get<DatasetsAnswer>("/datasets") });
  const [chosen, setChosen] = useState("");
  const [file, setFile] = useState("");
  const [wrong, setWrong] = useState<unknown>(null);
  function see(dataset: string, inside: string): void {
    setWrong(null);
    if (dataset) get<TableLook>("/auto/tables", { dataset, file: inside }).then(onLook, (error: unknown) => { onLook(null); setWrong(error); });
    else onLook(null);
  }
  const names = (sets.data?.datasets ?? []).flatMap((set) => set.versions.map((version) => `${set.name}@${version.version}`));
  return (
    <div className={css.stack}>
      <div className={css.fields}>
        <Field label="Data set">
          <select value={chosen} onChange={(event) => { setChosen(event.target.value); setFile(""); see(event.target.value, ""); }}>
            <option value="">{names.length ? "choose one" : "none is registered"}</option>
            {names.map((name) => <option key={name}>{name}</option>)}
          </select>
        </Field>
        <Field label="File in it"><input type="text" value={file} placeholder={look?.file ?? "its only table"} onChange={(event) => setFile(event.target.value)} onBlur={() => see(chosen, file)} /></Field>
      </div>
      {wrong ? <Wrong error={wrong} /> : null}
      {look && <p className={layout.note}>{look.dataset}, {look.file}: {shapeText(look)}</p>}
    </div>
  );
}

function ColumnField({ label, look, value, names, onChange }: { label: string; look: TableLook; value: string; names?: readonly string[]; onChange: (name: string) => void }) {
  const known = names ?? look.columns.map((column) => column.name);
  return (
    <Field label={label}>
      {look.columns.length ? (
        <select value={value} onChange={(event) => onChange(event.target.value)}>
          {!known.includes(value) && <option value="">choose one</option>}
          {known.map((name) => <option key={name}>{name}</option>)}
        </select>
      ) : <input type="text" value={value} onChange={(event) => onChange(event.target.value)} />}
    </Field>
  );
}

function MainPart({ look, form, change }: { look: TableLook; form: BeginForm; change: Change }) {
  return (
    <>
      <div className={css.fields}>
        <ColumnField label="Column to predict" look={look} value={form.target} onChange={(target) => change({ target })} />
        <Field label="Minutes"><input type="number" min="0.1" step="any" value={form.minutes} onChange={(event) => change({ minutes: event.target.value })} /></Field>
        <Field label="Metric">
          <select value={form.metric} onChange={(event) => change({ metric: event.target.value })}>
            <option value="">log-loss of classes, RMSE of numbers</option>
            {METRICS.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
          </select>
        </Field>
      </div>
      <div className={css.fields}>
        <Field label="Validated on">
          <select value={form.split} onChange={(event) => change({ split: event.target.value as BeginForm["split"], splitBy: "" })}>
            <option value="random">rows at random</option>
            <option value="time">later rows</option>
            <option value="group">other groups</option>
          </select>
        </Field>
        {form.split === "time" && <ColumnField label="Ordered by" look={look} value={form.splitBy} names={ordering(look.columns).map((column) => column.name)} onChange={(splitBy) => change({ splitBy })} />}
        {form.split === "group" && <ColumnField label="Groups of" look={look} value={form.splitBy} onChange={(splitBy) => change({ splitBy })} />}
      </div>
    </>
  );
}

function toggled(names: readonly string[], name: string): readonly string[] {
  return names.includes(name) ? names.filter((one) => one !== name) : [...names, name];
}

function MorePart({ look, form, change }: { look: TableLook; form: BeginForm; change: Change }) {
  const heads = useId();
  const field = (key: "name" | "trials" | "cpus" | "memory", label: string, placeholder: string) => (
    <Field label={label}><input type="text" value={form[key]} placeholder={placeholder} onChange={(event) => change({ [key]: event.target.value })} /></Field>
  );
  return (
    <details>
      <summary>Columns and settings</summary>
      {look.columns.length > 0 && (
        <div className={css.columns} tabIndex={0} role="group" aria-label="Columns of the table">
          <table className={`${layout.table} ${layout.whole}`}>
            <thead><tr><th>Column</th><th>Kind</th><th>For example</th><th id={`${heads}d`}>Leave out</th><th id={`${heads}f`}>Compare its groups</th></tr></thead>
            <tbody>
              {look.columns.map(({ name, kind, example }) => (
                <tr key={name}>
                  <td>{name}</td><td>{kind}</td><td className={css.example}>{example}</td>
                  <td><input type="checkbox" aria-label={`leave out ${name}`} disabled={name === form.target} checked={form.drop.includes(name)} onChange={() => change({ drop: toggled(form.drop, name) })} /></td>
                  <td><input type="checkbox" aria-label={`compare groups of ${name}`} disabled={name === form.target} checked={form.fairness.includes(name)} onChange={() => change({ fairness: toggled(form.fairness, name) })} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <div className={css.fields}>
        <Field label="The target is">
          <select value={form.task} onChange={(event) => change({ task: event.target.value as BeginForm["task"] })}>
            <option value="auto">what its values look like</option><option value="classes">a class</option><option value="numbers">a number</option>
          </select>
        </Field>
        {field("name", "Name of the model", "of the table and the target")}
        {field("trials", "Models at most", "as many as the time allows")}
        {field("cpus", "Cores", "1")}
        {field("memory", "Memory", "no limit; 8GiB")}
      </div>
    </details>
  );
}
