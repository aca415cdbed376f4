/** One picture on the workbench: its editor, the keys, and the outbox that saves each change. */
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Link } from "wouter";
import { send } from "../../../api/client";
import { useSession } from "../../../api/queries";
import { assist, datasetPath, fileQuery, pictureUrl, sheetFrom, type Dataset } from "../../../api/vision";
import type { VisionFileDetail, VisionLabelsChange } from "../../../api/types";
import { Button, tell, tellError } from "../../../parts/controls";
import { useParam } from "../../../text/address";
import { plural } from "../../../text/format";
import { coloursOf } from "../../../vision/colours";
import { act as next, makeEditor, selectedShapes, sheetOf, type Action, type Editor } from "../../../vision/editor";
import type { Outbox, SaveState } from "../../../vision/outbox";
import { sameSheet, type Shape, type Sheet } from "../../../vision/shapes";
import { ConflictDialog, KeySheet } from "./dialogs";
import css from "./label.module.css";
import { AutoPanel, CategoryPanel, LabelList, ObjectList } from "./side";
import { Stage, type StageApi } from "./stage";
import { Tools } from "./tools";
import { TrackPanel, useTracks } from "./tracks";
import { useCommands } from "./useCommands";
import { useOutbox } from "./useOutbox";

const FALLBACK = "object"; // the label of shapes in a data set that has none yet
const SAVE_WORDS: Record<SaveState, string> = {
  saved: "Saved", unsaved: "Not saved yet", saving: "Saving", offline: "Offline", conflict: "Two changed this", refused: "Refused",
};
const NO_NAMES: readonly string[] = [FALLBACK];
const MOST_EDITORS = 60; // pictures whose undo is kept

interface Server {
  readonly revision: number;
  readonly sheet: Sheet;
  readonly review: string | null;
}
interface Bench {
  readonly file: string;
  readonly editor: Editor;
  readonly server: Server;
  readonly review: string | null;
}

interface WorkbenchProps {
  dataset: Dataset;
  file: VisionFileDetail;
  place: string;
  back: string;
  mayEdit: boolean;
  before: string | null; // the picture whose shapes R repeats
  onStep: (by: 1 | -1) => void;
  onOpen: (file: string) => void;
  onNextUnlabelled: (done: readonly string[]) => void;
}

export function Workbench({ dataset, file, place, back, mayEdit, before, onStep, onOpen, onNextUnlabelled }: WorkbenchProps) {
  const client = useQueryClient();
  const session = useSession();
  const api = useRef<StageApi | null>(null);
  const field = useRef<HTMLInputElement>(null);
  const clipboard = useRef<readonly Shape[]>([]);
  const visited = useRef(new Map<string, Bench>());
  const [mode, setMode] = useParam("mode", "objects");
  const [crosshair, setCrosshair] = useState(true);
  const [tolerance, setTolerance] = useState(24);
  const [help, setHelp] = useState(false);
  // Names that are new in this page; the service may not have them yet.
  const [added, setAdded] = useState<{ readonly labels: readonly string[]; readonly categories: readonly string[] }>({ labels: [], categories: [] });
  const { outbox, standing } = useOutbox(session.data?.user.name ?? "", {
    onSaved: (saved, revision, sheet, review) => change((old) => (old.file === saved ? { ...old, server: { revision, sheet, review } } : old)),
    onMerged: (merged, base, theirs) => {
      tell("labels that somebody else saved were put together with yours");
      change((old) => (old.file === merged ? { ...old, editor: next(old.editor, { do: "rebase", base, theirs }) } : old));
    },
  });

  const names = useMemo(() => known(dataset.labels, added.labels), [dataset.labels, added.labels]);
  const categories = useMemo(() => known(dataset.categories, added.categories), [dataset.categories, added.categories]);
  const colours = useMemo(() => coloursOf(mode === "pictures" ? dataset.categories : dataset.labels), [mode, dataset.labels, dataset.categories]);

  function opened(one: VisionFileDetail, keep: Partial<Editor>): Bench {
    const server = { revision: one.revision, sheet: sheetFrom(one), review: one.review };
    const seen = visited.current.get(one.id);
    if (seen && seen.server.revision === one.revision) return { ...seen, editor: { ...seen.editor, tool: keep.tool ?? "box", label: keep.label ?? "", draft: null } };
    const pending = outbox.pending(one.id);
    const base = pending ? { ...server, revision: pending.revision, sheet: pending.base } : server;
    return { file: one.id, server: base, review: pending ? pending.review : server.review, editor: makeEditor({ width: one.width, height: one.height }, pending?.mine ?? server.sheet, keep) };
  }
  // The bench is changed at once, not with the next drawing: a key may label a picture and go on to the next.
  const current = useRef<Bench | null>(null);
  const [, draw] = useState(0);
  current.current ??= opened(file, { label: names[0] ?? FALLBACK });
  if (current.current.file !== file.id) {
    visited.current.set(current.current.file, current.current);
    if (visited.current.size > MOST_EDITORS) visited.current.delete(visited.current.keys().next().value!);
    current.current = opened(file, current.current.editor);
  } else if (file.revision > current.current.server.revision && !outbox.pending(file.id) && !current.current.editor.draft) {
    // Somebody else saved, or a track was filled; there is nothing of mine that it could clash with.
    visited.current.delete(file.id);
    current.current = opened(file, current.current.editor);
  }
  const bench = current.current;
  const { editor } = bench;
  const sheet = sheetOf(editor);
  const change = useCallback((one: (old: Bench) => Bench) => {
    const old = current.current!;
    const now = one(old);
    if (now === old) return;
    current.current = now;
    draw((turn) => turn + 1);
    if (sheetOf(now.editor) !== sheetOf(old.editor) || now.review !== old.review) store(outbox, now);
  }, [outbox]);
  const act = useCallback((action: Action) => change((old) => {
    const editor = next(old.editor, action);
    return editor === old.editor ? old : { ...old, editor };
  }), [change]);

  // An assist tool was used: the service is asked, and its answer is a polygon.
  const request = editor.assist;
  useEffect(() => {
    if (!request) return;
    let here = true;
    assist(bench.file, request, tolerance).then(
      (polygons) => {
        if (!here) return;
        if (polygons.length === 0) tell("nothing stands out there; try another place, or draw it");
        act({ do: "assisted", polygons });
      },
      (error: unknown) => {
        tellError(error);
        act({ do: "assisted", polygons: [] });
      },
    );
    return () => void (here = false);
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [request]);

  async function repeat(): Promise<void> {
    const from = before ?? [...visited.current.keys()].at(-1);
    if (!from) return tell("there is no picture before this one");
    try {
      const kept = visited.current.get(from);
      const old = kept ? sheetOf(kept.editor) : (outbox.pending(from)?.mine ?? sheetFrom(await client.fetchQuery(fileQuery(from))));
      if (mode === "pictures") act({ do: "category", category: old.category });
      else if (old.shapes.length === 0) tell("the picture before has no shapes");
      else act({ do: "add", shapes: old.shapes, tracks: file.kind === "frame" });
    } catch (error) {
      tellError(error);
    }
  }

  function pick(name: string): void {
    if (mode === "pictures") {
      act({ do: "category", category: name === sheet.category ? null : name });
      if (name !== sheet.category) onStep(1);
    } else act({ do: "label", label: name });
  }

  /** Accepts or deletes what a model chose: shapes, or the category of the whole picture, after which the next one comes. */
  function judge(how: "accept" | "reject"): void {
    if (mode !== "pictures") return act({ do: how });
    const doubtful = sheet.category_confidence !== null;
    act({ do: `${how}-category` });
    if (doubtful && how === "accept") onStep(1);
    return undefined;
  }

  function addName(name: string): void {
    const kind = mode === "pictures" ? "categories" : "labels";
    setAdded((old) => ({ ...old, [kind]: [...old[kind], name] }));
    const entries = [...(kind === "labels" ? names : categories), name].map((one) => ({ name: one }));
    const body: VisionLabelsChange = kind === "labels" ? { labels: entries } : { categories: entries };
    send("PUT", datasetPath(dataset.id, "/labels"), body).then(() => void client.invalidateQueries({ queryKey: ["vision", "dataset", dataset.id] }), tellError);
    pick(name);
  }

  const tracks = useTracks({ file, editor, act, outbox });

  const done = (): readonly string[] => [...visited.current.values()].filter((one) => sheetOf(one.editor).shapes.length > 0 || sheetOf(one.editor).category).map((one) => one.file);
  useCommands({
    editor, act, api, mayEdit, names: mode === "pictures" ? categories : names, pick, field, clipboard,
    onStep, onNextUnlabelled: () => onNextUnlabelled([...done(), file.id]), onRepeat: () => void repeat(), onHelp: () => setHelp(true),
    onMode: () => setMode(mode === "objects" ? "pictures" : "objects"), onCrosshair: () => setCrosshair((old) => !old),
    onSave: () => void outbox.flush().then(() => outbox.now().state === "saved" && tell("saved")),
    onReview: () => change((old) => ({ ...old, review: old.review === "approved" ? "" : "approved" })),
    onJudge: judge,
    onTrack: () => (tracks ? tracks.toggle() : tell("frames of films have tracks; this is a picture")),
  });

  // What stands beside the picture is not drawn again while something is dragged on it.
  const still = useStill(editor);
  const onPick = useStable(pick);
  const onNew = useStable(addName);
  const onJudge = useStable(judge);
  const onRepeat = useStable(() => void repeat());
  const onHelp = useStable(() => setHelp(true));
  const onZoom = useStable((factor: number | null) => (factor === null ? api.current?.fit() : api.current?.zoom(factor)));

  useEffect(() => {
    document.title = `${file.name} · Weft`;
  }, [file.name]);
  const conflict = standing.conflicts[0];
  const status = standing.state === "offline" ? `Offline: ${plural(standing.waiting, "picture")} kept here, tried again` : standing.state === "refused" ? `Refused: ${standing.problem}` : SAVE_WORDS[standing.state];
  return (
    <>
      <header className={css.head}>
        <Link href={back} aria-label={`Back to ${dataset.name}`}>{dataset.name}</Link>
        <h1 title={file.name}>{file.name}</h1>
        <span className={css.place}>{place}</span>
        <div className={css.ends}>
          <span className={css.saving} data-state={standing.state} role="status" data-testid="saving"><i />{status}</span>
          {standing.state === "refused" && <Button small onClick={() => outbox.drop(bench.file)}>Drop it</Button>}
          <Button small kind="quiet" icon="left" aria-label="Picture before" title="Picture before (d)" onClick={() => onStep(-1)} />
          <Button small kind="quiet" icon="right" aria-label="Next picture" title="Next picture (f)" onClick={() => onStep(1)} />
          {mayEdit && <Button small kind={bench.review === "approved" ? "primary" : "plain"} icon="check" aria-pressed={bench.review === "approved"} title="v" onClick={() => change((old) => ({ ...old, review: old.review === "approved" ? "" : "approved" }))}>Reviewed</Button>}
          <Button small title="Next without labels (n)" onClick={() => onNextUnlabelled([...done(), file.id])}>Next unlabelled</Button>
        </div>
      </header>
      <Tools editor={still} drafting={editor.draft !== null} act={act} mode={mode === "pictures" ? "pictures" : "objects"} tolerance={tolerance} onMode={setMode} onTolerance={setTolerance} onRepeat={onRepeat} onHelp={onHelp} onZoom={onZoom} mayEdit={mayEdit} />
      <Stage editor={mode === "pictures" ? { ...editor, tool: "select" } : editor} act={mode === "pictures" ? ignoreDrawing(act) : act} picture={pictureUrl(bench.file)} name={file.name} colours={colours} crosshair={crosshair} mayEdit={mayEdit} api={api} />
      <aside className={css.side} aria-label="Labels">
        {mode === "pictures" ? (
          <>
            <LabelList title="Category" names={categories} active={sheet.category} colours={colours} mayEdit={mayEdit} onPick={onPick} onNew={onNew} field={field} />
            <CategoryPanel sheet={sheet} onJudge={onJudge} mayEdit={mayEdit} />
          </>
        ) : (
          <>
            <LabelList title="Labels" names={names.length ? names : NO_NAMES} active={selectedLabel(still)} colours={colours} mayEdit={mayEdit} onPick={onPick} onNew={onNew} field={field} />
            <AutoPanel editor={still} act={act} mayEdit={mayEdit} />
            {tracks && <TrackPanel tracks={tracks} editor={still} file={file.id} colours={colours} mayEdit={mayEdit} onOpen={onOpen} />}
            <ObjectList editor={still} act={act} colours={colours} mayEdit={mayEdit} />
          </>
        )}
      </aside>
      {help && <KeySheet onClose={() => setHelp(false)} />}
      {conflict && (
        <ConflictDialog
          key={conflict.pending.file}
          pending={conflict.pending}
          theirs={conflict.theirs}
          colours={colours}
          size={conflict.pending.file === bench.file ? editor.size : (visited.current.get(conflict.pending.file)?.editor.size ?? null)}
          onResolve={(chosen) => {
            outbox.resolve(conflict.pending.file, chosen);
            if (conflict.pending.file === bench.file) act({ do: "replace", sheet: chosen ?? conflict.theirs.sheet });
          }}
        />
      )}
    </>
  );
}

/** Returns the editor as it was before anything was dragged: the same object while only the draft changes. */
function useStill(editor: Editor): Editor {
  const kept = useRef(editor);
  const keys = Object.keys(editor) as (keyof Editor)[];
  if (keys.some((key) => key !== "draft" && editor[key] !== kept.current[key])) kept.current = editor;
  return kept.current;
}

/** Returns one function that calls the newest. */
function useStable<A extends readonly unknown[], R>(newest: (...given: A) => R): (...given: A) => R {
  const now = useRef(newest);
  now.current = newest;
  return useCallback((...given: A) => now.current(...given), []);
}

/** Puts labels into the outbox, unless they are as the service has them, or as they are on their way. */
function store(outbox: Outbox, { file, server, review, editor }: Bench): void {
  const pending = outbox.pending(file);
  const now = pending ? { sheet: pending.mine, review: pending.review } : server;
  const mine = sheetOf(editor);
  if (sameSheet(mine, now.sheet) && review === now.review) return;
  outbox.put({ file, revision: server.revision, base: server.sheet, mine, review });
}

function known(all: readonly { name: string }[], added: readonly string[]): string[] {
  return [...new Set([...all.map((one) => one.name), ...added])];
}

function selectedLabel(editor: Editor): string {
  const labels = new Set(selectedShapes(editor).map((shape) => shape.label));
  return labels.size === 1 ? [...labels][0]! : editor.label;
}

/** A picture that is classified as a whole can be panned and zoomed, and nothing is drawn on it. */
function ignoreDrawing(act: (action: Action) => void): (action: Action) => void {
  return (action) => (["down", "move", "up"].includes(action.do) ? undefined : act(action));
}
