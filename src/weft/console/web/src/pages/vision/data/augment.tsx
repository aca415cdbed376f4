/** A data set of changed pictures: each way with its level, shown on one of the pictures before anything is made. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { send } from "../../../api/client";
import { datasetPath, invalidateDataset, thumbnailUrl, type Dataset } from "../../../api/vision";
import type { VisionAugmentStep } from "../../../api/types";
import { Button, Dialog, Field, tell, Wrong } from "../../../parts/controls";
import { layout } from "../../../parts/layout";
import { count } from "../../../text/format";
import css from "./data.module.css";

type Kind = VisionAugmentStep["kind"];
const KINDS: readonly (readonly [Kind, string, boolean])[] = [
  ["blur", "Blur", true], ["sharpen", "Sharpen", true], ["colour", "Colour", true], ["crop", "Crop", true],
  ["rotate", "Rotate", true], ["noise", "Noise", true], ["flip_left_right", "Flip left and right", false], ["flip_top_bottom", "Flip top and bottom", false],
];

/** Returns about how a picture looks after a way of changing it, in styles of the browser. */
export function previewStyle(kind: Kind, level: number): React.CSSProperties {
  switch (kind) {
    case "blur": return { filter: `blur(${level * 6}px)` };
    case "sharpen": return { filter: `contrast(${1 + level * 0.6})` };
    case "colour": return { filter: `saturate(${1 + level}) hue-rotate(${level * 30}deg) brightness(${1 + level * 0.2})` };
    case "crop": return { transform: `scale(${1 + level})` };
    case "rotate": return { transform: `rotate(${level * 45}deg)` };
    case "noise": return { filter: `grayscale(${level * 0.4}) contrast(${1 + level * 0.8}) brightness(${1 - level * 0.1})` };
    case "flip_left_right": return { transform: "scaleX(-1)" };
    case "flip_top_bottom": return { transform: "scaleY(-1)" };
  }
}

export function AugmentDialog({ set, onClose }: { set: Dataset; onClose: () => void }) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [name, setName] = useState(`${set.name}-augmented`.slice(0, 64));
  const [levels, setLevels] = useState<Partial<Record<Kind, number>>>({ flip_left_right: 0.5 });
  const [keep, setKeep] = useState(true);
  const [wrong, setWrong] = useState<unknown>(null);
  const steps = KINDS.filter(([kind]) => levels[kind] !== undefined).map(([kind]) => ({ kind, level: levels[kind]! }));
  const amount = set.counts.pictures * (steps.length + (keep ? 1 : 0));
  const make = (): void => {
    send("POST", datasetPath(set.id, "/augment"), { name, steps, keep }).then(() => {
      invalidateDataset(client, set.id);
      tell(`${name} is being made`);
      onClose();
      go("/vision");
    }, setWrong);
  };
  return (
    <Dialog title={`Augment ${set.name}`} onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" disabled={steps.length === 0 || !name} onClick={make}>Make {count(amount)} pictures</Button></>}>
      <div className={css.stack}>
        {wrong ? <Wrong error={wrong} /> : null}
        <p className={layout.note}>Boxes, polygons and masks move with the pixels. The pictures below show about how strong each change is.</p>
        <ul className={css.ways}>
          {KINDS.map(([kind, text, levelled]) => {
            const level = levels[kind];
            return (
              <li key={kind}>
                <div className={css.preview}>{set.cover && <img src={thumbnailUrl(set.cover, 128)} alt="" style={level === undefined ? {} : previewStyle(kind, level)} />}</div>
                <label><input type="checkbox" checked={level !== undefined} onChange={(event) => setLevels(({ [kind]: _, ...rest }) => (event.target.checked ? { ...rest, [kind]: 0.5 } : rest))} /> {text}</label>
                {levelled && <input type="range" aria-label={`level of ${text.toLowerCase()}`} min={0} max={1} step={0.05} disabled={level === undefined} value={level ?? 0.5} onChange={(event) => setLevels((old) => ({ ...old, [kind]: Number(event.target.value) }))} />}
              </li>
            );
          })}
        </ul>
        <label><input type="checkbox" checked={keep} onChange={(event) => setKeep(event.target.checked)} /> the pictures as they are, too</label>
        <Field label="Name of the new data set"><input type="text" value={name} maxLength={64} onChange={(event) => setName(event.target.value)} /></Field>
      </div>
    </Dialog>
  );
}
