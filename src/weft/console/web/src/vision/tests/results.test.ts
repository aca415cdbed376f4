// @vitest-environment node
import { describe, expect, it } from "vitest";
import { atThreshold, curvePath, readExamples, readResults, scoreText, scoreWord, shareOfRow, timeLeft, trainingConfig } from "../results";

describe("results of a model", () => {
  it("are read as far as they are there", () => {
    expect(readResults({})).toBeNull();
    const found = readResults({ metrics: { map50: 0.91, note: "x" }, results: { threshold: 0.4, curves: [], confusion: { labels: ["a"], counts: [[3]] } } })!;
    expect([found.metrics, found.threshold, found.worst, found.confusion?.labels]).toEqual([{ map50: 0.91 }, 0.4, [], ["a"]]);
    expect(readResults({ metrics: {}, results: {} })!.confusion).toBeNull();
  });
  it("answer for a threshold, a curve and a cell", () => {
    expect(atThreshold([{ threshold: 0.1 }, { threshold: 0.5 }], 0.35)).toEqual({ threshold: 0.5 });
    expect(atThreshold([], 0.5)).toBeNull();
    expect(curvePath({ label: "a", average_precision: 1, recall: [0, 1], precision: [1, 0.5], confidence: [] })).toBe("M0.00 0.00L100.00 50.00");
    expect([shareOfRow([[3, 1]], 0, 1), shareOfRow([[0, 0]], 0, 0)]).toEqual([0.25, 0]);
  });
  it("begin with settings of which only the chosen ones are sent", () => {
    const form = { pace: "accurate", epochs: "", lr: "", batch: "", size: "", minutes: "", early: false };
    expect(trainingConfig(form)).toEqual({});
    expect(trainingConfig({ ...form, pace: "first" })).toEqual({ schedule: { epochs: 0 } });
    expect(trainingConfig({ ...form, epochs: "12", lr: "0.01", early: true })).toEqual({ schedule: { epochs: 12, early_stop: 5 }, optimizer: { lr: 0.01 } });
  });
});

it("tells how long a training takes, and no more than it may", () => {
  expect(timeLeft(60_000, 0.25, {})).toBe(180_000);
  expect(timeLeft(60_000, 0.25, { schedule: { max_minutes: 2 } })).toBe(60_000);
  expect(timeLeft(600_000, 0.25, { schedule: { max_minutes: 2 } })).toBe(0);
  expect([timeLeft(1000, 0.01, {}), timeLeft(1000, null, {})]).toEqual([null, null]);
});

it("reads examples and names figures as people write them", () => {
  const one = { picture: "a", name: "a.jpg", detections: [] };
  expect(readExamples({ score: 1, pictures: [one, { name: "no picture" }] })).toEqual([one]);
  expect([readExamples(null), readExamples({}), readExamples([])]).toEqual([[], [], []]);
  expect([scoreWord("map50_95"), scoreWord("odd_one"), scoreText(0.91234), scoreText(12), scoreText(null)]).toEqual(["mAP@.5:.95", "odd one", "0.912", "12", "–"]);
});
