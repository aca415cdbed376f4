import { describe, expect, it } from "vitest";
import type { TrialView } from "../api/types";
import { addSpans, bestSoFar, domainOf, finer, inBrushes, matchesFilter, mergeTrials, numberAt, packLanes, parseBrushes, placeOn, ranks, scaleOf, sortTrials, surfaceOf, thin, ticksOf, timeTicks, writeBrushes } from "./studies";
import { commandOf, configOf, FIRST_FORM, OPTIMIZERS, spaceOf } from "./tuning";

const trial = (number: number, loss: number | string | null, changes: Partial<TrialView> = {}): TrialView => ({
  number, state: "completed", params: { lr: 10 ** -number, optimizer: number % 2 ? "adam" : "sgd" }, values: { loss }, step: 9, ended_ms: number * 1000, ...changes,
});

describe("the best so far", () => {
  it("follows the order of ends by time, and of numbers otherwise, and counts complete trials alone", () => {
    const trials = [trial(0, 0.5, { ended_ms: 9000 }), trial(1, 0.7), trial(2, "NaN"), trial(3, 0.1, { state: "paused" }), trial(4, 0.6)];
    expect(bestSoFar(trials, "loss", true, true).map((one) => one.trial)).toEqual([1, 4, 0]);
    expect(bestSoFar(trials, "loss", true, false).map((one) => one.trial)).toEqual([0]);
    expect(bestSoFar(trials, "loss", false, true).map((one) => one.value)).toEqual([0.7]);
  });
  it("ranks the best as one, whichever way is better", () => {
    const trials = [trial(0, 3), trial(1, 1), trial(2, 2)];
    expect(ranks(trials, "loss", true).get(1)).toBe(1);
    expect(ranks(trials, "loss", false).get(0)).toBe(1);
  });
});

describe("what is new", () => {
  it("takes the place of the old and keeps the rest", () => {
    const old = [trial(0, 1), trial(1, 2)];
    expect(mergeTrials(old, [])).toBe(old);
    expect(mergeTrials(old, [trial(2, 5), trial(1, 3)]).map((one) => one.values["loss"])).toEqual([1, 3, 5]);
  });
  it("follows the points of a curve that are there, and takes the place of the last", () => {
    const old = [trial(0, 1, { curve: [[1, 9], [3, 8], [4, 7]] })];
    const grown = mergeTrials(old, [trial(0, 1, { curve_from: 2, curve: [[5, 6], [6, "NaN"]] })])[0]!;
    expect(grown.curve).toEqual([[1, 9], [3, 8], [5, 6], [6, "NaN"]]);
    expect(mergeTrials([grown], [trial(0, 1, { curve_from: 0, curve: [[1, 9]] })])[0]!.curve).toEqual([[1, 9]]);
    expect(old[0]!.curve).toHaveLength(3);
  });
});

describe("scales", () => {
  it("read domains in all their forms", () => {
    expect(domainOf("log:1e-5:1e-1")).toMatchObject({ kind: "number", log: true, low: 1e-5, high: 0.1 });
    expect(domainOf("int:16:512:log")).toMatchObject({ kind: "number", log: true });
    expect(domainOf("float:0:1:0.1 if optimizer == sgd")).toMatchObject({ kind: "number", log: false, high: 1 });
    expect(domainOf(["adam", "sgd"])).toMatchObject({ kind: "choice", choices: ["adam", "sgd"], text: "adam,sgd" });
    expect(domainOf({ ordered: [32, 64], if: "a == 1" }).text).toBe("ordered:32,64 if a == 1");
    expect(domainOf({ choices: [[64], [64, 32], null] })).toMatchObject({ choices: ["64", "64,32", "null"], text: "[64],[64 32],null" });
    expect(domainOf("ordered:32,64").choices).toEqual(["32", "64"]);
  });
  it("find the place of a value and back", () => {
    const scale = scaleOf("lr", [1e-3], domainOf("log:1e-5:1e-1"));
    expect(placeOn(scale, 1e-3)).toBeCloseTo(0.5);
    expect(numberAt(scale, 0.25)).toBeCloseTo(1e-4);
    expect([placeOn(scale, -1), placeOn(scale, null), placeOn(scaleOf("o", ["a", "b", "c"]), "b")]).toEqual([null, null, 0.5]);
  });
  it("have round ticks", () => {
    expect(ticksOf(scaleOf("x", [0, 1]), 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticksOf(scaleOf("lr", [], domainOf("log:1e-5:1e-1")))).toHaveLength(5);
    expect(timeTicks(1000, 7_300_000, 1000, 8).map((at) => at - 1000)).toEqual([0, 1_800_000, 3_600_000, 5_400_000, 7_200_000]);
  });
});

describe("filters", () => {
  it("compare parameters and metrics, and find words", () => {
    const one = trial(3, 0.2, { message: "out of memory" });
    expect(["lr<0.01", "lr>=1e-3 optimizer=adam", "loss!=1", "memory", "state=completed", "step=9"].map((text) => matchesFilter(one, text))).toEqual(Array(6).fill(true));
    expect(["lr>0.01", "optimizer=sgd", "nowhere", "width<3"].map((text) => matchesFilter(one, text))).toEqual(Array(4).fill(false));
  });
  it("keep brushes in the address", () => {
    const brushes = parseBrushes("lr=0.001..0.01;optimizer=adam|sgd;model.lr=-1e-05..2");
    expect(brushes).toEqual({ lr: { low: 0.001, high: 0.01 }, optimizer: { words: ["adam", "sgd"] }, "model.lr": { low: -1e-5, high: 2 } });
    expect(parseBrushes(writeBrushes(brushes))).toEqual(brushes);
    expect([inBrushes(trial(3, 1), { lr: { low: 1e-4, high: 1e-2 } }), inBrushes(trial(3, 1), { width: { low: 0, high: 9 } })]).toEqual([true, false]);
  });
  it("sort, with what has no value last", () => {
    const trials = [trial(0, 2), trial(1, null), trial(2, 1)];
    expect(sortTrials(trials, "loss").map((one) => one.number)).toEqual([2, 0, 1]);
    expect(sortTrials(trials, "-loss").map((one) => one.number)).toEqual([0, 2, 1]);
  });
});

describe("the timeline", () => {
  it("is made of events, piece by piece, and tells promotions", () => {
    const first = addSpans([], [{ is: "started", trial: 1, at_s: 1 }, { is: "reported", trial: 1, at_s: 2 }, { is: "paused", trial: 1, at_s: 3 }, { is: "started", trial: 1, at_s: 5 }]);
    const all = addSpans(first, [{ is: "ended", trial: 1, state: "completed", at_s: 9 }]);
    expect(all.map((span) => [span.start_ms, span.end_ms, span.end, span.part])).toEqual([[1000, 3000, "paused", 0], [5000, 9000, "completed", 1]]);
    expect(first[1]!.end_ms).toBeNull();
  });
  it("has as few rows as it can", () => {
    const span = (start_ms: number, end_ms: number | null) => ({ trial: 1, start_ms, end_ms, end: "running" as const, part: 0 });
    expect(packLanes([span(0, 10), span(5, 20), span(10, 15), span(16, null)], 30)).toEqual([0, 1, 0, 0]);
  });
});

describe("surfaces", () => {
  it("are means of what is near, and blank elsewhere", () => {
    const points = [{ x: 0.1, y: 0.1, value: 1 }, { x: 0.12, y: 0.1, value: 1 }, { x: 0.1, y: 0.12, value: 1 }];
    const found = surfaceOf(points, 10, 10);
    expect(found[11]).toBeCloseTo(1);
    expect(found[99]).toBeNaN();
  });
  it("are drawn in straight lines between cells", () => {
    const found = finer([0, 1, NaN, 1], 2, 2, 2);
    expect(found.slice(0, 4)).toEqual([0, 0.25, 0.75, 1]);
    expect(found[12]).toBeNaN();
  });
  it("keep the ends of what is thinned", () => expect(thin([1, 2, 3, 4, 5, 6, 7], 3)).toEqual([1, 4, 7]));
});

describe("new tuning", () => {
  it("has the optimizers' modern names", () => expect(Object.values(OPTIMIZERS)).toEqual(["SGD", "Nesterov", "Adam", "AdamW", "Adagrad", "Adadelta", "RMSprop", "NAdam", "RAdam", "Adafactor", "Muon"]));
  it("writes the space and a command that passes all of it on", () => {
    expect(spaceOf(FIRST_FORM)).toEqual({ lr: "log:0.01:0.1", decay: "float:0:0.1", optimizer: ["sgd", "adam", "adamw"], momentum: "float:0.8:0.9 if optimizer == sgd" });
    expect(commandOf(FIRST_FORM)).toBe("train.py --lr {lr} --decay {decay} --optimizer {optimizer} --momentum {momentum} --epochs {epochs}");
    expect(spaceOf({ ...FIRST_FORM, optimizers: ["adam"] })).not.toHaveProperty("momentum");
    expect(spaceOf({ ...FIRST_FORM, optimizers: ["sgd", "nesterov", "adam"] })["momentum"]).toBe("float:0.8:0.9 if optimizer in [sgd, nesterov]");
    expect(spaceOf({ ...FIRST_FORM, batch: { on: true, values: "32, 64" } })["batch"]).toBe("ordered:32,64");
  });
  it("writes a whole study, and leaves out what was not chosen", () => {
    expect(configOf(FIRST_FORM)).toMatchObject({ name: "tuning", minimize: "loss", search: "tpe", schedule: "asha", resource: { name: "epochs", max: 27 }, budget: { trials: 50 }, parallel: 2 });
    expect(configOf({ ...FIRST_FORM, resource: { name: "steps", min: "5", max: "50" } })).toMatchObject({ resource: { name: "steps", min: 5, max: 50 } });
    const plain = configOf({ ...FIRST_FORM, schedule: "none", goal: "maximize", gpus: "1" });
    expect(plain).not.toHaveProperty("resource");
    expect(plain).toMatchObject({ maximize: "loss", job: { resources: { gpus: 1 } }, gpus: 1 });
  });
});
