// @vitest-environment node
import { describe, expect, it } from "vitest";
import { act, lifted, makeEditor, settledShapes, sheetOf, shownShapes, type Action, type Editor, type Tool } from "../editor";
import type { Point } from "../geometry";
import { runsArea } from "../masks";
import { boxShape, kindOf, polygonShape, spokenShape, type Shape } from "../shapes";
import { drawnIn, freshTrack, nearestShape, toFill, tracksOf } from "../tracks";

const SIZE = { width: 200, height: 100 };
const run = (editor: Editor, ...actions: Action[]): Editor => actions.reduce(act, editor);
const drag = (from: Point, to: Point): Action[] => [{ do: "down", at: from }, { do: "move", at: to }, { do: "up", at: to }];
const drawn = (tool: Tool = "box"): Editor => makeEditor(SIZE, undefined, { tool, label: "cat" });
const auto = (id: string, confidence: number): Shape => ({ ...boxShape(id, "cat", [0, 0, 10, 10]), confidence, model: "m@1" });
const holding = (...shapes: Shape[]): Editor => makeEditor(SIZE, { category: null, category_confidence: null, shapes }, { tool: "select", label: "dog" });
const triangle = polygonShape("t", "cat", [[[20, 20], [60, 20], [40, 60]]]);

describe("drawing", () => {
  it("makes a box in whichever way it was drawn, selected and read aloud", () => {
    const editor = run(drawn(), ...drag([120, 90], [20, 10]));
    const [shape] = sheetOf(editor).shapes;
    expect(shape!.box).toEqual([20, 10, 120, 90]);
    expect(editor.selected).toEqual([shape!.id]);
    expect(spokenShape(shape!)).toBe("box cat, 100 by 80");
  });

  it("snaps to the border and never leaves the picture", () => {
    const [shape] = sheetOf(run(drawn(), ...drag([2, 3], [250, 98]))).shapes;
    expect(shape!.box).toEqual([0, 0, 200, 100]);
  });

  it("takes a click with the box tool for a choice of what is there", () => {
    const editor = run(drawn(), ...drag([10, 10], [50, 50]), { do: "cancel" }, ...drag([30, 30], [30, 30]));
    expect(sheetOf(editor).shapes).toHaveLength(1);
    expect(editor.selected).toEqual([sheetOf(editor).shapes[0]!.id]);
  });

  it("closes a polygon at its first vertex, and drops one of two vertices", () => {
    const click = (x: number, y: number): Action[] => drag([x, y], [x, y]);
    const editor = run(drawn("polygon"), ...click(20, 20), ...click(60, 20), ...click(40, 60), ...click(21, 21));
    expect(sheetOf(editor).shapes.map(kindOf)).toEqual(["polygon"]);
    expect(sheetOf(editor).shapes[0]!.polygons).toEqual([[[20, 20], [60, 20], [40, 60]]]);
    expect(sheetOf(run(drawn("polygon"), ...click(20, 20), ...click(60, 20), { do: "close-polygon" })).shapes).toEqual([]);
  });

  it("undoes vertices of a polygon that is being drawn, one by one", () => {
    const click = (x: number, y: number): Action[] => drag([x, y], [x, y]);
    const editor = run(drawn("polygon"), ...click(20, 20), ...click(60, 20), { do: "undo" });
    expect(editor.draft).toMatchObject({ kind: "polygon", points: [[20, 20]] });
    expect(act(editor, { do: "undo" }).draft).toBeNull();
  });

  it("paints, erases, and forgets a mask of which nothing is left", () => {
    const painted = run(drawn("brush"), { do: "radius", radius: 5 }, ...drag([50, 50], [80, 50]));
    const [mask] = sheetOf(painted).shapes;
    expect(kindOf(mask!)).toBe("mask");
    expect(mask!.box).toEqual([45, 45, 85, 55]);
    const more = run(painted, ...drag([80, 50], [90, 50])); // the selected mask grows
    expect(sheetOf(more).shapes).toHaveLength(1);
    expect(runsArea(sheetOf(more).shapes[0]!.mask!)).toBeGreaterThan(runsArea(mask!.mask!));
    const less = run(more, { do: "tool", tool: "eraser" }, { do: "radius", radius: 30 }, ...drag([40, 50], [120, 50]));
    expect(sheetOf(less).shapes).toEqual([]);
    expect(sheetOf(act(less, { do: "undo" })).shapes[0]!.id).toBe(mask!.id);
  });
});

describe("undo and redo", () => {
  it("go back to the first state and forth to the last, hundreds of changes", () => {
    let editor = drawn();
    for (let turn = 0; turn < 300; turn += 1) editor = run(editor, ...drag([turn % 90, 0], [(turn % 90) + 20, 40]));
    const last = sheetOf(editor);
    for (let turn = 0; turn < 300; turn += 1) editor = act(editor, { do: "undo" });
    expect(sheetOf(editor).shapes).toEqual([]);
    expect(sheetOf(act(editor, { do: "undo" })).shapes).toEqual([]);
    for (let turn = 0; turn < 300; turn += 1) editor = act(editor, { do: "redo" });
    expect(sheetOf(editor)).toBe(last);
  });

  it("forget what was undone once something else is done", () => {
    const editor = run(drawn(), ...drag([0, 0], [20, 20]), { do: "undo" }, ...drag([50, 50], [90, 90]), { do: "redo" });
    expect(sheetOf(editor).shapes.map((shape) => shape.box)).toEqual([[50, 50, 90, 90]]);
  });

  it("never undo what somebody else did", () => {
    const base = { category: null, category_confidence: null, shapes: [boxShape("a", "cat", [0, 0, 10, 10])] };
    const editor = run(makeEditor(SIZE, base, { tool: "box", label: "cat" }), ...drag([50, 50], [90, 90]), { do: "rebase", base, theirs: { ...base, shapes: [...base.shapes, boxShape("theirs", "dog", [20, 20, 40, 40])] } });
    expect(sheetOf(editor).shapes).toHaveLength(3);
    expect(sheetOf(act(editor, { do: "undo" })).shapes.map((shape) => shape.id)).toEqual(["a", "theirs"]);
  });

  it("take no step for what changes nothing", () => {
    const editor = run(holding(boxShape("a", "cat", [10, 10, 30, 30])), ...drag([20, 20], [20, 20]), { do: "reject" }, { do: "label", label: "cat" });
    expect(editor.history.past).toBeNull();
  });
});

describe("editing", () => {
  it("selects the smallest shape at a point and moves it within the picture", () => {
    const editor = holding(boxShape("large", "cat", [0, 0, 200, 100]), boxShape("small", "cat", [150, 40, 190, 60]));
    const moved = run(editor, ...drag([160, 50], [400, 50]));
    expect(moved.selected).toEqual(["small"]);
    expect(sheetOf(moved).shapes[1]!.box).toEqual([160, 40, 200, 60]);
    expect(sheetOf(moved).shapes[0]).toBe(sheetOf(editor).shapes[0]); // others stay the same objects
  });

  it("shows the dragged shape where it is, before the sheet changes", () => {
    const editor = run(holding(boxShape("a", "cat", [10, 10, 30, 30])), { do: "down", at: [20, 20] }, { do: "move", at: [25, 22] });
    expect(shownShapes(editor)[0]!.box).toEqual([15, 12, 35, 32]);
    expect(sheetOf(editor).shapes[0]!.box).toEqual([10, 10, 30, 30]);
  });

  it("pulls handles past each other", () => {
    const editor = run(holding(boxShape("a", "cat", [50, 30, 90, 60])), { do: "select", ids: ["a"] }, ...drag([90, 60], [20, 10]));
    expect(sheetOf(editor).shapes[0]!.box).toEqual([20, 10, 50, 30]);
  });

  it("drags, adds and deletes vertices, but never below a triangle", () => {
    const chosen = run(holding(triangle), { do: "select", ids: ["t"] });
    const dragged = run(chosen, ...drag([60, 20], [80, 10]));
    expect(sheetOf(dragged).shapes[0]!.polygons[0]![1]).toEqual([80, 10]);
    expect(sheetOf(dragged).shapes[0]!.box).toEqual([20, 10, 80, 60]);
    const added = run(chosen, ...drag([40, 20], [40, 5]));
    expect(sheetOf(added).shapes[0]!.polygons).toEqual([[[20, 20], [40, 5], [60, 20], [40, 60]]]);
    const less = act(added, { do: "delete" }); // the vertex that was just made
    expect(sheetOf(less).shapes[0]!.polygons).toEqual(triangle.polygons);
    expect(sheetOf(run(less, { do: "next-vertex" }, { do: "delete" })).shapes[0]!.polygons).toEqual(triangle.polygons);
  });

  it("walks over vertices and moves them by keys", () => {
    const editor = run(holding(triangle), { do: "cycle", by: 1 }, { do: "next-vertex" }, { do: "next-vertex" }, { do: "nudge", by: [5, -30] }, { do: "insert-vertex" });
    expect(sheetOf(editor).shapes[0]!.polygons).toEqual([[[20, 20], [65, 0], [52.5, 30], [40, 60]]]);
    expect(editor.vertex).toEqual({ ring: 0, index: 2 });
  });

  it("leaves locked shapes alone, and hidden ones unselectable", () => {
    const editor = run(holding(boxShape("a", "cat", [10, 10, 30, 30])), { do: "lock", ids: ["a"] }, { do: "select", ids: ["a"] }, { do: "nudge", by: [5, 5] }, { do: "delete" }, { do: "label", label: "dog" });
    expect(sheetOf(editor).shapes[0]).toMatchObject({ box: [10, 10, 30, 30], label: "cat" });
    const hidden = run(editor, { do: "hide", ids: ["a"] }, { do: "down", at: [20, 20] });
    expect([shownShapes(hidden), hidden.selected]).toEqual([[], []]);
  });

  it("adds shapes of another picture: cut at the border, new names, no confidence", () => {
    const editor = run(holding(), { do: "add", shapes: [auto("x", 0.4), boxShape("y", "cat", [190, 90, 300, 300]), boxShape("z", "cat", [400, 0, 500, 50])] });
    expect(sheetOf(editor).shapes.map((shape) => [shape.box, shape.confidence])).toEqual([[[0, 0, 10, 10], null], [[190, 90, 200, 100], null]]);
    expect(sheetOf(editor).shapes.map((shape) => shape.id)).not.toContain("x");
    expect(sheetOf(act(editor, { do: "undo" })).shapes).toEqual([]);
  });

  it("selects what a frame is drawn around", () => {
    const editor = run(holding(boxShape("a", "cat", [10, 10, 30, 30]), boxShape("b", "cat", [100, 10, 130, 30])), ...drag([5, 5], [60, 60]));
    expect(editor.selected).toEqual(["a"]);
  });
});

describe("auto labels", () => {
  it("hide below the threshold; acceptance and rejection are about what is shown", () => {
    const editor = run(holding(auto("a", 0.9), auto("b", 0.3)), { do: "threshold", threshold: 0.5 });
    expect(shownShapes(editor).map((shape) => shape.id)).toEqual(["a"]);
    expect(sheetOf(act(editor, { do: "accept" })).shapes.map((shape) => shape.confidence)).toEqual([null, 0.3]);
    expect(sheetOf(act(editor, { do: "reject" })).shapes.map((shape) => shape.id)).toEqual(["b"]);
    expect(sheetOf(run(editor, { do: "threshold", threshold: 0 }, { do: "select", ids: ["b"] }, { do: "reject" })).shapes.map((shape) => shape.id)).toEqual(["a"]);
  });

  it("become a person's by a correction", () => {
    const editor = run(holding(auto("a", 0.9)), { do: "select", ids: ["a"] }, { do: "nudge", by: [3, 0] });
    expect(sheetOf(editor).shapes[0]).toMatchObject({ confidence: null, box: [3, 0, 13, 10] });
  });
});

describe("assist", () => {
  it("asks for an outline, and makes the answer a polygon of the label", () => {
    const asked = run(drawn("grabcut"), ...drag([10, 10], [90, 90]));
    expect(asked.assist).toEqual({ tool: "grabcut", box: [10, 10, 90, 90] });
    const done = act(asked, { do: "assisted", polygons: [[[20, 20], [60, 20], [40, 60]], [[1, 1]]] });
    expect(done.assist).toBeNull();
    expect(sheetOf(done).shapes[0]).toMatchObject({ label: "cat", polygons: [[[20, 20], [60, 20], [40, 60]]] });
  });
});

describe("a drag among many shapes", () => {
  const many = Array.from({ length: 3 }, (_, number) => boxShape(`s${number}`, "RBC", [number * 30, 10, number * 30 + 20, 30]));
  const begun = (...actions: Action[]): Editor => actions.reduce(act, makeEditor({ width: 200, height: 100 }, { category: null, category_confidence: null, shapes: many }, { tool: "select" }));

  it("lifts what is dragged and leaves the same objects in place", () => {
    const before = begun({ do: "select", ids: ["s1"] });
    const editor = act(act(before, { do: "down", at: [40, 20], reach: 1 }), { do: "move", at: [50, 25] });
    expect(lifted(editor)).toEqual({ ids: ["s1"], by: [10, 5], changed: null });
    expect(settledShapes(editor).every((shape, index) => shape === many[index])).toBe(true);
    expect(sheetOf(act(editor, { do: "up", at: [50, 25] })).shapes[1]!.box).toEqual([40, 15, 60, 35]);
  });

  it("shows the shape whose corner is pulled as it is now", () => {
    const editor = act(act(begun({ do: "select", ids: ["s0"] }), { do: "down", at: [20, 30], reach: 2 }), { do: "move", at: [26, 40] });
    expect(lifted(editor)?.changed?.box).toEqual([0, 10, 26, 40]);
    expect(lifted(act(editor, { do: "up", at: [26, 40] }))).toBeNull();
  });

  it("lifts no shape that is locked", () => {
    const editor = begun({ do: "select-all" }, { do: "lock", ids: ["s2"] }, { do: "down", at: [5, 20], reach: 1 }, { do: "move", at: [5, 25] });
    expect(lifted(editor)?.ids).toEqual(["s0", "s1"]);
  });
});

describe("tracks", () => {
  const between: Shape = { ...boxShape("a", "ball", [0, 0, 10, 10]), track: "ball 1", model: "interpolation" };
  const frame = (shapes: Shape[]): Editor => makeEditor({ width: 100, height: 100 }, { category: null, category_confidence: null, shapes }, { tool: "select" });

  it("makes a box that was put between one's own when it is corrected", () => {
    const editor = act(act(frame([between]), { do: "select", ids: ["a"] }), { do: "nudge", by: [3, 0] });
    expect(sheetOf(editor).shapes[0]).toMatchObject({ track: "ball 1", model: null, box: [3, 0, 13, 10] });
  });

  it("keeps the track of what comes from another frame, once in each", () => {
    const once = act(frame([]), { do: "add", shapes: [between], tracks: true });
    const twice = act(once, { do: "add", shapes: [between], tracks: true });
    expect(sheetOf(twice).shapes.map((shape) => [shape.track, shape.model])).toEqual([["ball 1", null], [null, null]]);
    expect(sheetOf(act(frame([]), { do: "add", shapes: [between] })).shapes[0]!.track).toBeNull();
  });

  it("counts what was drawn and what a filling would put between", () => {
    const drawn = { ...between, model: null };
    const frames = [0, 1, 2, 3, 4].map((time_s) => ({ file: `f${time_s}`, time_s, shapes: time_s === 1 || time_s === 4 ? [drawn] : time_s === 2 ? [between] : [] }));
    const [track] = tracksOf(frames);
    expect(track!.marks.map((one) => one.mark)).toEqual(["none", "drawn", "between", "none", "drawn"]);
    expect([drawnIn(track!), toFill(track!)]).toEqual([2, 2]);
    expect(nearestShape(frames, "ball 1", 0)).toBe(drawn);
    expect(freshTrack("ball", ["ball 1"])).toBe("ball 2");
  });
});

it("takes a category that a model chose, or takes it away, and both can be undone", () => {
  const doubtful = makeEditor({ width: 10, height: 10 }, { category: "ill", category_confidence: 0.7, shapes: [] });
  expect(sheetOf(act(doubtful, { do: "accept-category" }))).toMatchObject({ category: "ill", category_confidence: null });
  expect(sheetOf(act(doubtful, { do: "reject-category" }))).toMatchObject({ category: null, category_confidence: null });
  expect(sheetOf(act(act(doubtful, { do: "reject-category" }), { do: "undo" })).category).toBe("ill");
});
