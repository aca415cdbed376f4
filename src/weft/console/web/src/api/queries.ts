/** What pages read from the service and how long it stays fresh; the stream says when to read again. */
import { keepPreviousData, QueryClient, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { ApiError, get, keepSession } from "./client";
import type { Message } from "./events";
import { useStream } from "./stream";
import type {
  CurvesAnswer,
  EventsAnswer,
  HostsAnswer,
  JobDetail,
  JobsAnswer,
  JobView,
  OverviewAnswer,
  ProjectsAnswer,
  SessionAnswer,
} from "./types";

export const PAGE = 200;

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 5_000,
        refetchOnWindowFocus: false,
        retry: (failures, error) => failures < 2 && !(error instanceof ApiError && error.status < 500),
      },
    },
  });
}

export function useSession() {
  return useQuery({
    queryKey: ["session"],
    queryFn: async ({ signal }) => keepSession(await get<SessionAnswer>("/session", {}, signal)),
    staleTime: Infinity,
    retry: false,
  });
}

export function useMayAct(): boolean {
  const session = useSession();
  return session.data !== undefined && session.data.user.role !== "viewer";
}

export interface JobFilters {
  state?: string;
  project?: string;
  user?: string;
  q?: string;
  sort?: string;
}

export function useJobs(filters: JobFilters) {
  return useInfiniteQuery({
    queryKey: ["jobs", filters],
    queryFn: ({ pageParam, signal }) =>
      get<JobsAnswer>("/jobs", { ...filters, limit: PAGE, cursor: pageParam || undefined }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
  });
}

export const useJob = (id: number) =>
  useQuery({ queryKey: ["job", id], queryFn: ({ signal }) => get<JobDetail>(`/jobs/${id}`, {}, signal) });

export const useOverview = () =>
  useQuery({ queryKey: ["overview"], queryFn: ({ signal }) => get<OverviewAnswer>("/overview", {}, signal) });

export const useHosts = () =>
  useQuery({ queryKey: ["hosts"], queryFn: ({ signal }) => get<HostsAnswer>("/hosts", {}, signal) });

export const useProjects = () =>
  useQuery({ queryKey: ["projects"], queryFn: () => get<ProjectsAnswer>("/projects"), staleTime: 60_000 });

export const useEvents = (id: number) =>
  useQuery({
    queryKey: ["job", id, "events"],
    queryFn: ({ signal }) => get<EventsAnswer>(`/jobs/${id}/events`, { limit: 500 }, signal),
  });

export interface CurveRange {
  first?: number | undefined;
  last?: number | undefined;
}

export const useCurves = (id: number, names: string[], range: CurveRange, points: number) =>
  useQuery({
    queryKey: ["job", id, "curves", names, range, points],
    queryFn: ({ signal }) =>
      get<CurvesAnswer>(
        `/jobs/${id}/curves`,
        { names: names.join(","), first_step: range.first, last_step: range.last, points },
        signal,
      ),
    enabled: names.length > 0,
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

/** Reads lists again, at most every `pace_ms`, when the stream tells of a change, or of one that concerns them. */
export function useRefresh(topics: string[], keys: readonly unknown[][], pace_ms: number = 1000, concerns: (message: Message) => boolean = () => true): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const last = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  useStream(topics, (message) => {
    if (message.kind === "points" || !concerns(message)) return;
    patchState(client, message.kind, message.data);
    if (timer.current !== undefined) return;
    const wait = Math.max(0, last.current + pace_ms - Date.now());
    timer.current = setTimeout(() => {
      timer.current = undefined;
      last.current = Date.now();
      for (const key of keys) void client.invalidateQueries({ queryKey: key });
    }, wait);
  });
}

/** Shows a new state at once, before the lists are read again. */
function patchState(client: QueryClient, kind: string, data: Record<string, unknown>): void {
  const { job: id, state } = data as { job?: number; state?: JobView["state"] };
  if (kind !== "state" || !id || !state) return;
  client.setQueryData<JobDetail>(["job", id], (old) => (old ? { ...old, state } : old));
}
