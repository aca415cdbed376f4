/** Films: play them, take frames by hand or every so many seconds, and go on to label those. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { Link } from "wouter";
import { get, send } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import { datasetPath, fileQuery, filmUrl, invalidateDataset, thumbnailUrl, type Dataset } from "../../../api/vision";
import type { VisionFile, VisionFiles } from "../../../api/types";
import { useKeys } from "../../../keys/keys";
import { Button, ButtonLink, Field, tell, tellError, Wrong } from "../../../parts/controls";
import { Card, Empty, layout, Page, Skeleton } from "../../../parts/layout";
import { number, plural } from "../../../text/format";
import { stateOf } from "../label/strip";
import { submitted } from "../../settings/parts";
import { visionCommand } from "../places";
import css from "./data.module.css";
import { TaskBars } from "./upload";

export function FilmsTab({ set }: { set: Dataset }) {
  const list = useQuery({ queryKey: ["vision", "files", set.id, "films"], queryFn: () => get<VisionFiles>(datasetPath(set.id, "/files"), { kind: "film", limit: 200 }) });
  if (list.error) return <Wrong error={list.error} />;
  if (!list.data) return <Skeleton />;
  if (list.data.files.length === 0) return <Empty title="No films" text="Drop a film (H.264 in mp4, webm, ogg) on this page; its frames can then be taken as pictures." commands={[visionCommand(`data import ${set.name} film.mp4`)]} />;
  return (
    <ul className={css.cards}>
      {list.data.files.map((film) => (
        <li key={film.id}>
          <Link href={`/vision/film/${encodeURIComponent(film.id)}`} className={css.card}>
            <div className={css.cover}><img src={thumbnailUrl(film.id, 512)} alt="" loading="lazy" /></div>
            <div className={css.about}>
              <h2>{film.name}</h2>
              <p className={layout.note}>{number(film.duration_s)} s, {film.width} × {film.height}; {plural(film.frames, "frame")} taken</p>
            </div>
          </Link>
        </li>
      ))}
    </ul>
  );
}

export default function FilmPage({ film }: { film: string }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const video = useRef<HTMLVideoElement>(null);
  const [broken, setBroken] = useState(false);
  const detail = useQuery(fileQuery(film));
  const dataset = detail.data?.dataset ?? "";
  const frames = useQuery({
    queryKey: ["vision", "files", dataset, "frames", film],
    queryFn: () => get<VisionFiles>(datasetPath(dataset, "/files"), { parent: film, kind: "frame", limit: 500 }),
    enabled: dataset !== "",
  });
  const step = (by: number): void => {
    if (video.current) video.current.currentTime = Math.max(0, video.current.currentTime + by);
  };
  async function capture(body: { times_s: number[] } | { every_s: number }): Promise<void> {
    try {
      await send("POST", `/vision/files/${encodeURIComponent(film)}/frames`, body);
      tell("times_s" in body ? `the frame at ${number(body.times_s[0])} s is taken` : `a frame every ${number(body.every_s)} s is taken`);
    } catch (error) {
      tellError(error);
    }
    invalidateDataset(client, dataset);
  }
  const here = (): void => void capture({ times_s: [video.current?.currentTime ?? 0] });
  const second = 1 / (detail.data?.frames_per_s || 25);
  useKeys([
    { keys: "c", label: "Take this frame", run: () => mayAct && here() },
    { keys: "k", label: "Play or pause", run: () => void (video.current?.paused ? video.current.play() : video.current?.pause()) },
    { keys: ",", label: "Frame before", run: () => step(-second) },
    { keys: ".", label: "Next frame", run: () => step(second) },
  ]);
  if (detail.error) return <Page name="Film" title="Film"><Wrong error={detail.error} /></Page>;
  if (!detail.data) return <Page name="Film" title="Film"><Skeleton lines={6} /></Page>;
  const every = submitted((form) => void capture({ every_s: Number(form.get("every")) }));
  const taken = [...(frames.data?.files ?? [])].sort((a, b) => (a.time_s ?? 0) - (b.time_s ?? 0));
  return (
    <Page name={detail.data.name} title={<><Link href={`/vision/data/${encodeURIComponent(dataset)}/films`}>Films</Link> / {detail.data.name}</>} actions={taken[0] && <ButtonLink kind="primary" icon="tag" to={`/vision/label/${encodeURIComponent(dataset)}/${encodeURIComponent(taken[0].id)}?film=${encodeURIComponent(film)}`}>Label frames</ButtonLink>}>
      <TaskBars dataset={dataset} problems={false} />
      <video ref={video} className={css.film} src={filmUrl(film)} poster={thumbnailUrl(film, 1024)} controls preload="metadata" muted onError={() => setBroken(true)} aria-label={detail.data.name} />
      {broken && <p className={layout.note}>This browser does not play the film; frames can be taken from it all the same.</p>}
      {mayAct && (
        <div className={css.row}>
          <Button icon="left" aria-label="Frame before" title="Frame before (,)" onClick={() => step(-second)} />
          <Button icon="right" aria-label="Next frame" title="Next frame (.)" onClick={() => step(second)} />
          <Button kind="primary" icon="picture" onClick={here} title="c">Take this frame</Button>
          <form className={css.row} onSubmit={every}>
            <Field label="Every so many seconds"><input type="number" name="every" min={0.04} step="any" defaultValue={1} required /></Field>
            <Button type="submit">Take frames</Button>
          </form>
        </div>
      )}
      <Card title="Frames" extra={<span className={layout.note}>{plural(taken.length, "frame")}</span>}>
        {taken.length === 0 && <p className={layout.note}>None yet. Label a box in one frame and again in a later one under the same track, and the frames between get theirs.</p>}
        <ul className={css.faces}>
          {taken.map((frame) => <li key={frame.id}><Frame frame={frame} dataset={dataset} /></li>)}
        </ul>
      </Card>
    </Page>
  );
}

function Frame({ frame, dataset }: { frame: VisionFile; dataset: string }) {
  return (
    <Link href={`/vision/label/${encodeURIComponent(dataset)}/${encodeURIComponent(frame.id)}?film=${encodeURIComponent(frame.parent ?? "")}`} aria-label={`frame at ${number(frame.time_s)} s, ${stateOf(frame)}`}>
      <img src={thumbnailUrl(frame.id, 128)} alt="" loading="lazy" />
      <small>{number(frame.time_s)} s</small>
    </Link>
  );
}
