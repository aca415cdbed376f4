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
const ARCHIVES = /\.zip$/i;
// Folders that tell a split, or what is in them, and no class: the service reads them, as it reads those of a zip.
const SPLIT = /^(train(ing)?|val(id(ation)?)?|dev|test(ing)?)$/i;
const TELLING = /^(images?|imgs?|pictures|pics|photos|data|dataset|jpegimages|frames|ground_?truth|masks?|gt)$/i;

/** Tells whether the folders of a path say more than a class each. */
function tells(path: string): boolean {
  const folders = path.split("/").slice(0, -1);
  if (folders.length > 1 && SPLIT.test(folders[0]!)) return true;
  return folders.length > 2 || folders.slice(1).some((name) => SPLIT.test(name) || TELLING.test(name));
}

/**
 * Returns files as they are sent: a folder with labels beside its pictures, or with folders of splits or masks, is one zip, which
 * keeps all of it together; so are pictures that were dropped together with their labels.
 */
export async function packed(sent: readonly Sent[]): Promise<readonly Sent[]> {
  const folder = (one: Sent): string => (one.name.includes("/") ? one.name.slice(0, one.name.indexOf("/")) : "");
  const whole = (one: Sent): boolean => LABELS.test(one.name) || tells(one.name);
  const loose = sent.filter((one) => !folder(one) && !ARCHIVES.test(one.name));
  const together = new Set(sent.filter((one) => folder(one) && whole(one)).map(folder));
  if (loose.some((one) => LABELS.test(one.name)) && loose.some((one) => !LABELS.test(one.name))) together.add("");
  const inside = (top: string): readonly Sent[] => (top ? sent.filter((one) => folder(one) === top) : loose);
  const joined = new Set([...together].filter((top) => fitsZip(inside(top))).flatMap(inside));
  const alone = sent.filter((one) => !joined.has(one) && !(together.has(folder(one)) && LABELS.test(one.name)));
  const zips = [...together].filter((top) => joined.has(inside(top)[0]!)).map(async (top) => {
    const name = `${top || "files"}.zip`;
    return { file: new File([await zipOf(inside(top))], name, { type: "application/zip" }), name };
  });
  return [...alone, ...(await Promise.all(zips))];
}

/** Returns the addresses in a text, one a line, where there is nothing else in it but lines that begin with #. */
export function addressesOf(text: string): string[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  return lines.every((line) => /^https?:\/\/\S+$/i.test(line)) ? lines : [];
}

/** Returns the addresses in the lists among files, and the files that are no lists. */
export async function withoutLists(sent: readonly Sent[]): Promise<{ urls: string[]; rest: Sent[] }> {
  const read = await Promise.all(sent.map(async (one) => (/^[^/]+\.(txt|urls)$/i.test(one.name) ? addressesOf(await one.file.text()) : [])));
  return { urls: read.flat(), rest: sent.filter((_, at) => read[at]!.length === 0) };
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
  if (tops.size < 2 || [...tops].every((name) => SPLIT.test(name))) return [...sent];
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
