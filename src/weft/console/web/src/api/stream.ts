/** The live stream: one connection a tab, however many parts of a page listen, that resumes where it broke off. */
import { useEffect, useRef, useSyncExternalStore } from "react";
import { url } from "./client";
import { EventParser, type Message } from "./events";

export type StreamState = "off" | "connecting" | "live" | "down";
type Listener = (message: Message) => void;

const SILENCE_MS = 40_000; // beats come every 15 s
const LONGEST_WAIT_MS = 15_000;

/** Follows the topics that anybody asks for, and tries again with growing pauses when the service is away. */
export class LiveStream {
  state: StreamState = "off";
  private readonly wanted = new Map<string, number>();
  private readonly listeners = new Set<Listener>();
  private readonly watchers = new Set<() => void>();
  private lastId = "";
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;

  listen(topics: string[], listener: Listener): () => void {
    let fresh = false;
    for (const topic of topics) {
      const users = this.wanted.get(topic) ?? 0;
      fresh ||= users === 0;
      this.wanted.set(topic, users + 1);
    }
    this.listeners.add(listener);
    if (fresh) this.restart();
    return () => {
      this.listeners.delete(listener);
      for (const topic of topics) {
        const users = (this.wanted.get(topic) ?? 1) - 1;
        if (users > 0) this.wanted.set(topic, users);
        else this.wanted.delete(topic);
      }
      // Topics that nobody reads any more are left out when the stream is opened next.
      if (this.wanted.size === 0) this.stop();
    };
  }

  watch = (tell: () => void): (() => void) => {
    this.watchers.add(tell);
    return () => this.watchers.delete(tell);
  };

  private tell(state: StreamState): void {
    if (state === this.state) return;
    this.state = state;
    this.watchers.forEach((watcher) => watcher());
  }

  private stop(): void {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
    this.tell("off");
  }

  private restart(): void {
    clearTimeout(this.timer);
    // Parts of a page mount together: one request for all of their topics.
    this.timer = setTimeout(() => void this.open(), 20);
  }

  private async open(): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    if (this.state !== "live" && this.state !== "down") this.tell("connecting");
    try {
      await this.read(abort);
    } catch {
      /* the service is away, or we were told to stop */
    }
    if (this.abort !== abort || abort.signal.aborted) return;
    // A stream that ends once is opened again without a word: the service ends them now and then.
    this.failures += 1;
    this.tell(this.failures > 1 ? "down" : "connecting");
    const wait = Math.min(LONGEST_WAIT_MS, 250 * 2 ** Math.min(this.failures - 1, 6));
    this.timer = setTimeout(() => void this.open(), wait * (0.75 + Math.random() / 2));
  }

  private async read(abort: AbortController): Promise<void> {
    const topics = [...this.wanted.keys()].sort().join(",");
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (this.lastId) headers["last-event-id"] = this.lastId;
    const response = await fetch(url("/stream", { topics }), { headers, signal: abort.signal });
    if (!response.ok || !response.body) throw new Error(String(response.status));
    const missed = this.failures > 0;
    this.failures = 0;
    this.tell("live");
    if (missed) this.hand({ id: this.lastId, kind: "resync", data: {} });
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let silence = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(silence);
        silence = setTimeout(() => void reader.cancel(), SILENCE_MS);
        for (const message of parser.push(value)) this.hand(message);
        if (parser.lastId) this.lastId = parser.lastId;
      }
    } finally {
      clearTimeout(silence);
    }
  }

  private hand(message: Message): void {
    for (const listener of [...this.listeners]) listener(message);
  }
}

export const live = new LiveStream();

export function useStreamState(): StreamState {
  return useSyncExternalStore(live.watch, () => live.state);
}

/** Calls `listener` for every message while the part is on the page; `topics` name what it needs. */
export function useStream(topics: string[], listener: Listener): void {
  const newest = useRef(listener);
  newest.current = listener;
  const key = topics.join(",");
  useEffect(() => {
    if (!key) return undefined;
    return live.listen(key.split(","), (message) => newest.current(message));
  }, [key]);
}
