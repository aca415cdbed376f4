import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { useKeys } from "../keys/keys";
import { diffKind } from "./code";
import { Command, Messages, Segments, tell } from "./controls";
import { sparkPath } from "./sparkline";
import { StateMark, STATES } from "./state";

afterEach(cleanup);

describe("states", () => {
  it("have a word and a shape of their own each", () => {
    const shapes = STATES.map((state) => {
      const { container, unmount } = render(<StateMark state={state} />);
      expect(container.textContent).toBe(state);
      const shape = container.querySelector("svg")!.innerHTML;
      unmount();
      return shape;
    });
    expect(new Set(shapes).size).toBe(STATES.length);
  });
});

describe("controls", () => {
  it("say which of few is chosen", () => {
    const chosen = vi.fn();
    render(<Segments label="Axis" value="step" options={[["step", "Step"], ["time", "Clock"]] as const} onChange={chosen} />);
    expect(screen.getByRole("button", { name: "Step" }).getAttribute("aria-pressed")).toBe("true");
    fireEvent.click(screen.getByRole("button", { name: "Clock" }));
    expect(chosen).toHaveBeenCalledWith("time");
  });
  it("copy commands", async () => {
    const written = vi.fn(() => Promise.resolve());
    vi.stubGlobal("navigator", { ...navigator, clipboard: { writeText: written } });
    render(<><Command text="weft jobs" /><Messages /></>);
    fireEvent.click(screen.getByRole("button", { name: "copy: weft jobs" }));
    await screen.findByText("copied");
    expect(written).toHaveBeenCalledWith("weft jobs");
    vi.unstubAllGlobals();
  });
  it("tell messages to screen readers", async () => {
    render(<Messages />);
    tell("job 7 is stopped");
    expect((await screen.findByText("job 7 is stopped")).closest("[role=status]")).not.toBeNull();
  });
});

function Keys({ run }: { run: (what: string) => void }) {
  useKeys([
    { keys: "j", label: "down", run: () => run("j") },
    { keys: "g j", label: "jobs", run: () => run("g j") },
    { keys: "Enter", label: "open", run: () => run("Enter") },
  ]);
  return (
    <>
      <input aria-label="field" />
      <button type="button">press</button>
    </>
  );
}

describe("keys", () => {
  it("know single keys and sequences, and leave those who type alone", () => {
    const run = vi.fn();
    render(<Keys run={run} />);
    fireEvent.keyDown(document.body, { key: "j" });
    fireEvent.keyDown(document.body, { key: "g" });
    fireEvent.keyDown(document.body, { key: "j" });
    fireEvent.keyDown(screen.getByLabelText("field"), { key: "j" });
    fireEvent.keyDown(document.body, { key: "j", ctrlKey: true });
    fireEvent.keyDown(screen.getByRole("button"), { key: "Enter" });
    fireEvent.keyDown(document.body, { key: "Enter" });
    expect(run.mock.calls.map(([what]) => what)).toEqual(["j", "g j", "Enter"]);
  });
});

describe("drawings", () => {
  it("leave gaps where values are not finite", () => {
    expect(sparkPath([0, 1, null, 1, 0], 40, 10).match(/M/g)).toHaveLength(2);
    expect(sparkPath([1], 40, 10)).toBe("");
  });
  it("tell what came from what went", () => {
    expect(["+a", "-b", "@@ -1 +1 @@", "+++ b/x", " c"].map(diffKind)).toEqual(["add", "remove", "place", "place", "same"]);
  });
});
