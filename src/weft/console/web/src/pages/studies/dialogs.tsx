/** Dialogs of a study: a trial by hand, and a clone with another space or budget. */
import { useState } from "react";
import { useLocation } from "wouter";
import type { ModelView, StudyAnswer, StudyDetail, TrialView } from "../../api/types";
import { Button, Dialog, Field, Wrong } from "../../parts/controls";
import { layout } from "../../parts/layout";
import { useParam } from "../../text/address";
import type { Domain } from "../../text/studies";
import { useAskStudy } from "./live";
import css from "./studies.module.css";
import { domainsOf } from "./view";

/** Returns a parameter from what was typed: a number, true, false or null where it is one. */
export function typedValue(text: string): number | string | boolean | null {
  const plain = text.trim();
  if (plain === "true" || plain === "false") return plain === "true";
  if (plain === "null") return null;
  return plain !== "" && Number.isFinite(Number(plain)) ? Number(plain) : plain;
}

export function AddTrialDialog({ id, domains, trials, onClose }: { id: number; domains: Record<string, Domain>; trials: TrialView[]; onClose: () => void }) {
  const ask = useAskStudy();
  const [wrong, setWrong] = useState<unknown>(null);
  const [picked] = useParam("trial");
  const like = trials.find((trial) => String(trial.number) === picked) ?? trials.at(-1);
  const [values, setValues] = useState<Record<string, string>>(() =>
    Object.fromEntries(Object.entries(domains).map(([name, domain]) => [name, String(like ? (name in like.params ? like.params[name] : "") : / if /.test(domain.text) ? "" : (domain.choices[0] ?? domain.low ?? ""))])),
  );
  async function add(): Promise<void> {
    const params = Object.fromEntries(Object.entries(values).filter(([, text]) => text.trim() !== "").map(([name, text]) => [name, typedValue(text)]));
    const done = await ask<StudyAnswer>("POST", `/studies/${id}/trials`, { params }, "the trial is tried next", setWrong);
    if (done) onClose();
  }
  return (
    <Dialog title="Add a trial" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" onClick={() => void add()}>Add</Button></>}>
      <div className={css.form}>
        <p className={layout.note}>{like ? `The values are those of trial ${like.number}. ` : ""}Leave out what a condition does not ask for.</p>
        {Object.entries(domains).map(([name, domain]) => (
          <Field key={name} label={`${name}: ${domain.text}`}>
            {domain.kind === "choice" ? (
              <select value={values[name]} onChange={(event) => setValues({ ...values, [name]: event.target.value })}>
                {domain.choices.map((choice) => <option key={choice}>{choice}</option>)}
                <option value="">(left out)</option>
              </select>
            ) : (
              <input type="text" inputMode="decimal" value={values[name] ?? ""} onChange={(event) => setValues({ ...values, [name]: event.target.value })} />
            )}
          </Field>
        ))}
        {wrong ? <Wrong error={wrong} /> : null}
      </div>
    </Dialog>
  );
}

export function KeepModelDialog({ id, detail, trial, onClose }: { id: number; detail: StudyDetail; trial: TrialView; onClose: () => void }) {
  const ask = useAskStudy();
  const [wrong, setWrong] = useState<unknown>(null);
  const [form, setForm] = useState({ model: detail.study.name, path: "model.onnx", alias: "" });
  async function keep(): Promise<void> {
    const body = { model: form.model, path: form.path, alias: form.alias.trim() || null, trial: trial.number };
    const done = await ask<ModelView>("POST", `/studies/${id}/model`, body, `it is kept as a version of ${form.model}`, setWrong);
    if (done) onClose();
  }
  return (
    <Dialog title="Keep the model" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" onClick={() => void keep()}>Keep</Button></>}>
      <div className={css.form}>
        <p className={layout.note}>An ONNX file that trial {trial.number} wrote to its outputs becomes the next version of a model.</p>
        <Field label="Model"><input type="text" value={form.model} onChange={(event) => setForm({ ...form, model: event.target.value })} /></Field>
        <Field label="File among the outputs"><input type="text" value={form.path} onChange={(event) => setForm({ ...form, path: event.target.value })} /></Field>
        <Field label="Alias, such as production"><input type="text" value={form.alias} onChange={(event) => setForm({ ...form, alias: event.target.value })} /></Field>
        {wrong ? <Wrong error={wrong} /> : null}
      </div>
    </Dialog>
  );
}

/** Returns the changes that a clone asks for: only what differs. */
export function cloneChanges(detail: StudyDetail, form: { name: string; trials: string; parallel: string; space: Record<string, string> }): Record<string, unknown> {
  const { config } = detail;
  const changes: Record<string, unknown> = {};
  if (form.name !== config["name"]) changes["name"] = form.name;
  const budget = (config["budget"] ?? {}) as Record<string, unknown>;
  if (form.trials !== String(budget["trials"] ?? "")) changes["budget"] = { trials: form.trials === "" ? null : Number(form.trials) };
  if (form.parallel !== String(config["parallel"] ?? 1)) changes["parallel"] = Number(form.parallel);
  const before = domainsOf((detail.config["space"] ?? {}) as Record<string, unknown>);
  const space = Object.fromEntries(Object.entries(form.space).filter(([name, text]) => text.trim() && text !== before[name]?.text));
  if (Object.keys(space).length > 0) changes["space"] = space;
  return changes;
}

export function CloneStudyDialog({ id, detail, onClose }: { id: number; detail: StudyDetail; onClose: () => void }) {
  const ask = useAskStudy();
  const [, go] = useLocation();
  const budget = (detail.config["budget"] ?? {}) as Record<string, unknown>;
  const [wrong, setWrong] = useState<unknown>(null);
  const [warm, setWarm] = useState(true);
  const [form, setForm] = useState({
    name: String(detail.config["name"] ?? ""),
    trials: String(budget["trials"] ?? ""),
    parallel: String(detail.config["parallel"] ?? 1),
    space: Object.fromEntries(Object.entries(domainsOf((detail.config["space"] ?? {}) as Record<string, unknown>)).map(([name, domain]) => [name, domain.text])),
  });
  async function clone(): Promise<void> {
    const made = await ask<StudyAnswer>("POST", `/studies/${id}/clone`, { changes: cloneChanges(detail, form), warm }, "the clone begins", setWrong);
    if (made?.study?.id) go(`/studies/${made.study.id}`);
  }
  const advice = detail.insights.filter((one) => ["edge", "no-matter", "divergence"].includes(one.rule));
  return (
    <Dialog title={`Clone study ${id}`} onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" onClick={() => void clone()}>Clone</Button></>}>
      <div className={css.form}>
        <div className={css.three}>
          <Field label="Name"><input type="text" value={form.name} onChange={(event) => setForm({ ...form, name: event.target.value })} /></Field>
          <Field label="Trials"><input type="number" min={1} value={form.trials} onChange={(event) => setForm({ ...form, trials: event.target.value })} /></Field>
          <Field label="At once"><input type="number" min={1} value={form.parallel} onChange={(event) => setForm({ ...form, parallel: event.target.value })} /></Field>
        </div>
        {advice.map((one) => <p key={one.text} className={css.adviceLine}>{one.text}: <b>{one.advice}</b></p>)}
        {Object.entries(form.space).map(([name, text]) => (
          <Field key={name} label={name}>
            <input type="text" spellCheck={false} value={text} onChange={(event) => setForm({ ...form, space: { ...form.space, [name]: event.target.value } })} />
          </Field>
        ))}
        <label className={css.check}><input type="checkbox" checked={warm} onChange={(event) => setWarm(event.target.checked)} /> Take the completed trials over, where they are points of the new space</label>
        {wrong ? <Wrong error={wrong} /> : null}
      </div>
    </Dialog>
  );
}
