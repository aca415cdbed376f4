/** Dialogs of the job page: scale, clone, remove. */
import { useState } from "react";
import { useLocation } from "wouter";
import type { JobDetail } from "../../api/types";
import { Button, Dialog, Field } from "../../parts/controls";
import { plural } from "../../text/format";
import { useJobActions } from "../jobs/actions";
import css from "./job.module.css";

export function ScaleDialog({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const actions = useJobActions();
  const [workers, setWorkers] = useState(job.workers || job.min_workers);
  return (
    <Dialog
      title="Scale"
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={workers === job.workers} onClick={() => void actions.scale(job, workers).then(onClose)}>
            Scale to {workers}
          </Button>
        </>
      }
    >
      <div className={css.form}>
        <p>
          It has {plural(job.workers, "worker")} and may have {job.min_workers} to {job.max_workers}. The change takes effect at the end of a
          step; no step and no sample is lost.
        </p>
        <div className={css.sliderRow}>
          <input
            type="range"
            aria-label="Workers"
            min={job.min_workers}
            max={job.max_workers}
            value={workers}
            onChange={(event) => setWorkers(Number(event.target.value))}
          />
          <output>{workers}</output>
        </div>
      </div>
    </Dialog>
  );
}

/** Returns the fields of the specification that the form changed. */
export function changesOf(job: JobDetail, form: { run: string; workers: string; priority: string; name: string }): Record<string, unknown> {
  const run = Array.isArray(job.spec.run) ? job.spec.run.join(" ") : job.spec.run;
  const changes: Record<string, unknown> = {};
  if (form.run !== run) changes["run"] = form.run;
  if (form.workers !== String(job.spec.workers ?? 1)) changes["workers"] = /^\d+$/.test(form.workers) ? Number(form.workers) : form.workers;
  if (form.priority !== String(job.priority)) changes["queue.priority"] = Number(form.priority);
  if (form.name !== job.name) changes["name"] = form.name;
  return changes;
}

export function CloneDialog({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const actions = useJobActions();
  const [, go] = useLocation();
  const [busy, setBusy] = useState(false);
  const [form, setForm] = useState({
    run: Array.isArray(job.spec.run) ? job.spec.run.join(" ") : job.spec.run,
    workers: String(job.spec.workers ?? 1),
    priority: String(job.priority),
    name: job.name,
  });
  const set = (name: keyof typeof form) => (event: { target: { value: string } }) => setForm({ ...form, [name]: event.target.value });
  async function clone(): Promise<void> {
    setBusy(true);
    const made = await actions.clone(job, changesOf(job, form));
    setBusy(false);
    if (made === null) return;
    onClose();
    go(`/jobs/${made}`);
  }
  return (
    <Dialog
      title={`Clone job ${job.id}`}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" disabled={busy} onClick={() => void clone()}>Submit the copy</Button>
        </>
      }
    >
      <div className={css.form}>
        <p>The copy runs the same code with the same data. Change here what shall differ.</p>
        <Field label="Name"><input type="text" value={form.name} onChange={set("name")} /></Field>
        <Field label="Run"><textarea rows={3} value={form.run} onChange={set("run")} spellCheck={false} /></Field>
        <Field label="Workers: a number, or 2:8"><input type="text" value={form.workers} onChange={set("workers")} /></Field>
        <Field label="Priority"><input type="number" min={0} max={100} value={form.priority} onChange={set("priority")} /></Field>
      </div>
    </Dialog>
  );
}

export function RemoveDialog({ job, onClose }: { job: JobDetail; onClose: () => void }) {
  const actions = useJobActions();
  const [, go] = useLocation();
  return (
    <Dialog
      title={`Remove job ${job.id}?`}
      onClose={onClose}
      foot={
        <>
          <Button onClick={onClose}>Keep it</Button>
          <Button kind="danger" icon="trash" onClick={() => void actions.remove([job]).then((done) => done && go("/jobs"))}>Remove</Button>
        </>
      }
    >
      <p>Its logs, curves, files and checkpoints go with it. This cannot be undone.</p>
    </Dialog>
  );
}
