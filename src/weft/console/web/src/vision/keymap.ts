/** Keys of the labelling page: which command a key is for, and what the sheet of keys says about it. */

export interface Press {
  readonly key: string;
  readonly ctrlKey?: boolean;
  readonly metaKey?: boolean;
  readonly shiftKey?: boolean;
  readonly altKey?: boolean;
}

export type Command =
  | "tool-select" | "tool-box" | "tool-polygon" | "tool-brush" | "tool-eraser" | "tool-grabcut" | "tool-wand"
  | "undo" | "redo" | "copy" | "cut" | "paste" | "duplicate" | "select-all" | "delete" | "cancel" | "repeat"
  | "next-object" | "previous-object" | "hide" | "show-all" | "lock" | "track" | "next-vertex" | "insert-vertex"
  | "next" | "previous" | "next-unlabelled" | "save" | "accept" | "reject" | "review" | "classify" | "focus-label"
  | "zoom-in" | "zoom-out" | "fit" | "crosshair" | "smaller" | "larger" | "press" | "help";

export interface KeyRow {
  readonly command: Command;
  readonly keys: readonly string[]; // as people write them: "ctrl+shift+z"
  readonly text: string;
  readonly group: "Tools" | "Edit" | "Objects" | "Pictures" | "View";
}

const row = (group: KeyRow["group"], command: Command, keys: string, text: string): KeyRow => ({ group, command, keys: keys.split(" "), text });

export const KEYMAP: readonly KeyRow[] = [
  row("Tools", "tool-select", "s", "Select, move, edit vertices"),
  row("Tools", "tool-box", "b", "Box"),
  row("Tools", "tool-polygon", "p", "Polygon; Enter or a click on its first vertex closes it"),
  row("Tools", "tool-brush", "m", "Brush"),
  row("Tools", "tool-eraser", "e", "Eraser"),
  row("Tools", "tool-grabcut", "a", "Assist: outline of what is in a box"),
  row("Tools", "tool-wand", "w", "Wand: area of one colour"),
  row("Tools", "smaller", "[", "Smaller brush"),
  row("Tools", "larger", "]", "Larger brush"),
  row("Tools", "classify", "k", "Objects or whole pictures"),
  row("Edit", "undo", "ctrl+z", "Undo"),
  row("Edit", "redo", "ctrl+shift+z ctrl+y", "Redo"),
  row("Edit", "copy", "ctrl+c", "Copy shapes"),
  row("Edit", "cut", "ctrl+x", "Cut shapes"),
  row("Edit", "paste", "ctrl+v", "Paste, in this picture or another"),
  row("Edit", "duplicate", "ctrl+d", "Duplicate"),
  row("Edit", "repeat", "r", "Repeat the shapes of the picture before"),
  row("Edit", "delete", "delete backspace", "Delete the vertex or the shapes"),
  row("Edit", "cancel", "escape", "Cancel, select nothing"),
  row("Edit", "save", "ctrl+s", "Save now"),
  row("Objects", "next-object", "tab", "Next object"),
  row("Objects", "previous-object", "shift+tab", "Object before"),
  row("Objects", "select-all", "ctrl+a", "Select all"),
  row("Objects", "next-vertex", "o", "Next vertex; arrows move it"),
  row("Objects", "insert-vertex", "i", "Insert a vertex after it"),
  row("Objects", "hide", "h", "Hide or show"),
  row("Objects", "show-all", "shift+h", "Show all"),
  row("Objects", "lock", "l", "Lock or unlock"),
  row("Objects", "track", "t", "Track it over the frames of a film, or not"),
  row("Objects", "accept", "y", "Accept auto labels that are shown"),
  row("Objects", "reject", "x", "Delete auto labels that are shown"),
  row("Objects", "focus-label", "j", "Name the label"),
  row("Pictures", "next", "f pagedown", "Next picture"),
  row("Pictures", "previous", "d pageup", "Picture before"),
  row("Pictures", "next-unlabelled", "n", "Next without labels"),
  row("Pictures", "review", "v", "Mark as reviewed, or not"),
  row("View", "zoom-in", "+ =", "Zoom in"),
  row("View", "zoom-out", "-", "Zoom out"),
  row("View", "fit", "home .", "Fit the picture"),
  row("View", "crosshair", "c", "Crosshair"),
  row("View", "press", "enter", "Press and release at the cross; arrows move it"),
  row("View", "help", "?", "This sheet"),
];

/** Sentences for keys that are no commands of their own. */
export const MORE_KEYS: readonly (readonly [string, string])[] = [
  ["1 … 9 0", "Label, or category of the picture"],
  ["← ↑ ↓ →", "Move the shape or the cross by a pixel; with Shift by ten"],
  ["alt+← …", "Resize the box"],
  ["space", "Hold and drag to pan; the wheel zooms to the cursor"],
];

/** Returns how a key is written in the map: modifiers first, in one order. */
export function written(press: Press): string {
  const key = press.key === " " ? "space" : press.key.toLowerCase();
  // A sign that needs Shift on some keyboards is the same sign on others.
  const shift = press.shiftKey && (key.length > 1 || /[a-z]/.test(key)) ? "shift+" : "";
  return `${press.ctrlKey || press.metaKey ? "ctrl+" : ""}${press.altKey ? "alt+" : ""}${shift}${key}`;
}

const BY_KEY = new Map(KEYMAP.flatMap((one) => one.keys.map((key) => [key, one.command] as const)));

export const commandOf = (press: Press): Command | null => BY_KEY.get(written(press)) ?? null;

/** Returns which label a digit picks: 1 is the first, 0 the tenth. */
export function digitOf(press: Press): number | null {
  if (press.ctrlKey || press.metaKey || press.altKey || !/^[0-9]$/.test(press.key)) return null;
  return press.key === "0" ? 9 : Number(press.key) - 1;
}

/** Returns the way that an arrow key goes, in pixels of the picture. */
export function arrowOf(press: Press): readonly [number, number] | null {
  const step = press.shiftKey ? 10 : 1;
  const ways: Record<string, readonly [number, number]> = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  return press.ctrlKey || press.metaKey ? null : (ways[press.key] ?? null);
}
