/** Files on their way to a data set: a few at once, each with its progress; pure bookkeeping, and the drop that fills it. */
import type { Sent } from "../api/vision";

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

/** Returns all files of a drop, those in folders among them. */
export async function dropped(transfer: DataTransfer): Promise<Sent[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry !== null && entry !== undefined);
  if (entries.length === 0) return [...transfer.files].map((file) => ({ file, name: file.name }));
  return (await Promise.all(entries.map((entry) => files(entry, "")))).flat();
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
