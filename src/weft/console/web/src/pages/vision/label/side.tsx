/** Beside the picture: labels with their digits, the objects, and what to do with labels that a model made. */
import { memo, useCallback, useEffect, useRef, useState } from "react";
import { Button } from "../../../parts/controls";
import { Icon } from "../../../parts/icons";
import { layout } from "../../../parts/layout";
import { plural } from "../../../text/format";
import type { Colours } from "../../../vision/colours";
import { isShown, judged, sheetOf, type Action, type Editor } from "../../../vision/editor";
import { crossesItself, height, width } from "../../../vision/geometry";
import { kindOf, type Shape, type Sheet } from "../../../vision/shapes";
import css from "./label.module.css";

const MOST_ROWS = 300; // the rest is on the picture, and selecting one there shows it here

interface LabelsProps {
  names: readonly string[];
  active: string | null;
  colours: Colours;
  title: string;
  mayEdit: boolean;
  onPick: (name: string) => void;
  onNew: (name: string) => void;
  field: React.RefObject<HTMLInputElement | null>;
}

/** Names that digits pick: labels of objects, or categories of pictures. */
export const LabelList = memo(function LabelList({ names, active, colours, title, mayEdit, onPick, onNew, field }: LabelsProps) {
  const [text, setText] = useState("");
  const found = text ? names.filter((name) => name.toLowerCase().includes(text.toLowerCase())) : names;
  return (
    <section aria-label={title} className={css.panel}>
      <h2>{title}</h2>
      <ul className={css.labels}>
        {found.map((name) => {
          const digit = names.indexOf(name);
          return (
            <li key={name}>
              <button type="button" aria-pressed={name === active} disabled={!mayEdit} onClick={() => onPick(name)}>
                <i style={{ background: colours(name) }} />
                <span>{name}</span>
                {digit < 10 && <kbd>{(digit + 1) % 10}</kbd>}
              </button>
            </li>
          );
        })}
      </ul>
      {mayEdit && (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const name = text.trim();
            if (!name) return;
            const same = names.find((one) => one.toLowerCase() === name.toLowerCase());
            if (same) onPick(same);
            else onNew(name);
            setText("");
            (document.activeElement as HTMLElement | null)?.blur();
          }}
        >
          <input ref={field} type="text" aria-label={`Find or add: ${title.toLowerCase()}`} placeholder="Find, or add a new one (j)" maxLength={64} value={text} onChange={(event) => setText(event.target.value)} />
        </form>
      )}
    </section>
  );
});

interface ObjectRowProps {
  shape: Shape;
  selected: boolean;
  hidden: boolean;
  locked: boolean;
  faint: boolean;
  colour: string;
  act: (action: Action) => void;
  onSelect: (id: string, more: boolean) => void;
  mayEdit: boolean;
}

const ObjectRow = memo(function ObjectRow({ shape, selected, hidden, locked, faint, colour, act, onSelect, mayEdit }: ObjectRowProps) {
  const crossed = shape.polygons.some(crossesItself);
  return (
    <li data-id={shape.id} data-selected={selected || undefined} data-faint={faint || undefined}>
      <button type="button" className={css.object} aria-pressed={selected} onClick={(event) => onSelect(shape.id, event.shiftKey)}>
        <i style={{ background: colour }} />
        <span>{shape.label}</span>
        <small>
          {crossed ? "crosses itself" : shape.confidence === null ? (shape.track === null ? kindOf(shape) : `track ${shape.track}`) : `${Math.round(shape.confidence * 100)} %`}
          <span className="unseen"> {Math.round(width(shape.box))} by {Math.round(height(shape.box))}</span>
        </small>
      </button>
      <button type="button" className={css.mini} aria-pressed={hidden} aria-label={`${hidden ? "show" : "hide"} ${shape.label}`} onClick={() => act({ do: "hide", ids: [shape.id] })}>
        <Icon name={hidden ? "eye-off" : "eye"} size={13} />
      </button>
      {mayEdit && (
        <button type="button" className={css.mini} aria-pressed={locked} aria-label={`${locked ? "unlock" : "lock"} ${shape.label}`} onClick={() => act({ do: "lock", ids: [shape.id] })}>
          <Icon name={locked ? "lock" : "unlock"} size={13} />
        </button>
      )}
    </li>
  );
});

export const ObjectList = memo(function ObjectList({ editor, act, colours, mayEdit }: { editor: Editor; act: (action: Action) => void; colours: Colours; mayEdit: boolean }) {
  const { shapes } = sheetOf(editor);
  const list = useRef<HTMLUListElement>(null);
  const last = editor.selected.at(-1);
  const chosen = new Set(editor.selected);
  const before = useRef(editor.selected);
  before.current = editor.selected;
  const onSelect = useCallback((id: string, more: boolean) => act({ do: "select", ids: more ? [...before.current, id] : [id] }), [act]);
  useEffect(() => {
    if (last) list.current?.querySelector(`[data-id="${last}"]`)?.scrollIntoView({ block: "nearest" });
  }, [last]);
  const shown = shapes.slice(0, MOST_ROWS);
  const extra = last ? shapes.slice(MOST_ROWS).find((shape) => shape.id === last) : undefined;
  return (
    <section aria-label="Objects" className={css.panel}>
      <h2>
        Objects <small>{shapes.length}</small>
        {editor.hidden.size > 0 && <Button small kind="quiet" onClick={() => act({ do: "show-all" })}>Show all</Button>}
      </h2>
      {shapes.length === 0 && <p className={layout.note}>None yet. Draw with the pointer, or move the cross with arrow keys and press Enter.</p>}
      <ul ref={list} className={css.objects}>
        {[...shown, ...(extra ? [extra] : [])].map((shape) => (
          <ObjectRow key={shape.id} shape={shape} selected={chosen.has(shape.id)} hidden={editor.hidden.has(shape.id)} locked={editor.locked.has(shape.id)} faint={!isShown(editor, shape)} colour={colours(shape.label)} act={act} onSelect={onSelect} mayEdit={mayEdit} />
        ))}
      </ul>
      {shapes.length > shown.length && <p className={layout.note}>The first {shown.length} of {shapes.length}.</p>}
    </section>
  );
});

/** Labels of a model: shown from a confidence on, accepted or deleted at once. */
export const AutoPanel = memo(function AutoPanel({ editor, act, mayEdit }: { editor: Editor; act: (action: Action) => void; mayEdit: boolean }) {
  const auto = sheetOf(editor).shapes.filter((shape) => shape.confidence !== null);
  if (auto.length === 0) return null;
  const about = judged(editor);
  const chosen = about.length > 0 && about.every((shape) => editor.selected.includes(shape.id));
  const models = [...new Set(auto.map((shape) => shape.model).filter(Boolean))];
  return (
    <section aria-label="Auto labels" className={css.panel}>
      <h2>Auto labels <small>{about.length} of {auto.length}</small></h2>
      {models.length > 0 && <p className={layout.note}>by {models.join(", ")}</p>}
      <label className={css.slider}>
        Confidence from
        <input type="range" min={0} max={1} step={0.01} value={editor.threshold} onChange={(event) => act({ do: "threshold", threshold: Number(event.target.value) })} />
        <output>{Math.round(editor.threshold * 100)} %</output>
      </label>
      {mayEdit && (
        <div className={css.row}>
          <Button small icon="check" disabled={about.length === 0} onClick={() => act({ do: "accept" })} title="y">Accept {chosen ? plural(about.length, "selected", "selected") : about.length}</Button>
          <Button small icon="trash" disabled={about.length === 0} onClick={() => act({ do: "reject" })} title="x">Delete {about.length}</Button>
        </div>
      )}
    </section>
  );
});

/** A category that a model chose: taken by a person, or taken away. */
export function CategoryPanel({ sheet, onJudge, mayEdit }: { sheet: Sheet; onJudge: (how: "accept" | "reject") => void; mayEdit: boolean }) {
  if (sheet.category === null || sheet.category_confidence === null) return null;
  return (
    <section aria-label="Auto labels" className={css.panel}>
      <h2>Auto label</h2>
      <p>A model says <b>{sheet.category}</b> and is {Math.round(sheet.category_confidence * 100)} % sure.</p>
      {mayEdit && (
        <div className={css.row}>
          <Button small icon="check" onClick={() => onJudge("accept")} title="y">Accept</Button>
          <Button small icon="trash" onClick={() => onJudge("reject")} title="x">Delete</Button>
        </div>
      )}
    </section>
  );
}
