/** Import by drag and drop: pictures, films, zips and folders, with progress; background work of the data set beside it. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import { send } from "../../../api/client";
import { datasetPath, invalidateDataset, running, upload, useTasks, type Sent } from "../../../api/vision";
import type { VisionTask } from "../../../api/types";
import { Button, tell, tellError } from "../../../parts/controls";
import { Bar, layout } from "../../../parts/layout";
import { count, plural } from "../../../text/format";
import { categoryOf, dropped, packed, summary, withoutLists, type Item } from "../../../vision/uploads";
import css from "./data.module.css";

const AT_ONCE = 4;

export interface Uploads {
  items: readonly Item[];
  add: (files: readonly Sent[]) => void;
  clear: () => void;
}

// Files that were dropped where there was no data set yet, until the page of the new one takes them.
const handed = new Map<string, readonly Sent[]>();
export const handOver = (dataset: string, files: readonly Sent[]): void => void handed.set(dataset, files);

/** Sends files a few at once and tells how far each is. */
export function useUploads(dataset: string): Uploads {
  const client = useQueryClient();
  const [items, setItems] = useState<readonly Item[]>([]);
  const queue = useRef<{ index: number; sent: Sent }[]>([]);
  const active = useRef(0);
  const known = useRef(0);

  const set = useCallback((index: number, change: Partial<Item>) => setItems((old) => old.map((item, here) => (here === index ? { ...item, ...change } : item))), []);
  const pump = useCallback(() => {
    while (active.current < AT_ONCE && queue.current.length) {
      const { index, sent } = queue.current.shift()!;
      active.current += 1;
      set(index, { state: "sending" });
      upload(dataset, sent, (share) => set(index, { share }))
        .then(() => set(index, { state: "done" }), (error: unknown) => set(index, { state: "failed", problem: error instanceof Error ? error.message : String(error) }))
        .finally(() => {
          active.current -= 1;
          if (queue.current.length === 0 && active.current === 0) invalidateDataset(client, dataset);
          pump();
        });
    }
  }, [client, dataset, set]);
  const put = useCallback((files: readonly Sent[]) => {
    const first = known.current;
    known.current += files.length;
    setItems((old) => [...old, ...files.map((sent) => ({ name: sent.name, share: 0, state: "waiting", problem: null }) as const)]);
    queue.current.push(...files.map((sent, offset) => ({ index: first + offset, sent })));
    pump();
  }, [pump]);
  const add = useCallback((files: readonly Sent[]) => {
    const sort = async (): Promise<void> => {
      const { urls, rest } = await withoutLists(files);
      put(await packed(rest));
      if (urls.length) await fetchPictures(client, dataset, urls);
    };
    sort().catch(tellError);
  }, [client, dataset, put]);
  useEffect(() => {
    const files = handed.get(dataset);
    handed.delete(dataset);
    if (files) add(files);
  }, [dataset, add]);
  const clear = useCallback(() => {
    known.current = 0;
    setItems([]);
  }, []);
  return { items, add, clear };
}

/** Lets the service fetch the pictures at addresses into a data set. */
export async function fetchPictures(client: QueryClient, dataset: string, urls: readonly string[]): Promise<void> {
  await send<VisionTask>("POST", datasetPath(dataset, "/import"), { urls });
  await client.invalidateQueries({ queryKey: ["vision", "tasks"] });
}

/** The page as a place to drop files on, and a button for those who do not drag. */
export function DropZone({ onFiles, children }: { onFiles: (files: readonly Sent[]) => void; children: React.ReactNode }) {
  const [over, setOver] = useState(0);
  const carries = (event: React.DragEvent): boolean => event.dataTransfer.types.includes("Files");
  return (
    <div
      className={css.drop}
      onDragEnter={(event) => carries(event) && setOver((old) => old + 1)}
      onDragLeave={(event) => carries(event) && setOver((old) => Math.max(0, old - 1))}
      onDragOver={(event) => carries(event) && event.preventDefault()}
      onDrop={(event) => {
        if (!carries(event)) return;
        event.preventDefault();
        setOver(0);
        dropped(event.dataTransfer).then((files) => (files.length ? onFiles(files) : tell("there are no files in it", true)), tellError);
      }}
    >
      {children}
      {over > 0 && <div className={css.dropping}>Drop pictures, films, zips or folders</div>}
    </div>
  );
}

export function ImportButton({ onFiles, folder }: { onFiles: (files: readonly Sent[]) => void; folder?: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button icon={folder ? "folder" : "load"} onClick={() => input.current?.click()}>{folder ? "Folder" : "Import"}</Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={folder ? "A folder to import" : "Files to import"}
        {...(folder ? { webkitdirectory: "" } : { accept: "image/*,video/*,.zip,.json,.xml,.csv,.txt,.urls" })}
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])].map((file) => ({ file, name: file.webkitRelativePath || file.name, category: categoryOf(file.webkitRelativePath) })));
          event.target.value = "";
        }}
      />
    </>
  );
}

export function UploadBar({ uploads }: { uploads: Uploads }) {
  const all = summary(uploads.items);
  if (all.total === 0) return null;
  return (
    <section className={css.progress} aria-label="Import">
      <div className={css.row}>
        <b>{all.busy ? `Importing ${plural(all.total, "file")}` : `${plural(all.done, "file")} imported`}</b>
        <span className={layout.note}>{count(all.done)} of {count(all.total)}{all.failed.length ? `, ${all.failed.length} refused` : ""}</span>
        {!all.busy && <Button small kind="quiet" icon="close" aria-label="Close" onClick={uploads.clear} />}
      </div>
      <Bar share={all.share} label={`${Math.round(all.share * 100)} % of the files`} />
      {all.failed.slice(0, 5).map((item) => (
        <p key={item.name} className={css.problem}><b>{item.name}</b>: {item.problem}</p>
      ))}
      {all.failed.length > 5 && <p className={layout.note}>and {all.failed.length - 5} more</p>}
    </section>
  );
}

/** Background work of a data set: imports, augmentations, frames, auto-labels. */
export function TaskBars({ dataset, problems = true }: { dataset: string; problems?: boolean }) {
  const client = useQueryClient();
  const tasks = useTasks();
  const mine = (tasks.data?.tasks ?? []).filter((task) => task.dataset === dataset);
  const active = mine.filter(running);
  const before = useRef(0);
  const far = active.reduce((sum, task) => sum + task.done, 0);
  // Pictures appear while they are imported, and once more when all is done.
  useEffect(() => {
    if (active.length < before.current || far > 0) invalidateDataset(client, dataset);
    before.current = active.length;
  }, [active.length, far, client, dataset]);
  // A short task may begin and end between two looks: one that has ended is news, too.
  const ended = mine.filter((task) => !running(task)).map((task) => task.id).join();
  useEffect(() => {
    if (ended) invalidateDataset(client, dataset);
  }, [ended, client, dataset]);
  const failed = mine.find((task) => task.state === "failed" || task.problems.length > 0);
  return (
    <>
      {active.map((task) => <TaskBar key={task.id} task={task} />)}
      {problems && active.length === 0 && failed && <TaskProblems key={failed.id} task={failed} />}
    </>
  );
}

const TASK_WORDS: Record<string, string> = { import: "Reading what was sent", fetch: "Fetching pictures", augment: "Making changed pictures", frames: "Taking frames", clone: "Copying" };

function TaskBar({ task }: { task: VisionTask }) {
  const client = useQueryClient();
  const share = task.total ? task.done / task.total : 0;
  return (
    <section className={css.progress} aria-label={task.kind}>
      <div className={css.row}>
        <b>{TASK_WORDS[task.kind] ?? task.kind}</b>
        <span className={layout.note}>{task.total ? `${count(task.done)} of ${count(task.total)}` : task.done ? count(task.done) : "starting"} {task.message}</span>
        <Button small kind="quiet" icon="stop" aria-label={`stop ${task.kind}`} onClick={() => void send("DELETE", `/vision/tasks/${task.id}`).then(() => client.invalidateQueries({ queryKey: ["vision", "tasks"] }), tellError)} />
      </div>
      <Bar share={share} label={`${task.kind}: ${Math.round(share * 100)} %`} />
    </section>
  );
}

function TaskProblems({ task }: { task: VisionTask }) {
  const key = `weft.seen-task.${task.id}`;
  const [seen, setSeen] = useState(() => sessionStorage.getItem(key) !== null);
  if (seen) return null;
  return (
    <section className={css.progress} aria-label={`${task.kind} problems`}>
      <div className={css.row}>
        <b>{task.kind} {task.state === "failed" ? "failed" : "left something out"}</b>
        <Button small kind="quiet" icon="close" aria-label="Close" onClick={() => {
          sessionStorage.setItem(key, "1");
          setSeen(true);
        }} />
      </div>
      {task.message && <p>{task.message}</p>}
      {task.problems.slice(0, 5).map((problem) => <p key={problem} className={css.problem}>{problem}</p>)}
      {task.problems.length > 5 && <p className={layout.note}>and {task.problems.length - 5} more</p>}
    </section>
  );
}
