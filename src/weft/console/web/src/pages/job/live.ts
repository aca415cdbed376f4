/** Points of a job that came by the stream since its curves were read. */
import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { useStream } from "../../api/stream";

export type LivePoint = readonly [number, number, number | null];
const MOST = 3000; // of one metric; then the curves are read again

/** Returns the newest points by metric; the object changes when some came. */
export function useLivePoints(job: number, on: boolean): Record<string, LivePoint[]> {
  const client = useQueryClient();
  const kept = useRef<Record<string, LivePoint[]>>({});
  const [, turn] = useState(0);
  useStream(on ? [`job:${job}:metrics`] : [], (message) => {
    if (message.kind === "resync") {
      kept.current = {};
      void client.invalidateQueries({ queryKey: ["job", job, "curves"] });
      return;
    }
    const data = message.data as { job?: number; points?: Record<string, LivePoint[]> };
    if (message.kind !== "points" || data.job !== job || !data.points) return;
    const next = { ...kept.current };
    let full = false;
    for (const [name, points] of Object.entries(data.points)) {
      const numbers = points.map(([step, time, value]) => [step, time, typeof value === "number" ? value : null] as const);
      next[name] = [...(next[name] ?? []), ...numbers];
      full ||= next[name].length > MOST;
    }
    if (full) {
      kept.current = Object.fromEntries(Object.entries(next).map(([name, points]) => [name, points.slice(-MOST / 2)]));
      void client.invalidateQueries({ queryKey: ["job", job, "curves"] });
    } else kept.current = next;
    turn((old) => old + 1);
  });
  return kept.current;
}
