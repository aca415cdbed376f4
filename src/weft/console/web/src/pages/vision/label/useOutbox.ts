/** The outbox of this browser's user: labels are saved as they change, and none is lost when the network goes. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { isAway, saveLabels, shapeView } from "../../../api/vision";
import type { VisionFileDetail, VisionFile, VisionFiles } from "../../../api/types";
import { browserShelf, Outbox, type Standing } from "../../../vision/outbox";
import type { Sheet } from "../../../vision/shapes";

export interface OutboxEvents {
  onSaved: (file: string, revision: number, sheet: Sheet, review: string | null) => void;
  onMerged: (file: string, base: Sheet, theirs: Sheet) => void;
}

export function useOutbox(user: string, events: OutboxEvents): { outbox: Outbox; standing: Standing } {
  const client = useQueryClient();
  const newest = useRef(events);
  newest.current = events;
  const [outbox] = useState(
    () =>
      new Outbox(
        browserShelf, `weft.unsaved.${user}.`, saveLabels, isAway,
        (file, revision, sheet, review) => {
          keepSaved(client, file, revision, sheet, review);
          newest.current.onSaved(file, revision, sheet, review);
        },
        (file, base, theirs) => newest.current.onMerged(file, base, theirs),
      ),
  );
  const standing = useSyncExternalStore(outbox.watch, outbox.now);
  useEffect(() => {
    const back = (): void => void outbox.flush();
    // The browser asks before a page closes whose labels the service does not have; they are kept all the same.
    const guard = (event: BeforeUnloadEvent): void => {
      if (outbox.now().waiting) event.preventDefault();
    };
    window.addEventListener("online", back);
    window.addEventListener("beforeunload", guard);
    return () => {
      window.removeEventListener("online", back);
      window.removeEventListener("beforeunload", guard);
      void outbox.flush();
    };
  }, [outbox]);
  return { outbox, standing };
}

/** Puts what the service has now into what pages have read: the file, and its row in every list. */
function keepSaved(client: QueryClient, file: string, revision: number, sheet: Sheet, review: string | null): void {
  const now = { ...rowOf(sheet), revision, review: (review ?? "") as VisionFile["review"] };
  client.setQueryData<VisionFileDetail>(["vision", "file", file], (old) => old && { ...old, ...now, shapes: sheet.shapes.map(shapeView) });
  const row = (old: VisionFile): VisionFile => (old.id === file ? { ...old, ...now } : old);
  const changed = (page: VisionFiles): VisionFiles => (page.files.some((one) => one.id === file) ? { ...page, files: page.files.map(row) } : page);
  // Lists are read page by page; the frames of a film are one page alone.
  client.setQueriesData<{ pages: VisionFiles[]; pageParams: unknown[] } | VisionFiles>({ queryKey: ["vision", "files"] }, (old) => {
    if (!old) return old;
    return "pages" in old ? { ...old, pages: old.pages.map(changed) } : changed(old);
  });
}

/** Returns what a list of files says about labels. */
export function rowOf(sheet: Sheet): Pick<VisionFile, "category" | "category_confidence" | "labels" | "state" | "confidence"> {
  const labels: Record<string, number> = {};
  for (const { label } of sheet.shapes) labels[label] = (labels[label] ?? 0) + 1;
  const auto = [...sheet.shapes.map((shape) => shape.confidence), sheet.category_confidence].filter((one) => one !== null);
  const state = auto.length ? "auto" : sheet.shapes.length || sheet.category ? "labelled" : "unlabelled";
  return { category: sheet.category, category_confidence: sheet.category_confidence, labels, state, confidence: auto.length ? Math.min(...auto) : null };
}
