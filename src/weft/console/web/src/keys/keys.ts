/** Keyboard shortcuts: single keys ("j") and sequences ("g j"), listed by the help dialog. */
import { useEffect, useRef } from "react";

export interface Shortcut {
  keys: string;
  label: string;
  run: () => void;
}

const SEQUENCE_MS = 1200;
const layers: { current: Shortcut[] }[] = [];
let pending = "";
let pendingUntil = 0;

function typing(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "button", "range"].includes(target.type);
}

function onKey(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (typing(event.target)) {
    if (event.key === "Escape") (event.target as HTMLElement).blur();
    return;
  }
  // Enter and space belong to what has the focus, where that does something with them.
  const own = event.target instanceof Element && event.target.closest("a, button, summary, input");
  if (own && (event.key === "Enter" || event.key === " ")) return;
  if (document.querySelector("dialog[open]")) return;
  const combined = event.timeStamp < pendingUntil ? `${pending} ${event.key}` : event.key;
  for (const keys of combined === event.key ? [combined] : [combined, event.key]) {
    const found = all().find((shortcut) => shortcut.keys === keys);
    if (found) {
      event.preventDefault();
      pendingUntil = 0;
      found.run();
      return;
    }
  }
  const opens = all().some((shortcut) => shortcut.keys.startsWith(`${event.key} `));
  pending = event.key;
  pendingUntil = opens ? event.timeStamp + SEQUENCE_MS : 0;
}

/** Returns all shortcuts of the page, the most particular first. */
export function all(): Shortcut[] {
  return [...layers].reverse().flatMap((layer) => layer.current);
}

export function useKeys(shortcuts: Shortcut[]): void {
  const layer = useRef(shortcuts);
  layer.current = shortcuts;
  useEffect(() => {
    if (layers.length === 0) document.addEventListener("keydown", onKey);
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
      if (layers.length === 0) document.removeEventListener("keydown", onKey);
    };
  }, []);
}
