/** Tools above the picture, and what they are set to. */
import { memo } from "react";
import { Button, Segments } from "../../../parts/controls";
import type { IconName } from "../../../parts/icons";
import type { Action, Editor, Tool } from "../../../vision/editor";
import { mayRedo, mayUndo } from "../../../vision/history";
import { KEYMAP } from "../../../vision/keymap";
import css from "./label.module.css";

const TOOLS: readonly (readonly [Tool, string, IconName])[] = [
  ["select", "Select", "pointer"], ["box", "Box", "box"], ["polygon", "Polygon", "polygon"], ["brush", "Brush", "brush"],
  ["eraser", "Eraser", "eraser"], ["grabcut", "Assist", "cut"], ["wand", "Wand", "magic"],
];

const keyOf = (command: string): string => KEYMAP.find((row) => row.command === command)?.keys[0] ?? "";

interface ToolsProps {
  editor: Editor;
  drafting: boolean;
  act: (action: Action) => void;
  mode: "objects" | "pictures";
  onMode: (mode: string) => void;
  tolerance: number;
  onTolerance: (value: number) => void;
  onRepeat: () => void;
  onHelp: () => void;
  onZoom: (factor: number | null) => void;
  mayEdit: boolean;
}

export const Tools = memo(function Tools({ editor, drafting, act, mode, onMode, tolerance, onTolerance, onRepeat, onHelp, onZoom, mayEdit }: ToolsProps) {
  const painting = editor.tool === "brush" || editor.tool === "eraser";
  return (
    <div className={css.tools} role="toolbar" aria-label="Labelling">
      <Segments label="What is labelled" value={mode} options={[["objects", "Objects"], ["pictures", "Pictures"]] as const} onChange={onMode} />
      {mode === "objects" && mayEdit && (
        <div className={css.group} role="group" aria-label="Tool">
          {TOOLS.map(([tool, text, icon]) => (
            <Button key={tool} kind="quiet" icon={icon} aria-label={text} title={`${text} (${keyOf(`tool-${tool}`)})`} aria-pressed={editor.tool === tool} className={css.tool!} onClick={() => act({ do: "tool", tool })} />
          ))}
        </div>
      )}
      {mayEdit && (
        <div className={css.group}>
          <Button kind="quiet" icon="undo" aria-label="Undo" title="Undo (ctrl+z)" disabled={!mayUndo(editor.history) && !drafting} onClick={() => act({ do: "undo" })} />
          <Button kind="quiet" icon="redo" aria-label="Redo" title="Redo (ctrl+shift+z)" disabled={!mayRedo(editor.history)} onClick={() => act({ do: "redo" })} />
          <Button kind="quiet" icon="repeat" aria-label="Repeat the shapes of the picture before" title="Repeat the shapes of the picture before (r)" onClick={onRepeat} />
        </div>
      )}
      <div className={css.group}>
        <Button kind="quiet" icon="minus" aria-label="Zoom out" title="Zoom out (-)" onClick={() => onZoom(0.8)} />
        <Button kind="quiet" icon="plus" aria-label="Zoom in" title="Zoom in (+)" onClick={() => onZoom(1.25)} />
        <Button kind="quiet" icon="fit" aria-label="Fit" title="Fit (home)" onClick={() => onZoom(null)} />
      </div>
      {painting && (
        <label className={css.slider}>
          Size
          <input type="range" min={1} max={120} value={editor.radius} onChange={(event) => act({ do: "radius", radius: Number(event.target.value) })} />
          <output>{editor.radius} px</output>
        </label>
      )}
      {editor.tool === "wand" && mode === "objects" && (
        <label className={css.slider}>
          Tolerance
          <input type="range" min={1} max={128} value={tolerance} onChange={(event) => onTolerance(Number(event.target.value))} />
          <output>{tolerance}</output>
        </label>
      )}
      <Button kind="quiet" icon="keyboard" aria-label="Keys of this page" title="Keys (?)" onClick={onHelp} className={css.push!} />
    </div>
  );
});
