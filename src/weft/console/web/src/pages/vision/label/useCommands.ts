/** What keys of the labelling page do. They come before the keys of all pages; fields and dialogs keep theirs. */
import { useEffect, useRef } from "react";
import { isShown, selectedShapes, sheetOf, type Action, type Editor, type Tool } from "../../../vision/editor";
import { arrowOf, commandOf, digitOf, type Command } from "../../../vision/keymap";
import type { Shape } from "../../../vision/shapes";
import type { StageApi } from "./stage";

interface CommandsOf {
  editor: Editor;
  act: (action: Action) => void;
  api: React.RefObject<StageApi | null>;
  mayEdit: boolean;
  names: readonly string[];
  pick: (name: string) => void;
  field: React.RefObject<HTMLInputElement | null>;
  clipboard: React.RefObject<readonly Shape[]>;
  onStep: (by: 1 | -1) => void;
  onNextUnlabelled: () => void;
  onRepeat: () => void;
  onHelp: () => void;
  onMode: () => void;
  onCrosshair: () => void;
  onSave: () => void;
  onReview: () => void;
  onTrack: () => void;
  onJudge: (how: "accept" | "reject") => void;
}

const LOOKING: ReadonlySet<Command> = new Set<Command>(["next", "previous", "next-unlabelled", "zoom-in", "zoom-out", "fit", "crosshair", "help", "hide", "show-all", "next-object", "previous-object", "cancel", "classify", "copy"]);

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement || (target instanceof HTMLInputElement && target.type !== "range" && target.type !== "checkbox");
}

export function useCommands(of: CommandsOf): void {
  const newest = useRef(of);
  newest.current = of;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (typing(event.target) || document.querySelector("dialog[open]")) return;
      if (handle(newest.current, event)) {
        event.preventDefault();
        event.stopPropagation();
      }
    };
    window.addEventListener("keydown", onKey, { capture: true });
    return () => window.removeEventListener("keydown", onKey, { capture: true });
  }, []);
}

/** Returns whether a key was for this page. */
function handle(of: CommandsOf, event: KeyboardEvent): boolean {
  const onStage = !(event.target instanceof Element && event.target.closest("a, button, input, summary"));
  const digit = digitOf(event);
  if (digit !== null) {
    const name = of.names[digit];
    if (name !== undefined && of.mayEdit) of.pick(name);
    return true;
  }
  const arrow = arrowOf(event);
  if (arrow) {
    // Sliders and lists of links have arrows of their own.
    if (event.target instanceof HTMLInputElement) return false;
    return arrows(of, arrow, event.altKey);
  }
  if (event.key === " ") return onStage; // held, it makes the pointer a hand
  const command = commandOf(event);
  if (!command) return false;
  // Tab walks over objects while the picture has the focus, and over the page elsewhere.
  if ((command === "next-object" || command === "previous-object") && !(onPicture(event.target) && walksOn(of.editor, command))) return false;
  if (command === "press" && !onStage) return false;
  if (!of.mayEdit && !LOOKING.has(command)) return false;
  run(of, command);
  return true;
}

function onPicture(target: EventTarget | null): boolean {
  return target instanceof Element && target.getAttribute("role") === "application";
}

/** Returns whether there is another object to walk to: after the last one, Tab leaves the picture. */
function walksOn(editor: Editor, command: Command): boolean {
  const ids = sheetOf(editor).shapes.filter((shape) => isShown(editor, shape)).map((shape) => shape.id);
  const here = ids.indexOf(editor.selected.at(-1) ?? "");
  return ids.length > 0 && (command === "next-object" ? here < ids.length - 1 : here !== 0);
}

function arrows(of: CommandsOf, by: readonly [number, number], resize: boolean): boolean {
  const { editor, act, api } = of;
  if (!editor.draft && editor.selected.length && of.mayEdit) act({ do: "nudge", by, resize });
  else {
    const at = api.current?.moveCross(by);
    if (at && editor.draft) act({ do: "move", at, reach: 0 });
  }
  return true;
}

function run(of: CommandsOf, command: Command): void {
  const { editor, act, api, clipboard } = of;
  const chosen = selectedShapes(editor);
  if (command.startsWith("tool-")) return act({ do: "tool", tool: command.slice(5) as Tool });
  switch (command) {
    case "undo":
    case "redo":
    case "delete":
    case "cancel":
    case "select-all":
    case "show-all":
    case "next-vertex":
    case "insert-vertex": return act({ do: command });
    case "accept":
    case "reject": return of.onJudge(command);
    case "next-object": return act({ do: "cycle", by: 1 });
    case "previous-object": return act({ do: "cycle", by: -1 });
    case "hide":
    case "lock": return act({ do: command, ids: editor.selected.length ? editor.selected : sheetOf(editor).shapes.map((shape) => shape.id) });
    case "copy": return void (clipboard.current = chosen);
    case "cut":
      clipboard.current = chosen;
      return act({ do: "delete" });
    case "paste": return act({ do: "add", shapes: clipboard.current, offset: same(editor, clipboard.current) ? [8, 8] : [0, 0] });
    case "duplicate": return act({ do: "add", shapes: chosen, offset: [8, 8] });
    case "repeat": return of.onRepeat();
    case "next": return of.onStep(1);
    case "previous": return of.onStep(-1);
    case "next-unlabelled": return of.onNextUnlabelled();
    case "save": return of.onSave();
    case "review": return of.onReview();
    case "track": return of.onTrack();
    case "classify": return of.onMode();
    case "focus-label": return of.field.current?.focus();
    case "zoom-in": return api.current?.zoom(1.25);
    case "zoom-out": return api.current?.zoom(0.8);
    case "fit": return api.current?.fit();
    case "crosshair": return of.onCrosshair();
    case "smaller": return act({ do: "radius", radius: Math.round(editor.radius / 1.25) });
    case "larger": return act({ do: "radius", radius: Math.round(editor.radius * 1.25) + 1 });
    case "help": return of.onHelp();
    case "press": return press(of);
    default: return undefined;
  }
}

/** Enter at the cross is a press of the pointer, and the next one its release. */
function press(of: CommandsOf): void {
  const { editor, act, api } = of;
  const at = api.current?.cross();
  if (!at) return;
  if (editor.tool === "polygon") act({ do: "down", at, reach: api.current!.reach() });
  else if (editor.draft) act({ do: "up", at });
  else {
    act({ do: "down", at, reach: 0 });
    if (editor.tool === "select") act({ do: "up", at });
  }
}

/** Returns whether shapes to be pasted are those of this picture: copies must not hide what they were copied from. */
function same(editor: Editor, shapes: readonly Shape[]): boolean {
  const boxes = new Set(sheetOf(editor).shapes.map((shape) => shape.box.join()));
  return shapes.some((shape) => boxes.has(shape.box.join()));
}
