/** The strip of thumbnails under the picture: as long as the data set, drawn where one looks. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import { thumbnailUrl } from "../../../api/vision";
import type { VisionFile } from "../../../api/types";
import { plural } from "../../../text/format";
import css from "./label.module.css";

const WIDE = 76;

interface StripProps {
  files: readonly VisionFile[];
  total: number;
  current: string;
  link: (file: string) => string;
  more: () => void;
}

export function Strip({ files, total, current, link, more }: StripProps) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ horizontal: true, count: total, getScrollElement: () => box.current, estimateSize: () => WIDE, overscan: 6 });
  const here = files.findIndex((file) => file.id === current);
  useEffect(() => {
    if (here >= 0) rows.scrollToIndex(here, { align: "center" });
  }, [here, rows]);
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= files.length && files.length < total) more();
  }, [last, files.length, total, more]);
  return (
    <nav ref={box} className={css.strip} aria-label={`Pictures, ${plural(total, "picture")}`} tabIndex={-1}>
      <div style={{ width: rows.getTotalSize() }}>
        {items.map((item) => {
          const file = files[item.index];
          if (!file) return <i key={item.key} className={css.thumb} style={{ transform: `translateX(${item.start}px)` }} />;
          const state = stateOf(file);
          return (
            <Link key={item.key} href={link(file.id)} replace className={css.thumb} style={{ transform: `translateX(${item.start}px)` }} aria-current={file.id === current ? "true" : undefined} title={`${file.name}, ${state}`}>
              <img src={thumbnailUrl(file.id, 128)} alt={file.name} loading="lazy" draggable={false} />
              <span className="unseen">, {state} </span>
              <b data-state={state}>{state === "unlabelled" ? "" : shapeCount(file) || (file.category ?? "")}</b>
            </Link>
          );
        })}
      </div>
    </nav>
  );
}

/** Returns how far a picture is: nothing, a model's labels, a person's, reviewed. */
export function stateOf(file: Pick<VisionFile, "state" | "review">): "unlabelled" | "auto" | "labelled" | "reviewed" {
  return file.review === "approved" ? "reviewed" : file.state;
}

export const shapeCount = (file: Pick<VisionFile, "labels">): number => Object.values(file.labels).reduce((sum, count) => sum + count, 0);
