/** Light, dark, or as the system: kept in this browser; `public/theme.js` applies it before the first paint. */
import { useEffect, useState, useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";
const KEY = "weft.theme";
const watchers = new Set<() => void>();

export const theme = {
  get: (): Theme => (document.documentElement.dataset["theme"] as Theme | undefined) ?? "auto",
  set(next: Theme): void {
    if (next === "auto") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = next;
    try {
      if (next === "auto") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, next);
    } catch {
      /* no storage: it holds for this page */
    }
    watchers.forEach((watch) => watch());
  },
  watch(tell: () => void): () => void {
    watchers.add(tell);
    return () => watchers.delete(tell);
  },
};

export const nextTheme = (now: Theme): Theme => (now === "auto" ? "light" : now === "light" ? "dark" : "auto");

export function useTheme(): Theme {
  return useSyncExternalStore(theme.watch, theme.get);
}

/** Returns a number that changes with the colours, for what is drawn on a canvas. */
export function useColourTurn(): number {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const next = (): void => setTurn((old) => old + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    media.addEventListener("change", next);
    const stop = theme.watch(next);
    return () => {
      media.removeEventListener("change", next);
      stop();
    };
  }, []);
  return turn;
}

/** Returns a colour of the palette as the canvas wants it: custom properties keep `light-dark()` unresolved. */
export function colour(name: string): string {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
