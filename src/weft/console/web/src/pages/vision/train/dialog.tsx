/** A training from a page: accurate, fast, or a first model within seconds; the rest is chosen by itself unless asked for. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { onceKey, send } from "../../../api/client";
import type { Dataset } from "../../../api/vision";
import type { NewTraining, TrainingView } from "../../../api/types";
import { Button, Dialog, Field, Segments, Wrong } from "../../../parts/controls";
import { layout } from "../../../parts/layout";
import { trainingConfig } from "../../../vision/results";
import css from "../data/data.module.css";

type Task = NonNullable<NewTraining["task"]>;
const TASKS: readonly (readonly [Task, string, string])[] = [
  ["classification", "Whole pictures", "tells of which category a picture is"],
  ["detection", "Objects", "finds objects and draws boxes around them"],
  ["segmentation", "Outlines", "finds objects and outlines them; needs polygons or masks"],
  ["anomaly", "What is odd", "learns from good pictures alone, and tells what is unlike them"],
];
const PACES = [["accurate", "Accurate"], ["fast", "Fast"], ["first", "First model in seconds"]] as const;
const ABOUT = { accurate: "The larger network, trained until it is good.", fast: "The smaller network: quick to train and to serve.", first: "A linear head on features of ImageNet: no waiting, and often good enough to label with." };

/** Returns what the labels of a data set allow. */
export function likelyTask(set: Dataset): Task {
  return set.labels.some((label) => label.pictures > 0) || set.categories.length < 2 ? "detection" : "classification";
}

function networkOf(task: Task, pace: string): string | null {
  if (task === "classification" || task === "anomaly") return null;
  return pace === "accurate" ? "detector" : "detector-fast";
}

export function TrainDialog({ set, onClose }: { set: Dataset; onClose: () => void }) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [task, setTask] = useState<Task>(() => likelyTask(set));
  const [pace, setPace] = useState<"accurate" | "fast" | "first">("accurate");
  const [form, setForm] = useState({ name: "", version: "", epochs: "", lr: "", batch: "", size: "", minutes: "", network: "", early: true, workers: "1", gpus: "0" });
  const [wrong, setWrong] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const paces = task === "classification" ? PACES : PACES.slice(0, 2);
  const field = (key: Exclude<keyof typeof form, "early">, label: string, more: React.InputHTMLAttributes<HTMLInputElement> = {}) => (
    <Field label={label}><input type="text" value={form[key]} onChange={(event) => setForm((old) => ({ ...old, [key]: event.target.value }))} {...more} /></Field>
  );
  function begin(): void {
    setBusy(true);
    const body: NewTraining = {
      dataset: set.id, task, model: form.network.trim() || networkOf(task, pace), config: trainingConfig({ ...form, pace: task === "classification" ? pace : "accurate" }),
      version: form.version ? Number(form.version) : null, name: form.name || null, workers: /^\d+$/.test(form.workers) ? Number(form.workers) : form.workers, gpus: Number(form.gpus) || 0,
    };
    send<TrainingView>("POST", "/vision/trainings", body, { "idempotency-key": onceKey() }).then(
      (made) => {
        void client.invalidateQueries({ queryKey: ["vision"] });
        go(`/vision/trainings/${made.job.id}`);
      },
      (error: unknown) => {
        setBusy(false);
        setWrong(error);
      },
    );
  }
  return (
    <Dialog title={`Train on ${set.name}`} onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" icon="play" disabled={busy} onClick={begin}>Train</Button></>}>
      <div className={css.stack}>
        {wrong ? <Wrong error={wrong} /> : null}
        <fieldset className={css.choices}>
          <legend>What it learns</legend>
          {TASKS.map(([key, text, about]) => (
            <label key={key}><input type="radio" name="task" checked={task === key} onChange={() => setTask(key)} /><b>{text}</b><span className={layout.note}>{about}</span></label>
          ))}
        </fieldset>
        {task !== "anomaly" && <div><Segments label="Model" value={pace} options={paces} onChange={setPace} /><p className={layout.note}>{ABOUT[pace]}</p></div>}
        <p className={layout.note}>It takes at least 5 labelled pictures of each class{task === "classification" ? ", and two classes" : ""}. The data set is frozen as a version first.</p>
        <details>
          <summary>Settings</summary>
          <div className={css.settings}>
            {field("name", "Name of the model", { placeholder: set.name })}
            {field("version", "Version of the data set", { placeholder: "as it is now", inputMode: "numeric" })}
            {field("network", "Network", { placeholder: "chosen by itself" })}
            {field("epochs", "Epochs", { placeholder: "chosen by itself", inputMode: "decimal" })}
            {field("lr", "Learning rate", { placeholder: "chosen by itself", inputMode: "decimal" })}
            {field("batch", "Batch", { placeholder: "chosen by itself", inputMode: "numeric" })}
            {field("size", "Side of the input in pixels", { placeholder: "chosen by itself", inputMode: "numeric" })}
            {field("minutes", "Minutes at most", { placeholder: "no limit", inputMode: "decimal" })}
            {field("workers", "Workers; 2:8 is elastic")}
            {field("gpus", "GPUs a worker", { inputMode: "decimal" })}
            <label><input type="checkbox" checked={form.early} onChange={(event) => setForm((old) => ({ ...old, early: event.target.checked }))} /> end early when it gets no better</label>
          </div>
        </details>
      </div>
    </Dialog>
  );
}
