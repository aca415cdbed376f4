/** Tracks of objects over the frames of a film: where each was drawn, and where boxes between were put. Pure. */
import { INTERPOLATED, type Shape } from "./shapes";

/** A frame of a film with its shapes. */
export interface TrackFrame {
  readonly file: string;
  readonly time_s: number;
  readonly shapes: readonly Shape[];
}

export type Mark = "drawn" | "between" | "none";

export interface Track {
  readonly name: string;
  readonly label: string;
  readonly marks: readonly { readonly file: string; readonly time_s: number; readonly mark: Mark }[]; // of every frame, in order
}

/** Returns the tracks of a film, in the order in which they begin. */
export function tracksOf(frames: readonly TrackFrame[]): readonly Track[] {
  const ordered = [...frames].sort((a, b) => a.time_s - b.time_s);
  const first = new Map<string, string>(); // the label of each track
  for (const { shapes } of ordered) for (const { track, label } of shapes) if (track !== null && !first.has(track)) first.set(track, label);
  return [...first].map(([name, label]) => ({
    name, label, marks: ordered.map(({ file, time_s, shapes }) => ({ file, time_s, mark: markOf(shapes.find((shape) => shape.track === name)) })),
  }));
}

function markOf(shape: Shape | undefined): Mark {
  if (!shape) return "none";
  return shape.model === INTERPOLATED ? "between" : "drawn";
}

export const drawnIn = (track: Track): number => track.marks.filter((one) => one.mark === "drawn").length;

/** Returns the frames that a filling puts a box into: those between the first and the last that were drawn. */
export function toFill(track: Track): number {
  const drawn = track.marks.flatMap((one, index) => (one.mark === "drawn" ? [index] : []));
  return drawn.length < 2 ? 0 : drawn.at(-1)! - drawn[0]! + 1 - drawn.length;
}

/** Returns the shape of a track in the frame that is nearest in time: what is put into a frame to be corrected there. */
export function nearestShape(frames: readonly TrackFrame[], track: string, time_s: number): Shape | null {
  let best: { far: number; shape: Shape } | null = null;
  for (const frame of frames) {
    const shape = frame.shapes.find((one) => one.track === track);
    const far = Math.abs(frame.time_s - time_s);
    if (shape && (best === null || far < best.far)) best = { far, shape };
  }
  return best?.shape ?? null;
}

/** Returns a name for a new track of a label: "ball 2". */
export function freshTrack(label: string, taken: readonly string[]): string {
  for (let number = 1; ; number += 1) {
    const name = `${label.slice(0, 56)} ${number}`;
    if (!taken.includes(name)) return name;
  }
}
