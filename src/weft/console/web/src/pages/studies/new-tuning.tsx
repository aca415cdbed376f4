/** "New tuning": ranges, optimizers and a budget become a study; what the service makes of it is shown before it starts. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useLocation } from "wouter";
import { get, send } from "../../api/client";
import type { AlgorithmsAnswer, JobDetail, StudyAnswer, TrialView } from "../../api/types";
import { CodeText } from "../../parts/code";
import { Button, Dialog, Field, Wrong } from "../../parts/controls";
import { layout } from "../../parts/layout";
import { number } from "../../text/format";
import { commandOf, configOf, FIRST_FORM, hasResource, OPTIMIZERS, WITH_MOMENTUM, type Range, type TuningForm } from "../../text/tuning";
import { yaml } from "../../text/yaml";
import { useAskStudy } from "./live";
import css from "./studies.module.css";

const TRY_MS = 400;

export function NewTuningDialog({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<TuningForm>(FIRST_FORM);
  const [job, setJob] = useState("");
  const [tried, setTried] = useState<{ answer?: StudyAnswer; error?: unknown } | null>(null);
  const [busy, setBusy] = useState(false);
  const [, go] = useLocation();
  const ask = useAskStudy();
  const turn = useRef(0);
  const known = useQuery({ queryKey: ["algorithms"], queryFn: () => get<AlgorithmsAnswer>("/algorithms"), staleTime: Infinity });
  const code = useQuery({ queryKey: ["job", Number(job)], queryFn: () => get<JobDetail>(`/jobs/${job}`), enabled: /^\d+$/.test(job) });
  const snapshot = code.data?.snapshot ?? null;
  const set = (changes: Partial<TuningForm>): void => setForm((old) => ({ ...old, ...changes }));
  const config = configOf(form);
  const text = JSON.stringify([config, snapshot]);

  useEffect(() => {
    const mine = ++turn.current;
    const timer = setTimeout(async () => {
      const [wanted, digest] = JSON.parse(text) as [unknown, string | null];
      const result = await send<StudyAnswer>("POST", "/studies", { config: wanted, snapshot: digest, dry_run: true }).then((answer) => ({ answer }), (error: unknown) => ({ error }));
      if (mine === turn.current) setTried(result);
    }, TRY_MS);
    return () => clearTimeout(timer);
  }, [text]);

  async function start(): Promise<void> {
    setBusy(true);
    const made = await ask<StudyAnswer>("POST", "/studies", { config, snapshot, dry_run: false }, "the study begins", (error) => setTried({ error }));
    setBusy(false);
    if (made?.study?.id) go(`/studies/${made.study.id}`);
  }
  const optimizers = known.data?.optimizers ?? Object.keys(OPTIMIZERS);
  return (
    <Dialog
      title="New tuning"
      onClose={onClose}
      foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" disabled={busy || !tried?.answer} onClick={() => void start()}>Start tuning</Button></>}
    >
      <div className={css.form}>
        <div className={css.three}>
          <Field label="Name"><input type="text" value={form.name} onChange={(event) => set({ name: event.target.value })} /></Field>
          <Field label="Script"><input type="text" value={form.script} onChange={(event) => set({ script: event.target.value })} /></Field>
          <Field label="Code of job"><input type="text" inputMode="numeric" placeholder="none" value={job} onChange={(event) => setJob(event.target.value.trim())} /></Field>
        </div>
        {code.error ? <Wrong error={code.error} /> : null}
        {code.data && <p className={layout.note}>{snapshot ? `The code of ${code.data.name} goes with every trial.` : `${code.data.name} has no code of its own.`}</p>}
        {!job && <p className={layout.note}>Without a job, trials have no code of their own: the script comes with the image or the data. From a folder, <code>weft tune study.yaml</code> sends the code.</p>}
        <fieldset className={css.box}>
          <legend>Parameters</legend>
          <RangeField label="Learning rate" range={form.lr} onChange={(lr) => set({ lr })} />
          <RangeField label="Hidden state size" range={form.hidden} onChange={(hidden) => set({ hidden })} />
          <RangeField label="Decay rate" range={form.decay} onChange={(decay) => set({ decay })} />
          <RangeField label="Momentum" note={momentumNote(form)} range={form.momentum} onChange={(momentum) => set({ momentum })} />
          <div className={css.range}>
            <label className={css.check}><input type="checkbox" checked={form.batch.on} onChange={(event) => set({ batch: { ...form.batch, on: event.target.checked } })} /> Batch size</label>
            <input type="text" aria-label="Batch sizes" disabled={!form.batch.on} value={form.batch.values} onChange={(event) => set({ batch: { ...form.batch, values: event.target.value } })} />
          </div>
        </fieldset>
        <fieldset className={css.box}>
          <legend>Optimizer</legend>
          <div className={css.checks}>
            {optimizers.map((name) => (
              <label key={name} className={css.check}>
                <input type="checkbox" checked={form.optimizers.includes(name)} onChange={(event) => set({ optimizers: event.target.checked ? optimizers.filter((one) => one === name || form.optimizers.includes(one)) : form.optimizers.filter((one) => one !== name) })} />
                {OPTIMIZERS[name] ?? name}
              </label>
            ))}
          </div>
        </fieldset>
        <div className={css.three}>
          <Field label="Goal">
            <select value={form.goal} onChange={(event) => set({ goal: event.target.value as TuningForm["goal"] })}><option value="minimize">minimize</option><option value="maximize">maximize</option></select>
          </Field>
          <Field label="Metric"><input type="text" value={form.metric} onChange={(event) => set({ metric: event.target.value })} /></Field>
          <Field label="Trials"><input type="number" min={1} value={form.trials} onChange={(event) => set({ trials: event.target.value })} /></Field>
          <Field label="Search"><Names value={form.search} names={known.data?.searches ?? [form.search]} onChange={(search) => set({ search })} /></Field>
          <Field label="Schedule"><Names value={form.schedule} names={known.data?.schedules ?? [form.schedule]} onChange={(schedule) => set({ schedule })} /></Field>
          <Field label="Time"><input type="text" placeholder="no limit, or 2h" value={form.time} onChange={(event) => set({ time: event.target.value })} /></Field>
          {hasResource(form) && (
            <>
              <Field label="Resource"><input type="text" value={form.resource.name} onChange={(event) => set({ resource: { ...form.resource, name: event.target.value } })} /></Field>
              <Field label="First look at"><input type="number" min={1} placeholder="chosen" value={form.resource.min} onChange={(event) => set({ resource: { ...form.resource, min: event.target.value } })} /></Field>
              <Field label="All of it"><input type="number" min={1} value={form.resource.max} onChange={(event) => set({ resource: { ...form.resource, max: event.target.value } })} /></Field>
            </>
          )}
          <Field label="Trials at once"><input type="number" min={1} value={form.parallel} onChange={(event) => set({ parallel: event.target.value })} /></Field>
          <Field label="Workers of a trial"><input type="text" value={form.workers} onChange={(event) => set({ workers: event.target.value })} /></Field>
          <Field label="GPUs of a worker"><input type="number" min={0} value={form.gpus} onChange={(event) => set({ gpus: event.target.value })} /></Field>
        </div>
        <Field label="Command"><input type="text" spellCheck={false} placeholder={commandOf({ ...form, run: "" })} value={form.run} onChange={(event) => set({ run: event.target.value })} /></Field>
        <div aria-live="polite" className={css.form}>
          {tried?.error ? <Wrong error={tried.error} /> : null}
          {tried?.answer && <FirstPoints trials={tried.answer.trials ?? []} />}
        </div>
        <details>
          <summary>study.yaml</summary>
          <CodeText text={yaml(config)} />
        </details>
      </div>
    </Dialog>
  );
}

function momentumNote(form: TuningForm): string {
  const moved = form.optimizers.filter((name) => WITH_MOMENTUM.includes(name)).map((name) => OPTIMIZERS[name] ?? name);
  return form.optimizers.length === 0 || moved.length === form.optimizers.length ? "" : moved.length ? `for ${moved.join(", ")}` : "no chosen optimizer has one";
}

function RangeField({ label, range, note, onChange }: { label: string; range: Range; note?: string; onChange: (range: Range) => void }) {
  return (
    <div className={css.range}>
      <label className={css.check}><input type="checkbox" checked={range.on} onChange={(event) => onChange({ ...range, on: event.target.checked })} /> {label}</label>
      <span className={css.ends}>
        <input type="text" inputMode="decimal" aria-label={`${label} from`} disabled={!range.on} value={range.low} onChange={(event) => onChange({ ...range, low: event.target.value })} />
        to
        <input type="text" inputMode="decimal" aria-label={`${label} to`} disabled={!range.on} value={range.high} onChange={(event) => onChange({ ...range, high: event.target.value })} />
      </span>
      {note ? <small className={layout.note}>{note}</small> : null}
    </div>
  );
}

function Names({ value, names, onChange }: { value: string; names: string[]; onChange: (name: string) => void }) {
  return <select value={value} onChange={(event) => onChange(event.target.value)}>{names.map((name) => <option key={name}>{name}</option>)}</select>;
}

function FirstPoints({ trials }: { trials: TrialView[] }) {
  if (trials.length === 0) return <p className={layout.note}>The service takes it.</p>;
  return (
    <div>
      <p className={layout.note}>It would begin with:</p>
      <ul className={css.points}>
        {trials.map((trial) => (
          <li key={trial.number}>{Object.entries(trial.params).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`).join(", ")}</li>
        ))}
      </ul>
    </div>
  );
}
