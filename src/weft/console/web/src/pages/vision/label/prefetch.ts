/** Pictures and labels that will be asked for next are read before they are. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { fileQuery, pictureUrl } from "../../../api/vision";

const KEPT = 8; // decoded pictures

export function usePrefetch(files: readonly (string | undefined)[]): void {
  const client = useQueryClient();
  const kept = useRef(new Map<string, HTMLImageElement>());
  const key = files.filter(Boolean).join();
  useEffect(() => {
    for (const file of key.split(",").filter(Boolean)) {
      void client.prefetchQuery(fileQuery(file));
      if (kept.current.has(file)) continue;
      const image = new Image();
      image.src = pictureUrl(file);
      void image.decode?.().catch(() => undefined);
      kept.current.set(file, image);
      if (kept.current.size > KEPT) kept.current.delete(kept.current.keys().next().value!);
    }
  }, [client, key]);
}
