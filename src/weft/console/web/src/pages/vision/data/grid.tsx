/** The pictures of a data set in a grid that is drawn where one looks, with filters, a query, and actions on many. */
import { useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useLocation } from "wouter";
import { send } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import { datasetPath, invalidateDataset, thumbnailUrl, useDatasets, useFiles, type Dataset } from "../../../api/vision";
import type { VisionChange, VisionChangeAnswer, VisionFile } from "../../../api/types";
import { useKeys } from "../../../keys/keys";
import { Button, Chip, Chips, Segments, tell, tellError, Wrong } from "../../../parts/controls";
import { Icon } from "../../../parts/icons";
import { Empty, layout, Skeleton } from "../../../parts/layout";
import { useParam } from "../../../text/address";
import { count, plural } from "../../../text/format";
import { Sure } from "../../settings/parts";
import { shapeCount, stateOf } from "../label/strip";
import { visionCommand } from "../places";
import css from "./data.module.css";

const STATES = [["all", "All"], ["unlabelled", "Unlabelled"], ["labelled", "Labelled"], ["auto", "Auto"], ["review", "To review"]] as const;
const SORTS = [["added", "Oldest first"], ["-added", "Newest first"], ["name", "Name"], ["confidence", "Least confident"], ["-updated", "Changed last"]] as const;
const TILE = 164;

export function PicturesTab({ set, busy }: { set: Dataset; busy: boolean }) {
  const [state, setState] = useParam("state", "all");
  const [label, setLabel] = useParam("label");
  const [category, setCategory] = useParam("category");
  const [query, setQuery] = useParam("query");
  const [sort, setSort] = useParam("sort", "added");
  const [typed, setTyped] = useState(query);
  const filters = { state, label, category, query, sort };
  const list = useFiles(set.id, filters);
  const files = useMemo(() => list.data?.pages.flatMap((page) => page.files) ?? [], [list.data]);
  const total = list.data?.pages[0]?.total ?? 0;
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const mayAct = useMayAct();
  useEffect(() => setChosen(new Set()), [state, label, category, query]);
  useKeys([
    { keys: "a", label: "Select all pictures that are shown", run: () => setChosen(new Set(files.map((file) => file.id))) },
    { keys: "Escape", label: "Select none", run: () => setChosen(new Set()) },
  ]);
  if (set.counts.pictures + set.counts.films === 0)
    return busy ? <Skeleton lines={6} /> : (
      <div className={css.welcome}>
        <Empty title="Drop pictures here" text="Pictures, films, a zip, or folders: folders of classes become categories, and labels that lie beside pictures (COCO, YOLO, Pascal VOC, IBM) are read. Or from the terminal:" commands={[visionCommand(`data import ${set.name} PICTURES`)]} />
      </div>
    );
  return (
    <>
      <div className={css.filters}>
        <Segments label="State" value={state} options={STATES} onChange={setState} />
        <form
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            setQuery(typed);
          }}
        >
          <input type="search" aria-label="Query" placeholder={'name == "a*" and width > 800'} value={typed} onChange={(event) => setTyped(event.target.value)} onBlur={() => setQuery(typed)} />
        </form>
        <select aria-label="Order" value={sort} onChange={(event) => setSort(event.target.value)}>{SORTS.map(([key, text]) => <option key={key} value={key}>{text}</option>)}</select>
        <span className={layout.note} role="status">{plural(total, "file")}</span>
      </div>
      {set.labels.length + set.categories.length > 0 && (
        <Chips label="Labels and categories">
          {set.labels.slice(0, 30).map((one) => <Chip key={`l-${one.name}`} on={label === one.name} onClick={() => setLabel(label === one.name ? "" : one.name)}><i className={css.dot} style={{ background: one.colour }} />{one.name} <small>{count(one.pictures)}</small></Chip>)}
          {set.categories.slice(0, 30).map((one) => <Chip key={`c-${one.name}`} on={category === one.name} onClick={() => setCategory(category === one.name ? "" : one.name)}>{one.name} <small>{count(one.pictures)}</small></Chip>)}
        </Chips>
      )}
      {list.error ? <Wrong error={list.error} /> : null}
      {mayAct && chosen.size > 0 && <BulkBar set={set} chosen={chosen} total={total} filters={filters} loaded={files.length} onDone={() => setChosen(new Set())} />}
      {list.isPending && <Skeleton lines={8} />}
      {list.data && files.length === 0 && <p className={layout.note}>No file is like that; take a filter away.</p>}
      <Grid set={set} files={files} more={list.hasNextPage && !list.isFetchingNextPage ? () => void list.fetchNextPage() : null} chosen={chosen} onChoose={setChosen} mayAct={mayAct} />
    </>
  );
}

interface GridProps {
  set: Dataset;
  files: readonly VisionFile[];
  more: (() => void) | null;
  chosen: ReadonlySet<string>;
  onChoose: (chosen: ReadonlySet<string>) => void;
  mayAct: boolean;
}

function Grid({ set, files, more, chosen, onChoose, mayAct }: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [columns, setColumns] = useState(6);
  const [focus, setFocus] = useState(0);
  const [, go] = useLocation();
  const anchor = useRef(0);
  const colours = new Map(set.labels.map((one) => [one.name, one.colour]));
  useLayoutEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const measure = (): void => setColumns(Math.max(2, Math.floor(host.clientWidth / TILE)));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(host);
    return () => watcher.disconnect();
  }, []);
  const rows = Math.ceil(files.length / columns);
  const lines = useVirtualizer({ count: rows, getScrollElement: () => box.current, estimateSize: () => TILE, overscan: 3 });
  const items = lines.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (last >= rows - 4 && more) more();
  }, [last, rows, more]);

  const open = (file: VisionFile): void => go(file.kind === "film" ? `/vision/film/${encodeURIComponent(file.id)}` : `/vision/label/${encodeURIComponent(set.id)}/${encodeURIComponent(file.id)}`);
  function choose(index: number, range: boolean): void {
    const next = new Set(chosen);
    if (range) for (let here = Math.min(anchor.current, index); here <= Math.max(anchor.current, index); here += 1) next.add(files[here]!.id);
    else if (!next.delete(files[index]!.id)) next.add(files[index]!.id);
    anchor.current = index;
    onChoose(next);
  }
  function onKey(event: React.KeyboardEvent): void {
    const ways: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, PageDown: columns * 4, PageUp: -columns * 4 };
    const by = ways[event.key];
    const file = files[focus];
    if (by !== undefined) {
      const next = Math.min(files.length - 1, Math.max(0, focus + by));
      setFocus(next);
      lines.scrollToIndex(Math.floor(next / columns));
    } else if (event.key === "Enter" && file) open(file);
    else if ((event.key === " " || event.key === "x") && file && mayAct) choose(focus, event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  return (
    <div ref={box} className={css.grid} role="listbox" aria-multiselectable="true" aria-label="Pictures" tabIndex={0} aria-activedescendant={files[focus] ? `tile-${files[focus]!.id}` : undefined} onKeyDown={onKey}>
      <div style={{ height: lines.getTotalSize() }} role="presentation">
        {items.flatMap((line) =>
          files.slice(line.index * columns, (line.index + 1) * columns).map((file, offset) => {
            const index = line.index * columns + offset;
            const state = stateOf(file);
            return (
              <div
                key={file.id}
                id={`tile-${file.id}`}
                role="option"
                aria-selected={chosen.has(file.id)}
                className={css.tile}
                data-focus={index === focus || undefined}
                style={{ transform: `translate(${(offset * 100)}%, ${line.start}px)`, width: `${100 / columns}%` }}
                onClick={(event) => {
                  setFocus(index);
                  if (mayAct && (event.shiftKey || event.ctrlKey || event.metaKey)) choose(index, event.shiftKey);
                  else open(file);
                }}
              >
                <div>
                  <img src={thumbnailUrl(file.id)} alt="" loading="lazy" draggable={false} />
                  {file.kind === "film" && <span className={css.kind}><Icon name="film" size={14} /> {Math.round(file.duration_s ?? 0)} s</span>}
                  {mayAct && <i className={css.tick} data-on={chosen.has(file.id) || undefined} title="Select (x)" onClick={(event) => {
                    event.stopPropagation();
                    setFocus(index);
                    choose(index, event.shiftKey);
                  }} />}
                  <span className={css.caption}>
                    <b>{file.name}</b>
                    <span>
                      {Object.keys(file.labels).slice(0, 6).map((name) => <i key={name} className={css.dot} style={{ background: colours.get(name) }} title={name} />)}
                      {file.category ?? (shapeCount(file) ? plural(shapeCount(file), "object") : "")}{file.state === "auto" ? " · auto" : ""}{file.review === "approved" ? " · reviewed" : ""}<span className="unseen">, {state}</span>
                    </span>
                  </span>
                </div>
              </div>
            );
          }),
        )}
      </div>
    </div>
  );
}

interface BulkProps {
  set: Dataset;
  chosen: ReadonlySet<string>;
  total: number;
  loaded: number;
  filters: { state: string; label: string; category: string; query: string };
  onDone: () => void;
}

/** Actions on the selected files, or on all that the filter lets through, seen or not. */
function BulkBar({ set, chosen, total, loaded, filters, onDone }: BulkProps) {
  const client = useQueryClient();
  const others = (useDatasets().data?.datasets ?? []).filter((one) => one.id !== set.id);
  const [all, setAll] = useState(false);
  const amount = all ? total : chosen.size;
  async function run(change: Partial<VisionChange> & Pick<VisionChange, "action">, done: string): Promise<void> {
    const { state, label, category, query } = filters;
    const which = all ? { filter: { state: state as "all", query, ...(label ? { label } : {}), ...(category ? { category } : {}) } } : { files: [...chosen] };
    try {
      const answer = await send<VisionChangeAnswer>("POST", datasetPath(set.id, "/change"), { ...which, ...change });
      tell(`${plural(answer.changed, "file")} ${done}`);
      onDone();
    } catch (error) {
      tellError(error);
    }
    for (const key of [["vision", "file"], ["vision", "files"]]) void client.invalidateQueries({ queryKey: key });
    invalidateDataset(client, set.id);
  }
  return (
    <div className={css.bulk} role="toolbar" aria-label="Selected files">
      <b>{plural(amount, "file")} selected</b>
      {!all && chosen.size >= loaded && total > chosen.size && <Button small onClick={() => setAll(true)}>All {count(total)}</Button>}
      <select aria-label="Category" value="" onChange={(event) => void run({ action: "categorise", category: event.target.value === "-" ? null : event.target.value }, "have a category")}>
        <option value="" disabled>Category…</option>
        {set.categories.map((one) => <option key={one.name}>{one.name}</option>)}
        <option value="-">none</option>
      </select>
      {others.length > 0 && (
        <select aria-label="Move or copy" value="" onChange={(event) => {
          const [action, target] = [event.target.value.slice(0, 4) as "move" | "copy", event.target.value.slice(5)];
          void run({ action, target }, action === "move" ? "moved" : "copied");
        }}>
          <option value="" disabled>Move or copy…</option>
          {others.flatMap((one) => [<option key={`m${one.id}`} value={`move ${one.id}`}>move to {one.name}</option>, <option key={`c${one.id}`} value={`copy ${one.id}`}>copy to {one.name}</option>])}
        </select>
      )}
      <Button small icon="check" onClick={() => void run({ action: "accept", confidence: 0 }, "accepted")}>Accept auto labels</Button>
      <Button small icon="close" onClick={() => void run({ action: "reject", confidence: 1 }, "without auto labels")}>Delete auto labels</Button>
      <Button small onClick={() => void run({ action: "approve" }, "reviewed")}>Reviewed</Button>
      <Sure word="Delete" label={`delete ${amount} files`} onSure={() => void run({ action: "delete" }, "deleted")} />
      <Button small kind="quiet" onClick={onDone}>None</Button>
    </div>
  );
}
