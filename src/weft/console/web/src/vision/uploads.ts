/** Files on their way to a data set: a few at once, each with its progress; pure bookkeeping, and the drop that fills it. */
import type { Sent } from "../api/vision";
import { fitsZip, zipOf } from "./zip";

export interface Item {
  readonly name: string;
  readonly share: number; // of it that was sent
  readonly state: "waiting" | "sending" | "done" | "failed";
  readonly problem: string | null;
}

export interface Summary {
  readonly total: number;
  readonly done: number;
  readonly failed: readonly Item[];
  readonly share: number;
  readonly busy: boolean;
}

export function summary(items: readonly Item[]): Summary {
  const done = items.filter((item) => item.state === "done").length;
  const failed = items.filter((item) => item.state === "failed");
  const share = items.length ? items.reduce((sum, item) => sum + (item.state === "done" || item.state === "failed" ? 1 : item.share), 0) / items.length : 0;
  return { total: items.length, done, failed, share, busy: items.some((item) => item.state === "waiting" || item.state === "sending") };
}

/** Returns the category of a file in folders: that of class folders has one folder a class below the one that was dropped. */
export function categoryOf(path: string): string | undefined {
  const parts = path.split("/").filter(Boolean);
  return parts.length >= 3 ? parts.at(-2) : undefined;
}

const LABELS = /\.(xml|txt|json|ya?ml|csv|names)$/i;

/** Returns files as they are sent: folders whose pictures have labels beside them are one zip each, which keeps both together. */
export async function packed(sent: readonly Sent[]): Promise<readonly Sent[]> {
  const folder = (one: Sent): string => (one.name.includes("/") ? one.name.slice(0, one.name.indexOf("/")) : "");
  const labelled = new Set(sent.filter((one) => folder(one) && LABELS.test(one.name)).map(folder));
  const alone = sent.filter((one) => !labelled.has(folder(one)));
  const zips = [...labelled].map(async (top) => {
    const inside = sent.filter((one) => folder(one) === top);
    if (!fitsZip(inside)) return inside.filter((one) => !LABELS.test(one.name));
    const name = `${top}.zip`;
    return [{ file: new File([await zipOf(inside)], name, { type: "application/zip" }), name }];
  });
  return [...alone, ...(await Promise.all(zips)).flat()];
}

/** Returns a name for a data set of files: that of their folder, or of the one file; never one that is taken. */
export function nameFor(files: readonly Sent[], taken: readonly string[]): string {
  const tops = new Set(files.map((one) => one.name.split("/")[0]!));
  const first = tops.size === 1 ? [...tops][0]! : "pictures";
  const name = first.replace(/\.[A-Za-z0-9]{1,5}$/, "").replace(/[@/\\\s]+/g, "-").slice(0, 60) || "pictures";
  for (let number = 1; ; number += 1) {
    const one = number === 1 ? name : `${name}-${number}`;
    if (!taken.includes(one)) return one;
  }
}

/** Returns all files of a drop, those in folders among them. */
export async function dropped(transfer: DataTransfer): Promise<Sent[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry !== null && entry !== undefined);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ file, name: file.name }));
  return withClasses((await Promise.all(entries.map((entry) => files(entry, "")))).flat());
}

/** Returns files with the folder as category where several folders were dropped at once: each is a class. */
export function withClasses(sent: readonly Sent[]): Sent[] {
  const tops = new Set(sent.filter((one) => one.name.includes("/")).map((one) => one.name.split("/")[0]!));
  if (tops.size < 2) return [...sent];
  return sent.map((one) => (one.category === undefined && one.name.split("/").length === 2 ? { ...one, category: one.name.split("/")[0] } : one));
}

async function files(entry: FileSystemEntry, before: string): Promise<Sent[]> {
  const path = `${before}${entry.name}`;
  if (entry.name.startsWith(".")) return [];
  if (entry.isFile) {
    const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
    return [{ file, name: path, category: categoryOf(path) }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: FileSystemEntry[] = [];
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (part.length === 0) break; // a browser gives a hundred at a time
    found.push(...part);
  }
  return (await Promise.all(found.map((inner) => files(inner, `${path}/`)))).flat();
}
