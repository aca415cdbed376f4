/** The lines of a job's log as they are read: from the end, the start or a place in it, and on in both directions. */
import { useCallback, useEffect, useRef, useState } from "react";
import { get } from "../../api/client";
import type { LogLineView, LogsAnswer } from "../../api/types";

const TAIL = 2000;
const PAGE = 5000;
const MOST = 200_000; // lines in the page; older ones are let go
const PACE_MS = 1000;

export interface LogQuery {
  job: number;
  rank: string; // "": all
  attempt: string;
  grep: string;
  from: "end" | "start";
  at: string; // a cursor: begin some lines above it
}

export interface LogState {
  lines: LogLineView[];
  ranks: number[];
  ended: boolean;
  loading: boolean;
  error: unknown;
  found: number; // the place of the line that ends at `at`; -1: none
  top: boolean; // the first line of the log is here
  more: () => void;
  older: () => Promise<number>; // how many lines came above
}

const EMPTY = { lines: [], ranks: [], ended: false, loading: true, error: null, found: -1, top: false };
const ABOVE = 200; // lines above a place that is shown

/** Reads on by itself while the log grows and `follow` is set; `more` reads the next page. */
export function useLog(query: LogQuery, follow: boolean): LogState {
  const [state, setState] = useState<Omit<LogState, "more" | "older">>(EMPTY);
  const cursor = useRef<string | null>(null);
  const busy = useRef(false);
  const start = useRef<string | null>(null);
  const { job, rank, attempt, grep, from, at } = query;

  const read = useCallback(
    async (signal: AbortSignal, first: boolean): Promise<void> => {
      if (busy.current && !first) return;
      busy.current = true;
      try {
        const where = { rank, attempt, grep, limit: PAGE };
        const above = first && at ? await get<LogsAnswer>(`/jobs/${job}/logs`, { ...where, grep: "", before: at, limit: ABOVE }, signal) : null;
        const place = !first ? { cursor: cursor.current } : at ? { cursor: at } : from === "end" ? { tail: TAIL } : {};
        const answer = await get<LogsAnswer>(`/jobs/${job}/logs`, { ...where, ...place }, signal);
        cursor.current = answer.next;
        if (first) start.current = above ? above.first : answer.first;
        setState((old) => ({
          lines: first ? [...(above?.lines ?? []), ...answer.lines] : answer.lines.length ? [...old.lines, ...answer.lines].slice(-MOST) : old.lines,
          ranks: answer.ranks,
          ended: answer.ended,
          loading: false,
          error: null,
          found: above ? above.lines.length - 1 : first ? -1 : old.found,
          top: first ? (above?.first ?? answer.first) === "0" || (from === "start" && !at) : old.top,
        }));
      } catch (error) {
        if (!signal.aborted) setState((old) => ({ ...old, loading: false, error }));
      } finally {
        busy.current = false;
      }
    },
    [job, rank, attempt, grep, from, at],
  );

  const abort = useRef(new AbortController());
  useEffect(() => {
    const control = new AbortController();
    abort.current = control;
    busy.current = false;
    setState((old) => ({ ...EMPTY, ranks: old.ranks }));
    void read(control.signal, true);
    return () => control.abort();
  }, [read]);

  const { ended, error } = state;
  useEffect(() => {
    if (!follow || ended) return undefined;
    const timer = setInterval(() => void read(abort.current.signal, false), error ? 5 * PACE_MS : PACE_MS);
    return () => clearInterval(timer);
  }, [follow, ended, error, read]);

  const older = useCallback(async (): Promise<number> => {
    if (busy.current || start.current === null) return 0;
    busy.current = true;
    try {
      const answer = await get<LogsAnswer>(`/jobs/${job}/logs`, { rank, attempt, limit: TAIL, before: start.current }, abort.current.signal);
      start.current = answer.first;
      setState((old) => ({
        ...old,
        lines: [...answer.lines, ...old.lines],
        found: old.found < 0 ? -1 : old.found + answer.lines.length,
        top: answer.lines.length === 0 || answer.first === "0",
      }));
      return answer.lines.length;
    } catch {
      return 0;
    } finally {
      busy.current = false;
    }
  }, [job, rank, attempt]);

  return { ...state, older, more: useCallback(() => void read(abort.current.signal, false), [read]) };
}
