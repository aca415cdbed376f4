/** What can be done to jobs, which states allow it, and how it is asked for. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";
import { onceKey, send } from "../../api/client";
import type { JobView, SubmitAnswer } from "../../api/types";
import { tell, tellError } from "../../parts/controls";
import { ACTIVE, ENDED, WAITING, type JobState } from "../../parts/state";
import { plural } from "../../text/format";

export type Action = "stop" | "pause" | "resume" | "retry" | "hold" | "release";

const ALLOWED: Record<Action, readonly JobState[]> = {
  stop: [...WAITING, ...ACTIVE],
  pause: ["starting", "running"],
  resume: ["paused"],
  retry: ENDED,
  hold: ["queued"],
  release: ["held"],
};
const DONE: Record<Action, string> = {
  stop: "stopping", pause: "pausing", resume: "queued again", retry: "queued again", hold: "held", release: "released",
};

export function allows(action: Action, job: JobView): boolean {
  return job.mine && job.kind === "run" && ALLOWED[action].includes(job.state) && job.wanted !== action;
}

/** Returns the actions that make sense for a job, the most likely first. */
export function actionsOf(job: JobView): Action[] {
  return (["resume", "release", "retry", "pause", "hold", "stop"] as const).filter((action) => allows(action, job));
}

/** Returns the priority that puts a job at the place of another in the queue: past it, in the direction it comes from. */
export function placed(jobs: readonly JobView[], job: JobView, target: JobView): number | undefined {
  const from = jobs.findIndex((one) => one.id === job.id);
  const to = jobs.findIndex((one) => one.id === target.id);
  if (from < 0 || to < 0 || from === to) return undefined;
  const wanted = to < from ? target.priority + 1 : target.priority - 1;
  return Math.min(100, Math.max(0, wanted));
}

export interface JobActions {
  act: (action: Action, jobs: JobView[]) => Promise<void>;
  change: (jobs: JobView[], changes: Partial<Pick<JobView, "priority" | "pinned" | "name" | "project" | "tags">>) => Promise<void>;
  scale: (job: JobView, workers: number) => Promise<void>;
  clone: (job: JobView, changes: Record<string, unknown>) => Promise<number | null>;
  remove: (jobs: JobView[]) => Promise<boolean>;
}

export function useJobActions(): JobActions {
  const client = useQueryClient();
  const refresh = useCallback(() => {
    for (const key of ["jobs", "job", "overview", "queues", "hosts"]) void client.invalidateQueries({ queryKey: [key] });
  }, [client]);

  /** Asks for each job, and tells once: a refusal of one does not stop the others. */
  async function each(jobs: JobView[], ask: (job: JobView) => Promise<unknown>, done: string): Promise<boolean> {
    const results = await Promise.allSettled(jobs.map(ask));
    const wrong = results.filter((result) => result.status === "rejected");
    const well = jobs.length - wrong.length;
    if (well > 0) tell(well === 1 && jobs.length === 1 ? `${jobs[0]!.name}: ${done}` : `${plural(well, "job")}: ${done}`);
    if (wrong.length > 0) tellError(wrong[0]!.reason);
    refresh();
    return wrong.length === 0;
  }

  return {
    act: async (action, jobs) => {
      const able = jobs.filter((job) => allows(action, job));
      if (able.length === 0) {
        tell(`none of these can ${action} now`, true);
        return;
      }
      await each(able, (job) => send("POST", `/jobs/${job.id}/${action}`), DONE[action]);
    },
    change: async (jobs, changes) => {
      const words = Object.entries(changes).map(([name, value]) => (name === "pinned" ? (value ? "pinned" : "no longer pinned") : `${name} ${String(value)}`));
      await each(jobs, (job) => send("PATCH", `/jobs/${job.id}`, changes), words.join(", "));
    },
    scale: async (job, workers) => {
      await each([job], () => send("POST", `/jobs/${job.id}/scale`, { workers }), `asked for ${plural(workers, "worker")}`);
    },
    clone: async (job, changes) => {
      try {
        const answer = await send<SubmitAnswer>("POST", `/jobs/${job.id}/clone`, { changes }, { "idempotency-key": onceKey() });
        refresh();
        return answer.jobs[0]?.id ?? null;
      } catch (error) {
        tellError(error);
        return null;
      }
    },
    remove: (jobs) => each(jobs, (job) => send("DELETE", `/jobs/${job.id}`), "removed"),
  };
}
