/** The labelling page's state machine: a pure function from a state and an action to the next state. It knows no browser:
 * a pointer, and arrow keys that move a cross over the picture, send it the same actions.
 */
import {
  allowedMove, boxAround, boxBetween, distance, handlePoint, HANDLES, height, insertVertex, insidePicture, moveVertex, nearestEdge,
  pullHandle, removeVertex, snapToBorder, width, type Box, type Handle, type Point, type Size,
} from "./geometry";
import { begin, mapHistory, record, redo, undo, type History } from "./history";
import { withStroke } from "./masks";
import { mergeSheets } from "./merge";
import {
  boxShape, byHand, EMPTY_SHEET, fitShape, freshId, maskShape, moveShape, polygonShape, smallestAt, vertexAt, withRing,
  type Shape, type Sheet, type VertexPlace,
} from "./shapes";

export type Tool = "select" | "box" | "polygon" | "brush" | "eraser" | "grabcut" | "wand";

/** What is being drawn or dragged; the sheet changes when it ends. */
export type Draft =
  | { readonly kind: "box"; readonly from: Point; readonly to: Point; readonly assist: boolean }
  | { readonly kind: "polygon"; readonly points: readonly Point[]; readonly cursor: Point }
  | { readonly kind: "stroke"; readonly points: readonly Point[]; readonly erase: boolean; readonly target: string | null }
  | { readonly kind: "move"; readonly from: Point; readonly to: Point }
  | { readonly kind: "handle"; readonly id: string; readonly handle: Handle; readonly to: Point }
  | { readonly kind: "vertex"; readonly id: string; readonly place: VertexPlace; readonly to: Point }
  | { readonly kind: "marquee"; readonly from: Point; readonly to: Point };

/** What the page has to ask the service for, as an assist tool was used. */
export type AssistRequest = { readonly tool: "grabcut"; readonly box: Box } | { readonly tool: "wand"; readonly point: Point };

export interface Editor {
  readonly size: Size;
  readonly history: History<Sheet>;
  readonly tool: Tool;
  readonly label: string; // that new shapes get
  readonly radius: number; // of the brush, in pixels of the picture
  readonly selected: readonly string[];
  readonly vertex: VertexPlace | null; // of the one selected polygon
  readonly hidden: ReadonlySet<string>;
  readonly locked: ReadonlySet<string>;
  readonly threshold: number; // auto labels of less confidence are not shown
  readonly draft: Draft | null;
  readonly assist: AssistRequest | null;
}

export type Action =
  | { readonly do: "down" | "move" | "up"; readonly at: Point; readonly reach?: number; readonly add?: boolean }
  | { readonly do: "close-polygon" | "cancel" | "undo" | "redo" | "delete" | "select-all" | "next-vertex" | "insert-vertex" | "accept" | "reject" | "accept-category" | "reject-category" | "show-all" }
  | { readonly do: "tool"; readonly tool: Tool }
  | { readonly do: "label"; readonly label: string }
  | { readonly do: "radius"; readonly radius: number }
  | { readonly do: "threshold"; readonly threshold: number }
  | { readonly do: "category"; readonly category: string | null }
  | { readonly do: "select"; readonly ids: readonly string[] }
  | { readonly do: "cycle"; readonly by: 1 | -1 }
  | { readonly do: "hide" | "lock"; readonly ids: readonly string[] }
  | { readonly do: "nudge"; readonly by: Point; readonly resize?: boolean }
  | { readonly do: "add"; readonly shapes: readonly Shape[]; readonly offset?: Point; readonly tracks?: boolean }
  | { readonly do: "track"; readonly track: string | null }
  | { readonly do: "assisted"; readonly polygons: readonly (readonly Point[])[] }
  | { readonly do: "replace"; readonly sheet: Sheet }
  | { readonly do: "rebase"; readonly base: Sheet; readonly theirs: Sheet }
  | { readonly do: "rename"; readonly from: string; readonly to: string };

const SMALLEST = 2; // pixels a side of a box that was drawn must have; less is a click

export function makeEditor(size: Size, sheet: Sheet = EMPTY_SHEET, keep: Partial<Editor> = {}): Editor {
  return {
    tool: keep.tool ?? "box", label: keep.label ?? "", radius: keep.radius ?? 12, threshold: keep.threshold ?? 0,
    size, history: begin(sheet), selected: [], vertex: null, hidden: new Set(), locked: new Set(), draft: null, assist: null,
  };
}

export const sheetOf = (editor: Editor): Sheet => editor.history.now;

/** Returns whether a shape is on the page: not hidden, and not below the threshold of confidence. */
export function isShown(editor: Editor, shape: Shape): boolean {
  return !editor.hidden.has(shape.id) && (shape.confidence === null || shape.confidence >= editor.threshold);
}

/** Returns the shapes that are on the page, where they were before a drag; others are the same objects as before. */
export function settledShapes(editor: Editor): readonly Shape[] {
  return sheetOf(editor).shapes.filter((shape) => isShown(editor, shape));
}

/** Returns the shapes that are on the page, the dragged ones where they are now. */
export function shownShapes(editor: Editor): readonly Shape[] {
  const { draft } = editor;
  const shown = settledShapes(editor);
  return draft && isDrag(draft) ? shown.map(dragger(editor, draft)) : shown;
}

type Drag = Extract<Draft, { kind: "move" | "handle" | "vertex" }>;
const isDrag = (draft: Draft): draft is Drag => draft.kind === "move" || draft.kind === "handle" || draft.kind === "vertex";

/** What a drag changes: a stage draws these shapes apart, so that all others stand still. */
export interface Lifted {
  readonly ids: readonly string[];
  readonly by: Point; // how far they have moved as they are
  readonly changed: Shape | null; // the one whose handle or vertex is pulled, as it is now
}

export function lifted(editor: Editor): Lifted | null {
  const { draft } = editor;
  if (!draft || !isDrag(draft)) return null;
  if (draft.kind === "move") return { ids: editor.selected.filter((id) => !editor.locked.has(id)), by: moveBy(editor, draft.from, draft.to), changed: null };
  const shape = sheetOf(editor).shapes.find((one) => one.id === draft.id);
  return shape ? { ids: [shape.id], by: [0, 0], changed: dragger(editor, draft)(shape) } : null;
}

export function selectedShapes(editor: Editor): readonly Shape[] {
  if (editor.selected.length === 0) return [];
  const chosen = new Set(editor.selected);
  return sheetOf(editor).shapes.filter((shape) => chosen.has(shape.id));
}

/** Returns what a drag makes of each shape. */
function dragger(editor: Editor, draft: Drag): (shape: Shape) => Shape {
  if (draft.kind === "move") {
    const free = new Set(editor.selected.filter((id) => !editor.locked.has(id)));
    const by = moveBy(editor, draft.from, draft.to);
    return (shape) => (free.has(shape.id) ? moveShape(shape, by) : shape);
  }
  if (draft.kind === "handle") {
    return (shape) => (shape.id === draft.id ? byHand({ ...shape, box: boxShape("", "", pullHandle(shape.box, draft.handle, draft.to)).box }) : shape);
  }
  return (shape) => (shape.id === draft.id ? withRing(shape, draft.place.ring, moveVertex(shape.polygons[draft.place.ring] ?? [], draft.place.index, draft.to)) : shape);
}

function moveBy(editor: Editor, from: Point, to: Point): Point {
  const free = selectedShapes(editor).filter((shape) => !editor.locked.has(shape.id));
  const around = boxAround(free.flatMap(({ box }) => [[box[0], box[1]] as const, [box[2], box[3]] as const]));
  return allowedMove(around, [to[0] - from[0], to[1] - from[1]], editor.size);
}

function change(editor: Editor, sheet: Sheet): Editor {
  return { ...editor, history: record(editor.history, sheet) };
}

function changeShapes(editor: Editor, shapes: readonly Shape[]): Editor {
  const before = sheetOf(editor).shapes;
  const same = shapes.length === before.length && shapes.every((shape, index) => shape === before[index]);
  return same ? editor : change(editor, { ...sheetOf(editor), shapes });
}

function mapSelected(editor: Editor, one: (shape: Shape) => Shape): Editor {
  const free = new Set(editor.selected.filter((id) => !editor.locked.has(id)));
  return changeShapes(editor, sheetOf(editor).shapes.map((shape) => (free.has(shape.id) ? one(shape) : shape)));
}

function add(editor: Editor, shape: Shape): Editor {
  return { ...changeShapes(editor, [...sheetOf(editor).shapes, shape]), selected: [shape.id], vertex: null };
}

/** Returns the next state. */
export function act(editor: Editor, action: Action): Editor {
  switch (action.do) {
    case "down": return down(editor, action.at, action.reach ?? 4, action.add ?? false);
    case "move": return moved(editor, action.at, action.reach ?? 4);
    case "up": return up(editor, action.at);
    case "close-polygon": return closePolygon(editor);
    case "cancel": return editor.draft ? { ...editor, draft: null } : { ...editor, selected: [], vertex: null };
    case "undo":
      if (editor.draft?.kind === "polygon") return undoVertex(editor, editor.draft);
      return settle({ ...editor, draft: null, history: undo(editor.history) });
    case "redo": return settle({ ...editor, draft: null, history: redo(editor.history) });
    case "tool": return { ...editor, tool: action.tool, draft: null, vertex: null };
    case "label": return mapSelected({ ...editor, label: action.label }, (shape) => (shape.label === action.label ? shape : { ...byHand(shape), label: action.label }));
    case "radius": return { ...editor, radius: Math.min(400, Math.max(1, action.radius)) };
    case "threshold": return { ...editor, threshold: action.threshold };
    case "category": return change(editor, { ...sheetOf(editor), category: action.category, category_confidence: null });
    case "select": return { ...editor, selected: action.ids, vertex: null };
    case "select-all": return { ...editor, selected: sheetOf(editor).shapes.filter((shape) => isShown(editor, shape)).map((shape) => shape.id), vertex: null };
    case "cycle": return cycle(editor, action.by);
    case "delete": return remove(editor);
    case "hide": return { ...editor, hidden: toggled(editor.hidden, action.ids), selected: editor.selected.filter((id) => !action.ids.includes(id)) };
    case "lock": return { ...editor, locked: toggled(editor.locked, action.ids) };
    case "show-all": return { ...editor, hidden: new Set() };
    case "nudge": return nudge(editor, action.by, action.resize ?? false);
    case "next-vertex": return nextVertex(editor);
    case "insert-vertex": return insertAfter(editor);
    case "accept": return changeShapes(editor, accepted(editor));
    case "reject": return reject(editor);
    case "accept-category": return judgeCategory(editor, sheetOf(editor).category);
    case "reject-category": return judgeCategory(editor, null);
    case "add": return addAll(editor, action.shapes, action.offset ?? [0, 0], action.tracks ?? false);
    case "track": return mapSelected(editor, (shape) => ({ ...byHand(shape), track: action.track }));
    case "assisted": return assisted(editor, action.polygons);
    case "replace": return settle({ ...change(editor, action.sheet), draft: null });
    case "rebase": return settle({ ...editor, history: mapHistory(editor.history, (sheet) => mergeSheets(action.base, sheet, action.theirs).sheet) });
    case "rename": return changeShapes(editor, sheetOf(editor).shapes.map((shape) => (shape.label === action.from ? { ...shape, label: action.to } : shape)));
  }
}

/** Drops the selection of what is no longer there. */
function settle(editor: Editor): Editor {
  const there = new Set(sheetOf(editor).shapes.map((shape) => shape.id));
  return { ...editor, selected: editor.selected.filter((id) => there.has(id)), vertex: null };
}

function toggled(set: ReadonlySet<string>, ids: readonly string[]): ReadonlySet<string> {
  const next = new Set(set);
  const off = ids.every((id) => set.has(id));
  ids.forEach((id) => (off ? next.delete(id) : next.add(id)));
  return next;
}

function down(editor: Editor, at: Point, reach: number, extend: boolean): Editor {
  const start = snapToBorder(at, editor.size, reach);
  switch (editor.tool) {
    case "select": return grab(editor, at, reach, extend);
    case "box":
    case "grabcut": return { ...editor, selected: [], vertex: null, draft: { kind: "box", from: start, to: start, assist: editor.tool === "grabcut" } };
    case "wand": return { ...editor, assist: { tool: "wand", point: insidePicture(at, editor.size) } };
    case "brush":
    case "eraser": return startStroke(editor, insidePicture(at, editor.size));
    case "polygon": return polygonPoint(editor, start, reach);
  }
}

function polygonPoint(editor: Editor, at: Point, reach: number): Editor {
  const { draft } = editor;
  if (draft?.kind !== "polygon") return { ...editor, selected: [], vertex: null, draft: { kind: "polygon", points: [at], cursor: at } };
  const [first, last] = [draft.points[0]!, draft.points.at(-1)!];
  if (draft.points.length >= 3 && (distance(at, first) <= reach * 1.5 || distance(at, last) <= 0.5)) return closePolygon(editor);
  if (distance(at, last) <= 0.5) return editor;
  return { ...editor, draft: { kind: "polygon", points: [...draft.points, at], cursor: at } };
}

function closePolygon(editor: Editor): Editor {
  if (editor.draft?.kind !== "polygon") return editor;
  const { points } = editor.draft;
  const without = { ...editor, draft: null };
  return points.length < 3 ? without : add(without, polygonShape(freshId(), editor.label, [points]));
}

function undoVertex(editor: Editor, draft: Draft & { kind: "polygon" }): Editor {
  const points = draft.points.slice(0, -1);
  return { ...editor, draft: points.length ? { ...draft, points } : null };
}

function startStroke(editor: Editor, at: Point): Editor {
  const target = selectedShapes(editor).find((shape) => shape.mask && !editor.locked.has(shape.id))?.id ?? null;
  const erase = editor.tool === "eraser";
  // The eraser works on the selected mask, or on the one that it touches first.
  const touched = erase && target === null ? smallestAt(sheetOf(editor).shapes.filter((shape) => shape.mask && isShown(editor, shape) && !editor.locked.has(shape.id)), at, editor.radius)?.id ?? null : target;
  if (erase && touched === null) return editor;
  return { ...editor, draft: { kind: "stroke", points: [at], erase, target: touched } };
}

function grab(editor: Editor, at: Point, reach: number, extend: boolean): Editor {
  const chosen = selectedShapes(editor);
  const one = chosen.length === 1 && !editor.locked.has(chosen[0]!.id) ? chosen[0]! : null;
  if (one && !extend) {
    const place = vertexAt(one, at, reach * 1.5);
    if (place) return { ...editor, vertex: place, draft: { kind: "vertex", id: one.id, place, to: one.polygons[place.ring]![place.index]! } };
    const handle = one.polygons.length || one.mask ? null : handleAt(one.box, at, reach * 1.5);
    if (handle) return { ...editor, draft: { kind: "handle", id: one.id, handle, to: handlePoint(one.box, handle) } };
    const edge = edgeAt(one, at, reach);
    // A press on an edge of the selected polygon makes a vertex there, which the pointer then drags.
    if (edge) {
      const ring = insertVertex(one.polygons[edge.ring]!, edge.index, edge.at);
      const made = changeShapes(editor, sheetOf(editor).shapes.map((shape) => (shape.id === one.id ? withRing(one, edge.ring, ring) : shape)));
      const at_ = { ring: edge.ring, index: edge.index + 1 };
      return { ...made, vertex: at_, draft: { kind: "vertex", id: one.id, place: at_, to: edge.at } };
    }
  }
  const hit = smallestAt(sheetOf(editor).shapes.filter((shape) => isShown(editor, shape)), at, reach);
  if (!hit) return { ...editor, selected: extend ? editor.selected : [], vertex: null, draft: { kind: "marquee", from: at, to: at } };
  if (extend) return { ...editor, vertex: null, selected: editor.selected.includes(hit.id) ? editor.selected.filter((id) => id !== hit.id) : [...editor.selected, hit.id] };
  const selected = editor.selected.includes(hit.id) ? editor.selected : [hit.id];
  return { ...editor, selected, vertex: null, draft: editor.locked.has(hit.id) ? null : { kind: "move", from: at, to: at } };
}

export function handleAt(box: Box, at: Point, reach: number): Handle | null {
  let best: { handle: Handle; far: number } | null = null;
  for (const handle of HANDLES) {
    const far = distance(handlePoint(box, handle), at);
    if (far <= reach && (best === null || far < best.far)) best = { handle, far };
  }
  return best?.handle ?? null;
}

export function edgeAt(shape: Shape, at: Point, reach: number): (VertexPlace & { at: Point }) | null {
  for (const [ring, points] of shape.polygons.entries()) {
    const edge = nearestEdge(points, at);
    if (edge.distance <= reach) return { ring, index: edge.index, at: edge.at };
  }
  return null;
}

function moved(editor: Editor, at: Point, reach: number): Editor {
  const { draft } = editor;
  if (!draft) return editor;
  const snapped = snapToBorder(at, editor.size, reach);
  switch (draft.kind) {
    case "box": return { ...editor, draft: { ...draft, to: snapped } };
    case "polygon": return { ...editor, draft: { ...draft, cursor: snapped } };
    case "stroke": return { ...editor, draft: { ...draft, points: [...draft.points, insidePicture(at, editor.size)] } };
    case "handle":
    case "vertex": return { ...editor, draft: { ...draft, to: snapped } };
    case "move":
    case "marquee": return { ...editor, draft: { ...draft, to: at } };
  }
}

function up(editor: Editor, at: Point): Editor {
  const { draft } = editor;
  if (!draft || draft.kind === "polygon") return editor;
  const without: Editor = { ...editor, draft: null };
  if (draft.kind === "box") return endBox(without, draft);
  if (draft.kind === "stroke") return endStroke(without, draft);
  if (draft.kind === "marquee") return endMarquee(without, draft.from, at);
  const unmoved = draft.kind === "move" && distance(draft.from, draft.to) === 0;
  if (unmoved) return without;
  return changeShapes(without, sheetOf(editor).shapes.map(dragger(editor, draft)));
}

function endBox(editor: Editor, draft: Draft & { kind: "box" }): Editor {
  const box = boxBetween(draft.from, draft.to);
  if (width(box) < SMALLEST || height(box) < SMALLEST) return clicked(editor, draft.from);
  return draft.assist ? { ...editor, assist: { tool: "grabcut", box } } : add(editor, boxShape(freshId(), editor.label, box));
}

/** A click with the box tool selects what is there: one need not change tools to correct a label. */
function clicked(editor: Editor, at: Point): Editor {
  const hit = smallestAt(sheetOf(editor).shapes.filter((shape) => isShown(editor, shape)), at, 3);
  return { ...editor, selected: hit ? [hit.id] : [], vertex: null };
}

function endStroke(editor: Editor, draft: Draft & { kind: "stroke" }): Editor {
  const { shapes } = sheetOf(editor);
  const old = shapes.find((shape) => shape.id === draft.target);
  const mask = withStroke(old?.mask ?? null, editor.size, draft.points, editor.radius, draft.erase ? 0 : 1);
  if (!old) {
    const made = maskShape(freshId(), editor.label, mask);
    return made ? add(editor, made) : editor;
  }
  const next = maskShape(old.id, old.label, mask);
  if (!next) return settle(changeShapes(editor, shapes.filter((shape) => shape !== old)));
  return changeShapes(editor, shapes.map((shape) => (shape === old ? byHand({ ...old, mask, box: next.box }) : shape)));
}

function endMarquee(editor: Editor, from: Point, to: Point): Editor {
  const area = boxBetween(from, to);
  if (width(area) < SMALLEST && height(area) < SMALLEST) return editor;
  const within = sheetOf(editor).shapes.filter(({ box }) => box[0] >= area[0] && box[1] >= area[1] && box[2] <= area[2] && box[3] <= area[3]);
  const ids = within.filter((shape) => isShown(editor, shape)).map((shape) => shape.id);
  return { ...editor, selected: [...new Set([...editor.selected, ...ids])] };
}

function cycle(editor: Editor, by: 1 | -1): Editor {
  const ids = sheetOf(editor).shapes.filter((shape) => isShown(editor, shape)).map((shape) => shape.id);
  if (ids.length === 0) return editor;
  const here = ids.indexOf(editor.selected.at(-1) ?? "");
  const next = here === -1 ? (by === 1 ? 0 : ids.length - 1) : (here + by + ids.length) % ids.length;
  return { ...editor, selected: [ids[next]!], vertex: null };
}

function remove(editor: Editor): Editor {
  if (editor.draft?.kind === "polygon") return undoVertex(editor, editor.draft);
  const one = selectedShapes(editor);
  if (editor.vertex && one.length === 1) {
    const ring = one[0]!.polygons[editor.vertex.ring] ?? [];
    const less = removeVertex(ring, editor.vertex.index);
    if (less === ring) return editor;
    return { ...mapSelected(editor, (shape) => withRing(shape, editor.vertex!.ring, less)), vertex: null };
  }
  const gone = new Set(editor.selected.filter((id) => !editor.locked.has(id)));
  return settle(changeShapes(editor, sheetOf(editor).shapes.filter((shape) => !gone.has(shape.id))));
}

function nudge(editor: Editor, by: Point, resize: boolean): Editor {
  const one = selectedShapes(editor);
  if (editor.vertex && one.length === 1) {
    const { ring, index } = editor.vertex;
    return mapSelected(editor, (shape) => {
      const vertex = shape.polygons[ring]![index]!;
      return withRing(shape, ring, moveVertex(shape.polygons[ring]!, index, insidePicture([vertex[0] + by[0], vertex[1] + by[1]], editor.size)));
    });
  }
  if (!resize) {
    const allowed = moveBy(editor, [0, 0], by);
    return mapSelected(editor, (shape) => moveShape(shape, allowed));
  }
  return mapSelected(editor, (shape) => {
    if (shape.polygons.length || shape.mask) return shape;
    const corner = insidePicture([Math.max(shape.box[0] + 1, shape.box[2] + by[0]), Math.max(shape.box[1] + 1, shape.box[3] + by[1])], editor.size);
    return byHand({ ...shape, box: boxShape("", "", pullHandle(shape.box, "se", corner)).box });
  });
}

function nextVertex(editor: Editor): Editor {
  const shape = selectedShapes(editor)[0];
  if (!shape || shape.polygons.length === 0) return editor;
  const places = shape.polygons.flatMap((points, ring) => points.map((_, index) => ({ ring, index })));
  const here = places.findIndex((place) => place.ring === editor.vertex?.ring && place.index === editor.vertex.index);
  return { ...editor, vertex: places[(here + 1) % places.length]! };
}

/** Puts a vertex into the middle of the edge after the selected one. */
function insertAfter(editor: Editor): Editor {
  const shape = selectedShapes(editor)[0];
  const place = editor.vertex ?? { ring: 0, index: 0 };
  const ring = shape?.polygons[place.ring];
  if (!shape || !ring) return editor;
  const [a, b] = [ring[place.index]!, ring[(place.index + 1) % ring.length]!];
  const middle: Point = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  return { ...mapSelected(editor, (old) => withRing(old, place.ring, insertVertex(ring, place.index, middle))), vertex: { ring: place.ring, index: place.index + 1 } };
}

/** Returns the auto labels that an acceptance or a rejection is about: the selected ones, else all that are shown. */
export function judged(editor: Editor): readonly Shape[] {
  const auto = (shape: Shape): boolean => shape.confidence !== null && isShown(editor, shape);
  const chosen = selectedShapes(editor).filter(auto);
  return chosen.length ? chosen : sheetOf(editor).shapes.filter(auto);
}

function accepted(editor: Editor): readonly Shape[] {
  const those = new Set(judged(editor).map((shape) => shape.id));
  return sheetOf(editor).shapes.map((shape) => (those.has(shape.id) ? byHand(shape) : shape));
}

function reject(editor: Editor): Editor {
  const those = new Set(judged(editor).map((shape) => shape.id));
  return settle(changeShapes(editor, sheetOf(editor).shapes.filter((shape) => !those.has(shape.id))));
}

/** Ends the doubt about a category that a model chose: a person takes it, or takes it away. */
function judgeCategory(editor: Editor, category: string | null): Editor {
  const sheet = sheetOf(editor);
  return sheet.category_confidence === null ? editor : change(editor, { ...sheet, category, category_confidence: null });
}

/** Adds copies of shapes; those of another frame of the same film stay in their tracks, which have one box a frame. */
function addAll(editor: Editor, shapes: readonly Shape[], offset: Point, tracks: boolean): Editor {
  const taken = new Set(sheetOf(editor).shapes.map((shape) => shape.track));
  const fitted = shapes.flatMap((shape) => {
    const made = fitShape(moveShape(shape, offset), editor.size, freshId());
    return made ? { ...made, track: tracks && !taken.has(shape.track) ? shape.track : null } : [];
  });
  if (fitted.length === 0) return editor;
  return { ...changeShapes(editor, [...sheetOf(editor).shapes, ...fitted]), selected: fitted.map((shape) => shape.id), vertex: null };
}

function assisted(editor: Editor, polygons: readonly (readonly Point[])[]): Editor {
  const rings = polygons.filter((ring) => ring.length >= 3);
  const done = { ...editor, assist: null };
  return rings.length ? add(done, polygonShape(freshId(), editor.label, rings)) : done;
}
