/** The lines of a job's log as they are read: from the end and onwards, or page by page from the start. */
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
}

export interface LogState {
  lines: LogLineView[];
  ranks: number[];
  ended: boolean;
  loading: boolean;
  error: unknown;
  more: () => void;
}

/** Reads on by itself while the log grows and `follow` is set; `more` reads the next page. */
export function useLog(query: LogQuery, follow: boolean): LogState {
  const [state, setState] = useState<Omit<LogState, "more">>({ lines: [], ranks: [], ended: false, loading: true, error: null });
  const cursor = useRef<string | null>(null);
  const busy = useRef(false);
  const { job, rank, attempt, grep, from } = query;

  const read = useCallback(
    async (signal: AbortSignal, first: boolean): Promise<void> => {
      if (busy.current && !first) return;
      busy.current = true;
      try {
        const place = first ? (from === "end" ? { tail: TAIL } : {}) : { cursor: cursor.current };
        const answer = await get<LogsAnswer>(`/jobs/${job}/logs`, { rank, attempt, grep, limit: PAGE, ...place }, signal);
        cursor.current = answer.next;
        setState((old) => ({
          lines: first ? answer.lines : answer.lines.length ? [...old.lines, ...answer.lines].slice(-MOST) : old.lines,
          ranks: answer.ranks,
          ended: answer.ended,
          loading: false,
          error: null,
        }));
      } catch (error) {
        if (!signal.aborted) setState((old) => ({ ...old, loading: false, error }));
      } finally {
        busy.current = false;
      }
    },
    [job, rank, attempt, grep, from],
  );

  const abort = useRef(new AbortController());
  useEffect(() => {
    const control = new AbortController();
    abort.current = control;
    busy.current = false;
    setState((old) => ({ ...old, lines: [], loading: true, ended: false, error: null }));
    void read(control.signal, true);
    return () => control.abort();
  }, [read]);

  const { ended, error } = state;
  useEffect(() => {
    if (!follow || ended) return undefined;
    const timer = setInterval(() => void read(abort.current.signal, false), error ? 5 * PACE_MS : PACE_MS);
    return () => clearInterval(timer);
  }, [follow, ended, error, read]);

  return { ...state, more: useCallback(() => void read(abort.current.signal, false), [read]) };
}
