/** The table of jobs: as many rows in the page as fit the window, however many there are. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type CSSProperties } from "react";
import type { JobView } from "../../api/types";
import { useNow } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import css from "./jobs.module.css";
import { columnsOf, templateOf, type Column, type ColumnKey } from "./columns";
import { JobRow, type RowProps } from "./row";

export interface TableProps extends Pick<RowProps, "onFilter" | "onPriority" | "onPlace" | "queue"> {
  hidden: ReadonlySet<ColumnKey>;
  jobs: JobView[];
  total: number;
  active: number;
  chosen: ReadonlySet<number>;
  sort: string;
  onSort: (sort: string) => void;
  onSelect: (job: JobView, range: boolean) => void;
  onSelectAll: () => void;
  more: boolean;
  onMore: () => void;
}

export function JobsTable(props: TableProps) {
  const { jobs, total, active, chosen, queue, more, onMore } = props;
  const box = useRef<HTMLDivElement>(null);
  const now = useNow();
  const narrow = useNarrow();
  const rows = useVirtualizer({
    count: jobs.length,
    getScrollElement: () => box.current,
    estimateSize: () => (narrow ? 54 : 34),
    overscan: 12,
    scrollPaddingStart: 34,
  });
  useEffect(() => rows.measure(), [narrow, rows]);
  useEffect(() => {
    if (active >= 0) rows.scrollToIndex(active);
  }, [active, rows]);
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last > jobs.length - 60) onMore();
  }, [last, more, jobs.length, onMore]);
  const columns = columnsOf(queue, props.hidden);
  return (
    <div
      ref={box}
      role="grid"
      aria-label="Jobs"
      aria-rowcount={total + 1}
      aria-multiselectable="true"
      aria-activedescendant={jobs[active] ? `job-row-${jobs[active].id}` : undefined}
      tabIndex={0}
      className={css.grid}
      style={{ "--columns": templateOf(columns, false), "--columns-slim": templateOf(columns, true) } as CSSProperties}
    >
      <div role="row" aria-rowindex={1} className={css.head}>
        <div role="columnheader">
          <input
            type="checkbox"
            aria-label="select all that are loaded"
            checked={jobs.length > 0 && chosen.size >= jobs.length}
            onChange={props.onSelectAll}
          />
        </div>
        {columns.map((column) => (
          <ColumnHead key={column.key} column={column} sort={props.sort} onSort={props.onSort} />
        ))}
      </div>
      <div role="rowgroup" style={{ height: rows.getTotalSize(), position: "relative" }}>
        {items.map((item) => {
          const job = jobs[item.index]!;
          return (
            <JobRow
              key={job.id}
              job={job}
              index={item.index}
              top={item.start}
              active={item.index === active}
              selected={chosen.has(job.id)}
              queue={queue}
              now={now}
              onSelect={props.onSelect}
              onFilter={props.onFilter}
              onPriority={props.onPriority}
              onPlace={props.onPlace}
              hidden={props.hidden}
            />
          );
        })}
      </div>
    </div>
  );
}

function ColumnHead({ column, sort, onSort }: { column: Column; sort: string; onSort: (sort: string) => void }) {
  if (!column.sort) {
    return (
      <div role="columnheader" className={column.wide ? css.wide : undefined}>
        {column.text}
      </div>
    );
  }
  const down = sort === `-${column.sort}`;
  const up = sort === column.sort;
  return (
    <div role="columnheader" className={column.wide ? css.wide : undefined} aria-sort={down ? "descending" : up ? "ascending" : "none"}>
      <button type="button" onClick={() => onSort(down ? column.sort! : `-${column.sort}`)}>
        {column.text}
        {(down || up) && <Icon name={down ? "down" : "up"} size={11} />}
      </button>
    </div>
  );
}

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia("(max-width: 760px)").matches);
  useEffect(() => {
    const media = matchMedia("(max-width: 760px)");
    const tell = (): void => setNarrow(media.matches);
    media.addEventListener("change", tell);
    return () => media.removeEventListener("change", tell);
  }, []);
  return narrow;
}
