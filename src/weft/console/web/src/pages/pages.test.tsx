import { QueryClientProvider } from "@tanstack/react-query";
import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { makeQueryClient } from "../api/queries";
import type { JobDetail, JobView } from "../api/types";
import { actionsOf, placed } from "./jobs/actions";
import { columnsOf, hiddenFrom, templateOf } from "./jobs/columns";
import { awaitsHeadline, statesOf } from "./jobs/jobs";
import { timeOf, whyOf, workersOf } from "./jobs/row";
import { changesOf } from "./job/dialogs";
import { cells } from "./job/files";
import { linkToken, LoginPage, safeNext } from "./login";
import { limitFrom, limitsOf } from "./settings/quota";

const job = (changes: Partial<JobView> = {}): JobView => ({
  id: 7, name: "digits", project: "vision", user: "mara", kind: "run", state: "running", wanted: null, queue: "default", priority: 50,
  workers: 2, min_workers: 2, max_workers: 8, attempt: 1, progress: 0.5, cause: null, message: null, reason: null, snapshot: null,
  parent_id: null, tags: {}, pinned: false, created_ms: 0, queued_ms: 0, started_ms: 0, ended_ms: null, headline: null, mine: true, ...changes,
});

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

describe("the columns of the list", () => {
  it("are hidden one by one, but for those that name a job", () => {
    const hidden = hiddenFrom('["user", "job", "nonsense", "metric"]');
    expect([...hidden]).toEqual(["user", "metric"]);
    expect(columnsOf(false, hidden).map((column) => column.key)).toEqual(["state", "job", "project", "workers", "time", "why"]);
    expect(templateOf(columnsOf(true), true).split(" ").length).toBeLessThan(templateOf(columnsOf(true), false).split(" ").length);
  });
  it("are all shown where what was kept cannot be read", () => expect(hiddenFrom("{").size).toBe(0));
});

describe("a quota", () => {
  it("is told in words, and none where there is none", () => {
    expect(limitsOf({ cpus: 8, memory_bytes: 2 ** 36, gpus: null, weight: 2 })).toBe("8 cores, 64 GiB, weight 2");
    expect([limitsOf(undefined), limitsOf({})]).toEqual(["no limit", "no limit"]);
  });
  it("has no limit where a field is empty", () => expect([limitFrom(""), limitFrom(" "), limitFrom("0"), limitFrom("1.5")]).toEqual([null, null, 0, 1.5]));
});

describe("a job that is moved in the queue", () => {
  const queue = [job({ id: 1, priority: 80 }), job({ id: 2, priority: 50 }), job({ id: 3, priority: 50 })];
  it("gets past the one at whose place it is put", () => {
    expect(placed(queue, queue[2]!, queue[0]!)).toBe(81);
    expect(placed(queue, queue[0]!, queue[1]!)).toBe(49);
    expect(placed(queue, queue[1]!, queue[1]!)).toBeUndefined();
    expect(placed([job({ id: 1, priority: 100 }), job({ id: 2 })], job({ id: 2 }), job({ id: 1, priority: 100 }))).toBe(100);
  });
});

describe("a job in the list", () => {
  it("is asked for again while its curve is being made", () => {
    expect([awaitsHeadline(job()), awaitsHeadline(job({ attempt: 0 })), awaitsHeadline(job({ headline: { name: "loss", last: 1, values: [] } }))]).toEqual([true, false, false]);
  });
  it("says how long it will still take", () => expect(timeOf(job(), 600_000)).toBe("10 m, 10 m left"));
  it("says why it waits, its place and its earliest start", () => {
    const reason = { why: "priority", text: "others are before it", place: 3, earliest_ms: 240_000 };
    expect(whyOf(job({ state: "queued", reason }), 0)).toBe("#3, others are before it, start in 4 m");
  });
  it("says how many workers it has of how many", () => {
    expect([workersOf(job()), workersOf(job({ workers: 0 })), workersOf(job({ workers: 4, min_workers: 4, max_workers: 4 }))]).toEqual(["2 of 2–8", "2–8", "4"]);
  });
  it("offers what its state allows to those who may", () => {
    expect(actionsOf(job())).toEqual(["pause", "stop"]);
    expect(actionsOf(job({ state: "failed" }))).toEqual(["retry"]);
    expect(actionsOf(job({ wanted: "stop" }))).toEqual(["pause"]);
    expect(actionsOf(job({ mine: false }))).toEqual([]);
    expect(actionsOf(job({ kind: "tracked" }))).toEqual([]);
  });
  it("is found by groups of states", () => expect(statesOf("waiting,failed")).toBe("queued,held,paused,failed"));
});

describe("a clone", () => {
  it("asks for what was changed alone", () => {
    const detail = { ...job(), spec: { run: "train.py", workers: "2:8" } } as unknown as JobDetail;
    expect(changesOf(detail, { run: "train.py", workers: "2:8", priority: "50", name: "digits" })).toEqual({});
    expect(changesOf(detail, { run: "train.py --lr 1", workers: "4", priority: "80", name: "digits" })).toEqual({
      run: "train.py --lr 1", workers: 4, "queue.priority": 80,
    });
  });
});

describe("a table of a file", () => {
  it("keeps quoted delimiters and lines in their cells", () => {
    expect(cells('a,"b,""c"""\r\n"1\n2",3\n', ",")).toEqual([["a", 'b,"c"'], ["1\n2", "3"]]);
  });
});

describe("the log-in", () => {
  beforeEach(() => window.history.replaceState(null, "", "/login"));

  it("takes a link from the fragment and never leaves the site", () => {
    expect([linkToken("#link=abc"), linkToken("")]).toEqual(["abc", null]);
    expect([safeNext("/jobs?q=a"), safeNext("//evil.org"), safeNext("/\\evil.org"), safeNext("https://evil.org"), safeNext(null)]).toEqual([
      "/jobs?q=a", "/", "/", "/", "/",
    ]);
  });

  it("shows why it was refused", async () => {
    const answer = { error: { code: "unauthorized", text: "the name and the password must belong together", problems: [] } };
    const asked = vi.fn(() => Promise.resolve(new Response(JSON.stringify(answer), { status: 401 })));
    vi.stubGlobal("fetch", asked);
    render(<QueryClientProvider client={makeQueryClient()}><LoginPage /></QueryClientProvider>);
    fireEvent.change(screen.getByLabelText("Name"), { target: { value: "mara" } });
    fireEvent.change(screen.getByLabelText("Password"), { target: { value: "wrong" } });
    fireEvent.click(screen.getByRole("button", { name: "Log in" }));
    await waitFor(() => expect(screen.getByRole("alert").textContent).toContain("must belong together"));
    expect(JSON.parse((asked.mock.calls as unknown as [string, { body: string }][])[0]![1].body)).toEqual({ name: "mara", password: "wrong" });
  });
});
