/** Tracks beside a frame of a film: name an object, put it into another frame, and let the frames between have theirs. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { get, send } from "../../../api/client";
import { datasetPath, fileQuery, sheetFrom } from "../../../api/vision";
import type { VisionChangeAnswer, VisionFileDetail, VisionFiles } from "../../../api/types";
import { Button, tell, tellError } from "../../../parts/controls";
import { layout } from "../../../parts/layout";
import { number, plural } from "../../../text/format";
import type { Colours } from "../../../vision/colours";
import { selectedShapes, sheetOf, type Action, type Editor } from "../../../vision/editor";
import type { Outbox } from "../../../vision/outbox";
import { drawnIn, freshTrack, nearestShape, toFill, tracksOf, type Track, type TrackFrame } from "../../../vision/tracks";
import css from "./label.module.css";

const MOST_FRAMES = 120; // whose shapes are read: those nearest in time

export interface Tracks {
  readonly tracks: readonly Track[];
  /** Names the track of the selected object, or takes its name away. */
  readonly toggle: () => void;
  readonly put: (track: string) => void;
  readonly fill: (track: string) => void;
}

interface TracksOf {
  file: VisionFileDetail;
  editor: Editor;
  act: (action: Action) => void;
  outbox: Outbox;
}

/** Returns the tracks of the film that a frame is of; none where it is of no film. */
export function useTracks({ file, editor, act, outbox }: TracksOf): Tracks | null {
  const client = useQueryClient();
  const film = file.kind === "frame" ? file.parent : null;
  const list = useQuery({
    queryKey: ["vision", "files", file.dataset, "frames", film],
    queryFn: () => get<VisionFiles>(datasetPath(file.dataset, "/files"), { parent: film, kind: "frame", limit: 500 }),
    enabled: film !== null,
  });
  const here = file.time_s ?? 0;
  const others = (list.data?.files ?? []).filter((one) => one.id !== file.id);
  const near = [...others].sort((a, b) => Math.abs((a.time_s ?? 0) - here) - Math.abs((b.time_s ?? 0) - here)).slice(0, MOST_FRAMES);
  const stamp = near.map((one) => `${one.id}.${one.revision}`).sort().join();
  const read = useQuery({
    queryKey: ["vision", "track-frames", film, stamp],
    queryFn: async () => {
      const details = await Promise.all(near.map(async (one): Promise<TrackFrame> => {
        const labelled = Object.keys(one.labels).length > 0;
        const found = labelled ? await client.fetchQuery(fileQuery(one.id)) : null;
        return { file: one.id, time_s: one.time_s ?? 0, shapes: found ? sheetFrom(found).shapes : [] };
      }));
      return details;
    },
    enabled: film !== null && list.data !== undefined,
    placeholderData: (before) => before,
  });
  const { shapes } = sheetOf(editor);
  const frames = useMemo<readonly TrackFrame[]>(
    () => [...(read.data ?? []).filter((one) => one.file !== file.id), { file: file.id, time_s: here, shapes }],
    [read.data, file.id, here, shapes],
  );
  const tracks = useMemo(() => (film === null ? [] : tracksOf(frames)), [film, frames]);
  if (film === null) return null;
  return {
    tracks,
    toggle: () => {
      const chosen = selectedShapes(editor);
      if (chosen.length !== 1) return tell("select one object to track it");
      const taken = tracks.map((one) => one.name);
      act({ do: "track", track: chosen[0]!.track === null ? freshTrack(chosen[0]!.label, taken) : null });
    },
    put: (track) => {
      const shape = nearestShape(frames.filter((one) => one.file !== file.id), track, here);
      if (shape) act({ do: "add", shapes: [shape], tracks: true });
    },
    fill: (track) => {
      // The service fills from what it has: what was drawn a moment ago goes there first.
      outbox.settled().then((done) => {
        if (!done) throw new Error("what was drawn must be saved before frames are filled; try again when the page says so");
        return send<VisionChangeAnswer>("POST", `/vision/files/${encodeURIComponent(film)}/tracks`, { track });
      }).then(({ changed }) => {
        tell(`${plural(changed, "frame")} between got ${track}`);
        for (const key of [["vision", "file"], ["vision", "files"]]) void client.invalidateQueries({ queryKey: key });
      }, tellError);
    },
  };
}

interface PanelProps {
  tracks: Tracks;
  editor: Editor;
  file: string;
  colours: Colours;
  mayEdit: boolean;
  onOpen: (file: string) => void;
}

export function TrackPanel({ tracks, editor, file, colours, mayEdit, onOpen }: PanelProps) {
  const chosen = selectedShapes(editor);
  const one = chosen.length === 1 ? chosen[0]! : null;
  return (
    <section aria-label="Tracks" className={css.panel}>
      <h2>Tracks <small>{tracks.tracks.length}</small></h2>
      {mayEdit && <div className={css.row}><Button small disabled={!one} title="t" onClick={tracks.toggle}>{one?.track ? `Untrack ${one.track}` : "Track the selected object"}</Button></div>}
      {tracks.tracks.length === 0 && <p className={layout.note}>Draw a box, track it, go some frames on, put it there: the frames between get theirs.</p>}
      <ul className={css.tracks}>
        {tracks.tracks.map((track) => {
          const now = track.marks.find((mark) => mark.file === file)?.mark ?? "none";
          return (
            <li key={track.name}>
              <div><i style={{ background: colours(track.label) }} /><b>{track.name}</b><small>{plural(drawnIn(track), "frame")} drawn</small></div>
              <div className={css.marks} role="group" aria-label={`frames of ${track.name}`}>
                {track.marks.map((mark) => <button key={mark.file} type="button" tabIndex={-1} data-mark={mark.mark} aria-current={mark.file === file || undefined} style={{ "--tone": colours(track.label) } as React.CSSProperties} title={`${number(mark.time_s)} s, ${mark.mark}`} aria-label={`frame at ${number(mark.time_s)} s, ${mark.mark}`} onClick={() => onOpen(mark.file)} />)}
              </div>
              {mayEdit && (
                <div className={css.row}>
                  <Button small disabled={now !== "none"} onClick={() => tracks.put(track.name)}>Put it here</Button>
                  <Button small disabled={toFill(track) === 0} title="Boxes between those that were drawn" onClick={() => tracks.fill(track.name)}>Fill {plural(toFill(track), "frame")} between</Button>
                </div>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
