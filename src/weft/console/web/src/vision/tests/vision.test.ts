// @vitest-environment node
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { allowedMove, boxAround, crossesItself, inRing, nearestEdge, pullHandle, ringArea, snapToBorder, type Point } from "../geometry";
import { arrowOf, commandOf, digitOf, KEYMAP, written } from "../keymap";
import { decodeRuns, encodeRuns, noBits, packCounts, runsArea, runsBox, runsHave, stroke, unpackCounts, withStroke } from "../masks";
import { changesInWords, mergeSheets } from "../merge";
import { Outbox, type SaveAnswer, type Shelf, type Unsaved } from "../outbox";
import { boxShape, EMPTY_SHEET, fitShape, moveShape, polygonShape, sameSheet, spokenShape, type Sheet } from "../shapes";
import { fit, pan, toPicture, toScreen, zoomAt } from "../viewport";

const sheet = (...shapes: ReturnType<typeof boxShape>[]): Sheet => ({ ...EMPTY_SHEET, shapes });
const box = (id: string, left: number = 0, label: string = "cat"): ReturnType<typeof boxShape> => boxShape(id, label, [left, 0, left + 10, 10]);

describe("geometry", () => {
  const ring: Point[] = [[0, 0], [10, 0], [10, 10], [0, 10]];
  it("knows inside from outside, areas and edges", () => {
    expect([inRing(ring, [5, 5]), inRing(ring, [15, 5])]).toEqual([true, false]);
    expect([ringArea(ring), ringArea([...ring].reverse())]).toEqual([100, 100]);
    expect(nearestEdge(ring, [12, 4])).toEqual({ index: 1, at: [10, 4], distance: 2 });
    expect([crossesItself(ring), crossesItself([[0, 0], [10, 10], [10, 0], [0, 10]])]).toEqual([false, true]);
    expect(boxAround([])).toEqual([0, 0, 0, 0]);
  });
  it("keeps moves and points in the picture", () => {
    expect(allowedMove([10, 10, 20, 20], [-50, 500], { width: 100, height: 100 })).toEqual([-10, 80]);
    expect(snapToBorder([2.5, 99], { width: 100, height: 100 }, 4)).toEqual([0, 100]);
    expect(pullHandle([10, 10, 20, 20], "n", [99, 4])).toEqual([10, 4, 20, 20]);
  });
});

describe("masks", () => {
  it("are the same after run lengths and back, painted anywhere", () => {
    const bits = noBits({ width: 37, height: 23 });
    stroke(bits, [3, 3], [30, 20], 4, 1);
    stroke(bits, [10, 0], [10, 23], 2, 0);
    const runs = encodeRuns(bits);
    expect(decodeRuns(runs).data).toEqual(bits.data);
    expect(runs.counts.reduce((sum, count) => sum + count, 0)).toBe(37 * 23);
    expect(runsArea(runs)).toBe(bits.data.reduce((sum, bit) => sum + bit, 0));
  });
  it("begin with background, have boxes, and are hit pixel by pixel", () => {
    const full = withStroke(null, { width: 4, height: 3 }, [[0, 0]], 9, 1);
    expect(full.counts).toEqual([0, 12]);
    expect(runsBox(full)).toEqual([0, 0, 4, 3]);
    const dot = withStroke(null, { width: 4, height: 3 }, [[2.5, 1.5]], 0.5, 1);
    expect([dot.counts, runsBox(dot), runsHave(dot, [2.9, 1.1]), runsHave(dot, [1, 1])]).toEqual([[7, 1, 4], [2, 1, 3, 2], true, false]);
    expect(runsBox(withStroke(dot, { width: 4, height: 3 }, [[2.5, 1.5]], 2, 0))).toBeNull();
  });
  it("are packed into the letters that COCO writes", () => {
    expect(packCounts([6, 1, 40, 4, 5, 4, 5, 4, 21])).toBe("61X13mN000`0"); // as pycocotools has it
    const counts = [0, 12, 70_000, 3, 1, 99_999, 2];
    expect(unpackCounts(packCounts(counts))).toEqual(counts);
  });
  it("move by whole pixels and fit only pictures of their size", () => {
    const mask = withStroke(null, { width: 20, height: 10 }, [[5, 5]], 2, 1);
    const shape = { ...box("m"), box: runsBox(mask)!, mask };
    const moved = moveShape(shape, [3.4, -1]);
    expect(moved.box).toEqual([shape.box[0] + 3, shape.box[1] - 1, shape.box[2] + 3, shape.box[3] - 1]);
    expect(fitShape(shape, { width: 21, height: 10 }, "n")).toBeNull();
    expect(fitShape(shape, { width: 20, height: 10 }, "n")!.id).toBe("n");
  });
});

describe("the view", () => {
  const [picture, stage] = [{ width: 400, height: 300 }, { width: 832, height: 632 }];
  it("fits, and zooms to the cursor", () => {
    const view = fit(picture, stage);
    expect(view).toEqual({ scale: 2, x: 16, y: 16 });
    const at: Point = [316, 216];
    const before = toPicture(view, at);
    const after = zoomAt(view, at, 3, picture, stage);
    expect(toPicture(after, at)).toEqual(before);
    expect(toScreen(after, before)).toEqual(at);
  });
  it("never loses the picture", () => {
    const view = pan(fit(picture, stage), [9999, -9999], picture, stage);
    expect([view.x, view.y]).toEqual([832 - 48, 48 - 600]);
    expect(zoomAt(view, [0, 0], 1e9, picture, stage).scale).toBe(64);
  });
});

describe("keys", () => {
  it("name one command each", () => {
    const keys = KEYMAP.flatMap((row) => row.keys);
    expect(new Set(keys).size).toBe(keys.length);
    expect(new Set(KEYMAP.map((row) => row.command)).size).toBe(KEYMAP.length);
  });
  it("are the same on keyboards that need Shift for a sign, and on Apple's", () => {
    expect(commandOf({ key: "?", shiftKey: true })).toBe("help");
    expect(commandOf({ key: "Z", metaKey: true, shiftKey: true })).toBe("redo");
    expect(commandOf({ key: "z", ctrlKey: true })).toBe("undo");
    expect(commandOf({ key: "R" })).toBe("repeat");
    expect([commandOf({ key: "r", ctrlKey: true }), commandOf({ key: "q" })]).toEqual([null, null]);
    expect(written({ key: " " })).toBe("space");
  });
  it("pick labels by digits and go by arrows", () => {
    expect([digitOf({ key: "1" }), digitOf({ key: "0" }), digitOf({ key: "1", ctrlKey: true }), digitOf({ key: "F1" })]).toEqual([0, 9, null, null]);
    expect([arrowOf({ key: "ArrowLeft", shiftKey: true }), arrowOf({ key: "a" })]).toEqual([[-10, 0], null]);
  });
});

describe("two people", () => {
  const base = sheet(box("a"), box("b", 20));
  it("do not lose what does not clash", () => {
    const mine = sheet(box("a", 5), box("b", 20), box("mine", 40));
    const theirs = { ...sheet(box("a"), box("theirs", 60)), category: "blood" }; // they deleted b
    const merged = mergeSheets(base, mine, theirs);
    expect(merged.clashes).toEqual([]);
    expect(merged.sheet.shapes.map((shape) => [shape.id, shape.box[0]])).toEqual([["a", 5], ["theirs", 60], ["mine", 40]]);
    expect(merged.sheet.category).toBe("blood");
  });
  it("are told of what does", () => {
    const merged = mergeSheets(base, sheet(box("a", 5), box("b", 20)), sheet(box("a", 7), box("b", 20)));
    expect(merged.clashes).toEqual(["a"]);
    expect(merged.sheet.shapes[0]!.box[0]).toBe(5);
    expect(mergeSheets(base, sheet(box("b", 20)), sheet(box("a", 7), box("b", 20))).clashes).toEqual(["a"]);
    expect(changesInWords(base, sheet(box("a", 5), box("c")))).toBe("1 added, 1 changed, 1 deleted");
    expect(changesInWords(base, base)).toBe("nothing changed");
  });
});

describe("the outbox", () => {
  const kept = new Map<string, string>();
  const shelf: Shelf = { keys: () => [...kept.keys()], get: (key) => kept.get(key) ?? null, set: (key, value) => void kept.set(key, value), remove: (key) => void kept.delete(key) };
  const unsaved = (mine: Sheet, file: string = "f"): Unsaved => ({ file, revision: 3, base: sheet(box("a")), mine, review: null });
  const away = (error: unknown): boolean => error instanceof TypeError;
  beforeEach(() => {
    kept.clear();
    vi.useFakeTimers();
  });
  afterEach(() => void vi.useRealTimers());

  it("keeps labels over a lost network and a closed page, and sends them when the service is back", async () => {
    const save = vi.fn<(one: Unsaved) => Promise<SaveAnswer>>().mockRejectedValue(new TypeError("failed to fetch"));
    const outbox = new Outbox(shelf, "u.", save, away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(3000);
    expect(outbox.now()).toMatchObject({ state: "offline", waiting: 1 });
    outbox.stop();
    const saved = vi.fn();
    const again = new Outbox(shelf, "u.", () => Promise.resolve({ revision: 4 }), away, saved);
    expect(again.pending("f")!.mine.shapes[0]!.box[0]).toBe(5);
    await vi.advanceTimersByTimeAsync(10);
    expect(again.now().state).toBe("saved");
    expect(saved).toHaveBeenCalledWith("f", 4, expect.anything(), null);
    expect([...kept.keys()]).toEqual([]);
  });

  it("tries again with growing pauses, by itself", async () => {
    const save = vi.fn<(one: Unsaved) => Promise<SaveAnswer>>().mockRejectedValueOnce(new TypeError("away")).mockRejectedValueOnce(new TypeError("away")).mockResolvedValue({ revision: 4 });
    const outbox = new Outbox(shelf, "u.", save, away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(5000);
    expect(save).toHaveBeenCalledTimes(3);
    expect(outbox.now().state).toBe("saved");
  });

  it("saves what changed while it was saving on the new revision", async () => {
    let answer: (value: SaveAnswer) => void = () => undefined;
    const save = vi.fn((_: Unsaved) => new Promise<SaveAnswer>((done) => (answer = done)));
    const outbox = new Outbox(shelf, "u.", save, away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(500);
    outbox.put(unsaved(sheet(box("a", 9))));
    answer({ revision: 4 });
    await vi.advanceTimersByTimeAsync(500);
    expect(save.mock.calls.map(([one]) => [one.revision, one.mine.shapes[0]!.box[0]])).toEqual([[3, 5], [4, 9]]);
    answer({ revision: 5 });
    await vi.advanceTimersByTimeAsync(1);
    expect(outbox.now()).toMatchObject({ state: "saved", waiting: 0 });
  });

  it("says when the service has all, also what was on its way, and when it cannot", async () => {
    let answer: (value: SaveAnswer) => void = () => undefined;
    const outbox = new Outbox(shelf, "u.", () => new Promise<SaveAnswer>((done) => (answer = done)), away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(500); // it is being sent
    const told = vi.fn();
    void outbox.settled().then(told);
    await vi.advanceTimersByTimeAsync(200);
    expect(told).not.toHaveBeenCalled();
    answer({ revision: 4 });
    await vi.advanceTimersByTimeAsync(200);
    expect(told).toHaveBeenCalledWith(true);
    const gone = new Outbox(shelf, "v.", () => Promise.reject(new TypeError("away")), away);
    gone.put(unsaved(sheet(box("a", 5))));
    expect(await gone.settled()).toBe(false);
    gone.stop();
  });

  it("puts changes together where they do not clash, and asks where they do", async () => {
    const theirs = { revision: 8, sheet: sheet(box("a"), box("theirs", 50)), review: null };
    const save = vi.fn<(one: Unsaved) => Promise<SaveAnswer>>().mockResolvedValueOnce({ conflict: theirs }).mockResolvedValueOnce({ revision: 9 });
    const outbox = new Outbox(shelf, "u.", save, away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(1000);
    expect(save.mock.calls[1]![0]).toMatchObject({ revision: 8 });
    expect(save.mock.calls[1]![0].mine.shapes.map((shape) => shape.id)).toEqual(["a", "theirs"]);
    expect(outbox.now().state).toBe("saved");

    save.mockReset().mockResolvedValueOnce({ conflict: { ...theirs, sheet: sheet(box("a", 7)) } }).mockResolvedValueOnce({ revision: 9 });
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(1000);
    expect(outbox.now()).toMatchObject({ state: "conflict", waiting: 1 });
    expect(save).toHaveBeenCalledTimes(1); // nothing is written over theirs unasked
    outbox.resolve("f", sheet(box("a", 5)));
    await vi.advanceTimersByTimeAsync(10);
    expect(save.mock.calls[1]![0].revision).toBe(8);
    expect(outbox.now().state).toBe("saved");
  });

  it("tells what the service refuses, and does not repeat it", async () => {
    const save = vi.fn<(one: Unsaved) => Promise<SaveAnswer>>().mockRejectedValue(new Error("labels must have names"));
    const outbox = new Outbox(shelf, "u.", save, away);
    outbox.put(unsaved(sheet(box("a", 5))));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(save).toHaveBeenCalledTimes(1);
    expect(outbox.now()).toMatchObject({ state: "refused", problem: "labels must have names" });
    outbox.drop("f");
    expect([outbox.now().state, kept.size]).toEqual(["saved", 0]);
  });

  it("reads no damaged entry", () => {
    kept.set("u.f", "{");
    expect(new Outbox(shelf, "u.", vi.fn(), away).now().waiting).toBe(0);
  });
});

describe("shapes", () => {
  it("are named for those who do not see them", () => {
    expect(spokenShape(boxShape("a", "RBC", [10, 20, 130, 100]))).toBe("box RBC, 120 by 80");
    expect(spokenShape({ ...polygonShape("a", "", [[[0, 0], [9, 0], [9, 9]]]), confidence: 0.834 })).toBe("polygon without a label, 9 by 9, 3 vertices, auto 83 %");
  });
  it("are compared by what they are", () => {
    expect(sameSheet(sheet(box("a")), sheet({ ...box("a") }))).toBe(true);
    expect(sameSheet(sheet(box("a")), sheet(box("a", 1)))).toBe(false);
  });
});
