/** Calls of the vision API: data sets of pictures, their files and labels, and uploads with progress. */
import { keepPreviousData, useInfiniteQuery, useQuery, type QueryClient } from "@tanstack/react-query";
import type { AssistRequest } from "../vision/editor";
import type { Point } from "../vision/geometry";
import type { SaveAnswer, Unsaved } from "../vision/outbox";
import { EMPTY_SHEET, type Shape, type Sheet } from "../vision/shapes";
import { ApiError, get, send, sendFile, url } from "./client";
import { packCounts, unpackCounts } from "../vision/masks";
import type { DatasetCounts, LabelView, ShapeView, VisionDataset, VisionFileDetail, VisionFiles, VisionLabelsBody, VisionTask, VisionTasks, VisionUploadAnswer } from "./types";

export type FileState = "all" | "unlabelled" | "labelled" | "auto" | "review";

export interface FileFilters {
  state?: string | undefined;
  label?: string | undefined;
  category?: string | undefined;
  query?: string | undefined;
  sort?: string | undefined;
  kind?: string | undefined;
  parent?: string | undefined; // the film whose frames are meant
}

/** A data set as the service answers it: counts that have defaults are always there. */
export type Dataset = Omit<VisionDataset, "counts" | "labels" | "categories"> & {
  counts: Required<DatasetCounts>;
  labels: Required<LabelView>[];
  categories: Required<LabelView>[];
};

/** Returns the address of the labelling page: whole pictures where only those are labelled, else objects. */
export function labelPath(set: Dataset, search: Record<string, string> = {}): string {
  const whole = set.categories.length > 0 && set.labels.every((one) => one.pictures === 0);
  const query = new URLSearchParams({ ...search, ...(whole ? { mode: "pictures" } : {}) }).toString();
  return `/vision/label/${encodeURIComponent(set.id)}${query && `?${query}`}`;
}

export const PAGE = 200;
const part = encodeURIComponent;

export const pictureUrl = (file: string): string => url(`/vision/files/${part(file)}/picture`);
export const thumbnailUrl = (file: string, side: number = 256): string => url(`/vision/files/${part(file)}/thumbnail`, { side });
export const filmUrl = (file: string): string => url(`/vision/files/${part(file)}/film`);
export const datasetPath = (dataset: string, rest: string = ""): string => `/vision/datasets/${part(dataset)}${rest}`;

export const useDatasets = () =>
  useQuery({ queryKey: ["vision", "datasets"], queryFn: ({ signal }) => get<{ datasets: Dataset[] }>("/vision/datasets", {}, signal) });

export const useDataset = (dataset: string) =>
  useQuery({ queryKey: ["vision", "dataset", dataset], queryFn: ({ signal }) => get<Dataset>(datasetPath(dataset), {}, signal), placeholderData: keepPreviousData });

/** Reads the files of a data set page by page, as they are scrolled to. */
export function useFiles(dataset: string, filters: FileFilters) {
  return useInfiniteQuery({
    queryKey: ["vision", "files", dataset, filters],
    queryFn: ({ pageParam, signal }) => get<VisionFiles>(datasetPath(dataset, "/files"), { ...filters, limit: PAGE, after: pageParam || undefined }, signal),
    initialPageParam: "",
    getNextPageParam: (page) => page.next ?? undefined,
    placeholderData: keepPreviousData,
  });
}

export const useTasks = (on: boolean = true) =>
  useQuery({
    queryKey: ["vision", "tasks"],
    queryFn: ({ signal }) => get<VisionTasks>("/vision/tasks", {}, signal),
    enabled: on,
    refetchInterval: (query) => (query.state.data?.tasks.some((task) => running(task)) ? 1000 : false),
  });

export const running = (task: VisionTask): boolean => task.state === "waiting" || task.state === "running";

export const fileQuery = (file: string) => ({
  queryKey: ["vision", "file", file],
  queryFn: ({ signal }: { signal?: AbortSignal }) => get<VisionFileDetail>(`/vision/files/${part(file)}`, {}, signal),
  staleTime: 30_000,
});

/** Returns the labels of a file as the labelling page edits them. */
export function sheetFrom(file: Pick<VisionFileDetail, "category" | "category_confidence" | "shapes">): Sheet {
  return { ...EMPTY_SHEET, category: file.category, category_confidence: file.category_confidence, shapes: file.shapes.map(shapeFrom) };
}

function shapeFrom(shape: ShapeView, index: number): Shape {
  return {
    id: shape.id || `unnamed-${index}`, label: shape.label, box: shape.box, polygons: shape.polygons ?? [],
    mask: shape.mask ? { height: shape.mask.size[0], width: shape.mask.size[1], counts: unpackCounts(shape.mask.counts) } : null,
    confidence: shape.confidence ?? null, model: shape.model ?? null, track: shape.track ?? null,
  };
}

export function shapeView(shape: Shape): ShapeView {
  const { mask, polygons, box, ...rest } = shape;
  return {
    ...rest, box: [...box], polygons: polygons.map((ring) => ring.map(([x, y]) => [x, y])),
    mask: mask && { size: [mask.height, mask.width], counts: packCounts(mask.counts) },
  };
}

/** Saves labels; where somebody else saved first, returns what they did. */
export async function saveLabels(one: Unsaved): Promise<SaveAnswer> {
  try {
    const { category, category_confidence, shapes } = one.mine;
    const body: VisionLabelsBody = { revision: one.revision, category, category_confidence, shapes: shapes.map(shapeView), review: one.review as VisionLabelsBody["review"] };
    return await send<VisionFileDetail>("PUT", `/vision/files/${part(one.file)}/labels`, body);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 409) throw error;
    const now = await get<VisionFileDetail>(`/vision/files/${part(one.file)}`);
    return { conflict: { revision: now.revision, sheet: sheetFrom(now), review: now.review } };
  }
}

/** Tells whether the service could not be reached or is starting, so that the same request may succeed later. */
export const isAway = (error: unknown): boolean => !(error instanceof ApiError) || error.status >= 500 || error.status === 401 || error.status === 429;

export async function assist(file: string, request: AssistRequest, tolerance: number): Promise<readonly (readonly Point[])[]> {
  const answer = await send<{ polygons: readonly (readonly Point[])[] }>("POST", `/vision/files/${part(file)}/assist`, { ...request, tolerance });
  return answer.polygons;
}

export interface Sent {
  readonly file: File;
  readonly name: string;
  readonly category?: string | undefined;
}

/** Uploads one file as it is, telling how much of it went. */
export function upload(dataset: string, { file, name, category }: Sent, onProgress: (share: number) => void): Promise<VisionUploadAnswer> {
  return sendFile(datasetPath(dataset, "/upload"), { name, category }, file, onProgress);
}

/** What is shown of a data set, which an address names by its id or by its name. */
export const datasetKeys = (dataset: string): string[][] => [["vision", "files", dataset], ["vision", "dataset"], ["vision", "datasets"], ["vision", "tasks"]];

export function invalidateDataset(client: QueryClient, dataset: string): void {
  for (const queryKey of datasetKeys(dataset)) {
    // A first answer that is still on its way is older than what has changed, and would be taken for the new one.
    const first = client.cancelQueries({ queryKey, predicate: (query) => query.state.data === undefined });
    void first.then(() => client.invalidateQueries({ queryKey }));
  }
}
