/** Columns of the table of jobs: which there are, how wide, and which of them a person hides; that is kept. */
import { useCallback, useEffect, useRef, useState } from "react";
import { Button } from "../../parts/controls";
import css from "./jobs.module.css";

export type ColumnKey = "state" | "job" | "project" | "user" | "priority" | "workers" | "metric" | "time" | "why";

export interface Column {
  key: ColumnKey;
  text: string;
  width: string;
  sort?: string;
  wide?: boolean; // left out where the window is slim
  fixed?: boolean; // cannot be hidden
}

const ALL: Column[] = [
  { key: "state", text: "State", width: "6.25rem", fixed: true },
  { key: "job", text: "Job", width: "minmax(9rem, 1.4fr)", sort: "name", fixed: true },
  { key: "project", text: "Project", width: "minmax(4rem, 0.5fr)", wide: true },
  { key: "user", text: "User", width: "minmax(3.25rem, 0.3fr)", wide: true },
  { key: "workers", text: "Workers", width: "4rem" },
  { key: "metric", text: "Metric", width: "8.25rem" },
  { key: "time", text: "Time", width: "7.75rem" },
  { key: "why", text: "Why, when", width: "minmax(9rem, 2fr)", sort: "id" },
];
const QUEUE: Column[] = [
  { key: "state", text: "State", width: "6.75rem", fixed: true },
  { key: "job", text: "Job", width: "minmax(11rem, 1.2fr)", fixed: true },
  { key: "project", text: "Project", width: "minmax(5rem, 0.5fr)", wide: true },
  { key: "user", text: "User", width: "4.5rem", wide: true },
  { key: "priority", text: "Priority", width: "6.5rem", fixed: true },
  { key: "workers", text: "Workers", width: "4rem" },
  { key: "time", text: "Time", width: "8.5rem" },
  { key: "why", text: "Why", width: "minmax(12rem, 1.8fr)" },
];

export function columnsOf(queue: boolean, hidden: ReadonlySet<ColumnKey> = new Set()): Column[] {
  return (queue ? QUEUE : ALL).filter((column) => column.fixed || !hidden.has(column.key));
}

/** Returns the widths for the grid, with the column of check boxes first. */
export function templateOf(columns: readonly Column[], slim: boolean): string {
  return ["2rem", ...columns.filter((column) => !slim || !column.wide).map((column) => column.width)].join(" ");
}

const KEPT = "weft.jobs.hidden-columns";

/** Reads the hidden columns from text that an older version, or a person, may have written. */
export function hiddenFrom(text: string | null): Set<ColumnKey> {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    const known = new Set<string>(ALL.filter((column) => !column.fixed).map((column) => column.key));
    return new Set(Array.isArray(found) ? found.filter((key): key is ColumnKey => known.has(key as string)) : []);
  } catch {
    return new Set();
  }
}

export function useHiddenColumns(): [ReadonlySet<ColumnKey>, (key: ColumnKey) => void] {
  const [hidden, setHidden] = useState(() => hiddenFrom(localStorage.getItem(KEPT)));
  const toggle = useCallback((key: ColumnKey) => {
    setHidden((old) => {
      const fresh = new Set(old);
      if (!fresh.delete(key)) fresh.add(key);
      localStorage.setItem(KEPT, JSON.stringify([...fresh]));
      return fresh;
    });
  }, []);
  return [hidden, toggle];
}

/** A button that opens the list of columns; Escape and a click elsewhere close it. */
export function ColumnChooser({ queue, hidden, onToggle }: { queue: boolean; hidden: ReadonlySet<ColumnKey>; onToggle: (key: ColumnKey) => void }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    const close = (event: Event): void => {
      if (event instanceof KeyboardEvent ? event.key === "Escape" : !box.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("keydown", close);
    addEventListener("pointerdown", close);
    return () => {
      removeEventListener("keydown", close);
      removeEventListener("pointerdown", close);
    };
  }, [open]);
  return (
    <div ref={box} className={css.chooser}>
      <Button small aria-expanded={open} onClick={() => setOpen(!open)}>
        Columns
      </Button>
      {open && (
        <fieldset className={css.columns}>
          <legend className="unseen">Columns that are shown</legend>
          {columnsOf(queue)
            .filter((column) => !column.fixed)
            .map((column) => (
              <label key={column.key}>
                <input type="checkbox" checked={!hidden.has(column.key)} onChange={() => onToggle(column.key)} /> {column.text}
              </label>
            ))}
        </fieldset>
      )}
    </div>
  );
}
