/** The state of a job: a colour, and a shape of its own for those who do not see the colour. */
import type { JobView } from "../api/types";
import css from "./state.module.css";

export type JobState = JobView["state"];
type Tone = "blue" | "green" | "orange" | "amber" | "purple" | "grey";

export const STATES: readonly JobState[] = [
  "running", "starting", "staging", "storing", "queued", "held", "paused", "completed", "failed", "stopped",
];
export const ACTIVE: readonly JobState[] = ["staging", "starting", "running", "storing"];
export const WAITING: readonly JobState[] = ["queued", "held", "paused"];
export const ENDED: readonly JobState[] = ["completed", "failed", "stopped"];

export const TONES: Record<JobState, Tone> = {
  running: "blue", starting: "blue", staging: "blue", storing: "blue", queued: "amber", held: "purple", paused: "purple",
  completed: "green", failed: "orange", stopped: "grey",
};

/** The shape of a state, 14 by 14. */
export function StateShape({ state }: { state: JobState }) {
  const line = { fill: "none", stroke: "currentColor", strokeWidth: 1.6, strokeLinecap: "round", strokeLinejoin: "round" } as const;
  const shapes: Record<JobState, React.ReactNode> = {
    running: <circle cx="7" cy="7" r="4.5" fill="currentColor" />,
    starting: <path className={css.turning} {...line} d="M7 2.5a4.5 4.5 0 1 1-4.5 4.5" />,
    staging: <path {...line} d="M7 2v7M4 6.5 7 9.5l3-3M2.5 12h9" />,
    storing: <path {...line} d="M7 9.5V2.5M4 5.5l3-3 3 3M2.5 12h9" />,
    queued: <path {...line} d="M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM7 4.8V7l1.6 1.2" />,
    held: <path {...line} d="M3.5 6.5h7v5h-7zM5 6.5V4.7a2 2 0 0 1 4 0v1.8" />,
    paused: <path {...line} strokeWidth={2} d="M5 3v8M9 3v8" />,
    completed: <path {...line} strokeWidth={2} d="M2.5 7.5 5.5 10.5 11.5 3.5" />,
    failed: <path {...line} strokeWidth={2} d="M3.5 3.5l7 7M10.5 3.5l-7 7" />,
    stopped: <rect x="3.2" y="3.2" width="7.6" height="7.6" rx="1" {...line} />,
  };
  return (
    <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true" focusable="false">
      {shapes[state]}
    </svg>
  );
}

export function StateMark({ state, wanted, badge }: { state: JobState; wanted?: string | null | undefined; badge?: boolean }) {
  const asked = wanted ? ` → ${wanted}` : "";
  return (
    <span className={`${css.state} ${css[TONES[state]]} ${badge ? css.badge : ""}`}>
      <StateShape state={state} />
      {state}
      {asked}
    </span>
  );
}

export function toneClass(tone: Tone): string {
  return `${css[tone]} ${css.tone}`;
}

export const SEVERITY_TONES: Record<string, Tone> = { info: "blue", warning: "amber", problem: "orange" };
