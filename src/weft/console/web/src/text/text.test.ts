import { describe, expect, it } from "vitest";
import type { CurveView } from "../api/types";
import { axisOf, bestOf, flatten, groupCurve, placeOn, valueAtStep, type CompareRow } from "./compare";
import { extend, groupMetrics, parseZoom, smooth, stepAt } from "./curves";
import { ago, bytes, count, duration, finePercent, number, plural, until } from "./format";
import { folded, happened } from "./happened";
import { median, shade } from "./heat";
import { expression, pieces, plainText, severity } from "./logs";
import { yaml } from "./yaml";
import { lineOf } from "./yaml-place";

const curve = (steps: number[], mean: (number | null)[]): CurveView => ({
  name: "loss", steps, times_ms: steps.map((step) => step * 1000), mean, low: mean, high: mean, odd: [],
});

describe("numbers and times", () => {
  it.each([[0, "0 s"], [59_400, "59 s"], [61_000, "1 m 01 s"], [3_600_000, "1 h 00 m"], [200_000_000, "2 d 7 h"]])("%d ms is %s", (ms, text) =>
    expect(duration(ms)).toBe(text));
  it.each([[0.12345678, "0.1235"], [1e-5, "1.00e-5"], [12_345_678.5, "1.23e7"], [1234, "1\u202f234"], [null, "–"], [NaN, "NaN"]])("%s is %s", (value, text) =>
    expect(number(value)).toBe(text));
  it("writes sizes, counts and ages", () => {
    expect([bytes(900), bytes(1536), bytes(2 ** 20 - 1), bytes(80 * 2 ** 30)]).toEqual(["900 B", "1.5 KiB", "1 MiB", "80 GiB"]);
    expect([count(10_000), plural(1, "job"), plural(2, "job")]).toEqual(["10\u202f000", "1 job", "2 jobs"]);
    expect([ago(0, 2000), ago(0, 90_000), until(3_700_000, 0)]).toEqual(["now", "1 m ago", "in 1 h 01 m"]);
  });
});

describe("curves", () => {
  it("smooths without a pull to zero and keeps gaps", () => {
    const [first, gap, last] = smooth([2, null, 2], 0.9);
    expect(first).toBeCloseTo(2);
    expect(gap).toBeNull();
    expect(last).toBeCloseTo(2);
    expect(smooth([1, 3], 0)).toEqual([1, 3]);
  });
  it("draws metrics of training and validation together", () => {
    expect(groupMetrics(["val_loss", "lr", "loss"])).toEqual([{ key: "loss", names: ["loss", "val_loss"] }, { key: "lr", names: ["lr"] }]);
  });
  it("takes live points that are new, once", () => {
    const longer = extend(curve([1, 2], [5, 4]), [[2, 2000, 9], [3, 3000, 3]]);
    expect([longer.steps, longer.mean]).toEqual([[1, 2, 3], [5, 4, 3]]);
    expect(extend(longer, [[3, 3000, 3]])).toBe(longer);
  });
  it("finds the step at a time", () => {
    const line = { label: "a", colour: 0, curve: curve([10, 20, 30], [1, 1, 1]), start_ms: 0 };
    expect([stepAt(line, "step", 12.4), stepAt(line, "relative", 15), stepAt(line, "time", 99)]).toEqual([12, 20, 30]);
  });
  it("reads a zoom from the address", () => {
    expect(parseZoom("200-900")).toEqual({ first: 200, last: 900 });
    expect([parseZoom(""), parseZoom("9-9"), parseZoom("x")]).toEqual([null, null, null]);
  });
});

describe("comparing", () => {
  it("makes fields of nested data", () => {
    expect(flatten({ run: "a", resources: { cpus: 4, hosts: [] }, metrics: [{ folder: "x" }], after: [1, 2], none: null })).toEqual({
      run: "a", "resources.cpus": "4", "metrics[0].folder": "x", after: "1 2",
    });
  });
  it("gathers curves into a mean and a band", () => {
    const group = groupCurve([curve([0, 10], [0, 10]), curve([0, 20], [4, 4])], 3);
    expect([group.steps, group.mean, group.low, group.high]).toEqual([[0, 10, 20], [2, 7, 4], [0, 4, 4], [4, 10, 4]]);
    expect(valueAtStep(curve([0, 10], [0, 10]), 11)).toBeNull();
  });
  it("knows which value is best", () => {
    const row = (name: string, values: (string | null)[]): CompareRow => ({ section: "Metrics, best", name, values, differs: true });
    expect([bestOf(row("val_loss", ["0.3", "0.2", null])), bestOf(row("accuracy", ["–", "0.2", "0.9"]))]).toEqual([1, 2]);
  });
  it("places numbers and words on axes", () => {
    const numbers = axisOf("lr", ["0.1", "0.3", null]);
    const words = axisOf("optimizer", ["sgd", "adam"]);
    expect([placeOn(numbers, "0.2"), placeOn(numbers, null), placeOn(words, "sgd")]).toEqual([expect.closeTo(0.5), null, 1]);
  });
});

describe("logs", () => {
  it("takes terminal codes away and keeps the last turn of a progress bar", () => {
    expect(plainText("\u001b[31mred\u001b[0m")).toBe("red");
    expect(plainText("10%\r50%\r100%\r")).toBe("100%");
  });
  it("marks matches and links, and never both", () => {
    expect(pieces("see https://a.b/loss loss=3", expression("loss"))).toEqual([
      { text: "see ", kind: "plain" }, { text: "https://a.b/loss", kind: "link" }, { text: " ", kind: "plain" },
      { text: "loss", kind: "match" }, { text: "=3", kind: "plain" },
    ]);
    expect([expression("("), pieces("", null)]).toEqual([null, [{ text: "", kind: "plain" }]]);
  });
  it.each([["RuntimeError: x", "error"], ["Traceback (most recent call last):", "error"], ["UserWarning: y", "warning"], ["mirror", "plain"], ["loss=nan", "error"]])("%s is %s", (line, kind) =>
    expect(severity(line)).toBe(kind));
});

describe("events in words", () => {
  const event = (kind: string, data: Record<string, unknown>) => ({ id: 1, time_ms: 0, kind, data });
  it("folds long runs of reports, and short ones not", () => {
    const note = (id: number) => ({ id, time_ms: 0, kind: "note", data: { text: `step ${id}` } });
    const events = [event("state", {}), ...[1, 2, 3, 4, 5, 6].map(note), event("state", {}), note(7), note(8)];
    expect(folded(events, false).map(({ event: one, left }) => [one.data["text"] ?? "state", left])).toEqual([
      ["state", 0], ["step 1", 0], ["step 6", 4], ["state", 0], ["step 7", 0], ["step 8", 0],
    ]);
    expect(folded(events, true)).toHaveLength(events.length);
  });
  it("says what happened, also of kinds it does not know", () => {
    expect(happened(event("resized", { before: 4, workers: 2, why: "job 9 is urgent" }))).toMatchObject({ head: "Resized from 4 to 2 workers", more: "job 9 is urgent" });
    expect(happened(event("state", { state: "failed", message: "rank 3" }))).toMatchObject({ head: "Failed", more: "rank 3", tone: "orange" });
    expect(happened(event("webhook", { job: 1, url: "x" }))).toMatchObject({ head: "Webhook", more: "url x" });
  });
});

describe("small shares", () => {
  it.each([[0.0006, "0.06 %"], [0.005, "0.5 %"], [0, "0 %"], [0.42, "42 %"]])("%d is %s", (share, text) => expect(finePercent(share)).toBe(text));
});

describe("heat", () => {
  it("is warm for stragglers alone", () => {
    expect(median([3, null, 1, 2])).toBe(2);
    expect([shade(1, 1), shade(0.5, 1), shade(1.2, 1), shade(1.6, 1), shade(null, 1)]).toEqual([2, 0, 4, 5, null]);
  });
});

describe("YAML", () => {
  it("writes what a person would", () => {
    expect(yaml({ run: "train.py --lr 0.1", workers: "2:8", resources: { cpus: 4 }, secrets: [], after: [1], a: "true" })).toBe(
      'run: train.py --lr 0.1\nworkers: "2:8"\nresources:\n  cpus: 4\nafter:\n  - 1\na: "true"\n',
    );
  });
  it("finds the line of a field", () => {
    const text = "run: x\n# memory:\nresources:\n  cpus: 1\n  memory: 3\nqueue: {priority: 900}\n";
    expect([lineOf(text, "resources.memory"), lineOf(text, "queue.priority"), lineOf(text, "run"), lineOf(text, "nothing")]).toEqual([4, 5, 0, null]);
  });
});
