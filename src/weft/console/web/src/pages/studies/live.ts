/** A study and its trials as they change: whole once, then what is new after the last event that was seen. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { get, onceKey, send } from "../../api/client";
import { useStream } from "../../api/stream";
import type { InteractionsAnswer, StudiesAnswer, StudyDetail, StudyEventsAnswer, StudyView, TrialsAnswer, TrialView } from "../../api/types";
import { tell, tellError } from "../../parts/controls";
import { addSpans, mergeTrials, type Span } from "../../text/studies";

const LEAST_PACE_MS = 100; // from one look at trials to the next, however many reports come
const PACE_FACTOR = 2; // times that a look took, until the next: what many trials take is left to whoever uses the page
const SPANS_PACE_MS = 600;
const DETAIL_PACE_MS = 5000; // insights and importances are worked out anew for each question

export interface Trials {
  trials: TrialView[];
  events: number;
}

export const useStudies = () =>
  useQuery({ queryKey: ["studies"], queryFn: ({ signal }) => get<StudiesAnswer>("/studies", {}, signal) });

export const useStudy = (id: number) =>
  useQuery({ queryKey: ["study", id, "detail"], queryFn: ({ signal }) => get<StudyDetail>(`/studies/${id}`, {}, signal) });

export function useTrials(id: number) {
  const client = useQueryClient();
  return useQuery({
    queryKey: ["study", id, "trials"],
    queryFn: async ({ queryKey, signal }): Promise<Trials> => {
      const old = client.getQueryData<Trials>(queryKey) ?? { trials: [], events: 0 };
      const answer = await get<TrialsAnswer>(`/studies/${id}/trials`, { since: old.events, curves: true, tails: true }, signal);
      return { trials: mergeTrials(old.trials, answer.trials), events: answer.events };
    },
    structuralSharing: false,
  });
}

/** Returns the spans in which trials ran, from the events of the study without its reports. */
export function useSpans(id: number) {
  const client = useQueryClient();
  return useQuery({
    queryKey: ["study", id, "spans"],
    queryFn: async ({ queryKey, signal }): Promise<{ spans: Span[]; next: number }> => {
      const old = client.getQueryData<{ spans: Span[]; next: number }>(queryKey) ?? { spans: [], next: 0 };
      const answer = await get<StudyEventsAnswer>(`/studies/${id}/events`, { after: old.next, reports: false }, signal);
      return { spans: addSpans(old.spans, answer.events), next: answer.next };
    },
    structuralSharing: false,
  });
}

/** Reads a study again when the stream tells of it, its state and counts at once from the message. */
export function useStudyStream(id: number): void {
  const client = useQueryClient();
  const timers = useRef(new Map<string, ReturnType<typeof setTimeout>>());
  const last = useRef(new Map<string, number>());
  useEffect(() => {
    const waiting = timers.current;
    return () => waiting.forEach((timer) => clearTimeout(timer));
  }, []);
  const took = useRef(new Map<string, number>());
  function soon(part: string, least_ms: number): void {
    if (timers.current.has(part)) return;
    const pace_ms = Math.max(least_ms, PACE_FACTOR * (took.current.get(part) ?? 0));
    const wait = Math.max(0, (last.current.get(part) ?? 0) + pace_ms - Date.now());
    timers.current.set(
      part,
      setTimeout(() => {
        timers.current.delete(part);
        const began = Date.now();
        last.current.set(part, began);
        const drawn = () => took.current.set(part, Date.now() - began);
        // Two frames after the answer, it has been drawn.
        void client.invalidateQueries({ queryKey: ["study", id, part] }).then(() => requestAnimationFrame(() => requestAnimationFrame(drawn)));
      }, wait),
    );
  }
  useStream([`study:${id}`], (message) => {
    if (message.kind === "study" && message.data["study"] === id) {
      client.setQueryData<StudyDetail>(["study", id, "detail"], (old) => (old ? { ...old, study: patched(old.study, message.data) } : old));
    } else if (message.kind !== "resync") return;
    soon("trials", LEAST_PACE_MS);
    soon("spans", SPANS_PACE_MS);
    soon("detail", DETAIL_PACE_MS);
  });
}

/** Returns a study with the state and the counts of a message; its best trial is read with the rest. */
export function patched(study: StudyView, data: Record<string, unknown>): StudyView {
  const { state, counts, trials } = data;
  return {
    ...study,
    ...(typeof state === "string" ? { state } : {}),
    ...(counts && typeof counts === "object" ? { counts: counts as Record<string, number> } : {}),
    ...(typeof trials === "number" ? { trials } : {}),
  };
}

export type Verb = "stop" | "pause" | "resume";

/** Returns what a study in a state may be told. */
export function verbsOf(state: string): Verb[] {
  if (state === "running") return ["pause", "stop"];
  if (state === "paused") return ["resume", "stop"];
  return state === "stopped" ? ["resume"] : [];
}

export type TrialVerb = "promote" | "pause" | "stop";

/** Returns what a trial may be told, by its state. */
export function trialVerbs(trial: TrialView): TrialVerb[] {
  if (trial.source) return [];
  if (trial.state === "running") return ["pause", "stop"];
  if (trial.state === "waiting") return trial.held ? ["promote", "stop"] : ["pause", "stop"];
  return trial.state === "paused" ? (trial.held ? ["promote", "stop"] : ["promote", "pause", "stop"]) : [];
}

/** Returns interactions of pairs of parameters; they are worked out anew for each number of completed trials. */
export const useInteractions = (id: number, complete: number) =>
  useQuery({ queryKey: ["study", id, "interactions", complete], queryFn: ({ signal }) => get<InteractionsAnswer>(`/studies/${id}/interactions`, {}, signal), placeholderData: (old) => old });

/** Returns a function that asks something of a study, tells how it went, and reads the study again; a dialog shows itself what was wrong. */
export function useAskStudy() {
  const client = useQueryClient();
  return async function ask<T>(method: "POST" | "PATCH" | "DELETE", path: string, body: unknown, done: string, wrong: (error: unknown) => void = tellError): Promise<T | null> {
    try {
      const answer = await send<T>(method, path, body, method === "POST" && path === "/studies" ? { "idempotency-key": onceKey() } : {});
      tell(done);
      return answer ?? ({} as T);
    } catch (error) {
      wrong(error);
      return null;
    } finally {
      void client.invalidateQueries({ queryKey: ["studies"] });
      void client.invalidateQueries({ queryKey: ["study"] });
    }
  };
}
