import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { LiveStream } from "./stream";
import type { Message } from "./events";

interface Call {
  url: string;
  lastId: string | undefined;
  write: (text: string) => void;
  end: () => void;
}

/** A service whose streams a test writes. */
function fakeService(): Call[] {
  const calls: Call[] = [];
  vi.stubGlobal("fetch", (url: string, init: { headers: Record<string, string>; signal: AbortSignal }) => {
    let control!: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (given) => void (control = given) });
    init.signal.addEventListener("abort", () => {
      try {
        control.error(new Error("aborted"));
      } catch {
        /* ended before */
      }
    });
    const encoder = new TextEncoder();
    calls.push({ url, lastId: init.headers["last-event-id"], write: (text) => control.enqueue(encoder.encode(text)), end: () => control.close() });
    return Promise.resolve({ ok: true, status: 200, body });
  });
  return calls;
}

describe("LiveStream", () => {
  let stream: LiveStream;
  beforeEach(() => {
    stream = new LiveStream();
  });
  afterEach(() => vi.unstubAllGlobals());

  it("opens one connection for all topics of a page", async () => {
    const calls = fakeService();
    const stops = [stream.listen(["jobs"], () => undefined), stream.listen(["job:7", "jobs"], () => undefined)];
    await vi.waitFor(() => expect(stream.state).toBe("live"));
    expect(calls.map((call) => call.url)).toEqual(["/api/v1/stream?topics=job%3A7%2Cjobs"]);
    stops.forEach((stop) => stop());
    expect(stream.state).toBe("off");
  });

  it("goes on after the last event when the service was away, and says that something may be missed", async () => {
    const calls = fakeService();
    const seen: Message[] = [];
    const stop = stream.listen(["jobs"], (message) => seen.push(message));
    await vi.waitFor(() => expect(stream.state).toBe("live"));
    calls[0]!.write('id: 41\nevent: state\ndata: {"job":7}\n\n');
    await vi.waitFor(() => expect(seen.map((message) => message.kind)).toEqual(["state"]));
    calls[0]!.end();
    await vi.waitFor(() => expect(stream.state).toBe("connecting"));
    await vi.waitFor(() => expect(calls.length).toBe(2), { timeout: 3000 });
    expect(calls[1]!.lastId).toBe("41");
    await vi.waitFor(() => expect(seen.map((message) => message.kind)).toEqual(["state", "resync"]));
    stop();
  });

  it("is down while the service does not answer, and live again by itself", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new Error("refused")));
    const stop = stream.listen(["jobs"], () => undefined);
    await vi.waitFor(() => expect(stream.state).toBe("down"), { timeout: 3000 });
    fakeService();
    await vi.waitFor(() => expect(stream.state).toBe("live"), { timeout: 5000 });
    stop();
  });
});
