/** A model labels the pictures of a data set that have no labels, as a job. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { get, send } from "../../../api/client";
import { datasetPath, type Dataset } from "../../../api/vision";
import type { AutolabelAnswer, PictureModelsAnswer } from "../../../api/types";
import { Button, Dialog, Field, tell, Wrong } from "../../../parts/controls";
import { layout } from "../../../parts/layout";
import { percent, plural } from "../../../text/format";
import { scoreText, scoreWord } from "../../../vision/results";
import css from "./data.module.css";

export function AutolabelDialog({ set, onClose }: { set: Dataset; onClose: () => void }) {
  const [, go] = useLocation();
  const list = useQuery({ queryKey: ["vision", "models"], queryFn: () => get<PictureModelsAnswer>("/vision/models") });
  const models = (list.data?.models ?? []).filter((model) => model.status !== "rejected");
  const [model, setModel] = useState("");
  const [confidence, setConfidence] = useState(0.5);
  const [wrong, setWrong] = useState<unknown>(null);
  const chosen = model || models[0]?.reference || "";
  const begin = (): void => {
    send<AutolabelAnswer>("POST", datasetPath(set.id, "/autolabel"), { model: chosen, confidence }).then((answer) => {
      tell(`${plural(answer.pictures, "picture")} will be labelled`);
      go(`/vision/data/${encodeURIComponent(set.id)}?labelling=${answer.job.id}`);
    }, setWrong);
  };
  return (
    <Dialog title={`Auto-label ${set.name}`} onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" icon="magic" disabled={!chosen || set.counts.unlabelled === 0} onClick={begin}>Label {plural(set.counts.unlabelled, "picture")}</Button></>}>
      <div className={css.stack}>
        {wrong || list.error ? <Wrong error={wrong ?? list.error} /> : null}
        <p className={layout.note}>Pictures without labels get those of a model. They are shown dashed, and count when a person has accepted them.</p>
        {set.counts.unlabelled === 0 && <p>Every picture has labels already.</p>}
        {list.data && models.length === 0 && <p>There is no model yet: label some pictures, and press Train.</p>}
        {models.length > 0 && <Field label="Model"><select value={chosen} onChange={(event) => setModel(event.target.value)}>{models.map((one) => <option key={one.reference} value={one.reference}>{one.reference}: {one.task}, {scoreWord(one.score_name)} {scoreText(one.score)}</option>)}</select></Field>}
        <Field label={`Confidence from ${percent(confidence)}`}><input type="range" min={0.05} max={0.99} step={0.01} value={confidence} onChange={(event) => setConfidence(Number(event.target.value))} /></Field>
      </div>
    </Dialog>
  );
}
