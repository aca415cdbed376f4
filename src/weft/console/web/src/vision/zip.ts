/** A zip of files as they are, made in the browser: a folder with labels beside its pictures is one thing and travels as one. */

export interface ZipEntry {
  readonly name: string;
  readonly file: Blob;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});

export function crc32(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) value = TABLE[(value ^ byte) & 255]! ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

const MOST_BYTES = 0xfffffffe;
const MOST_FILES = 0xfffe;

/** Tells whether files fit into a plain zip, which has 32 bits for places and 16 for their number. */
export function fitsZip(entries: readonly ZipEntry[]): boolean {
  return entries.length <= MOST_FILES && entries.reduce((sum, one) => sum + one.file.size + 2 * one.name.length + 100, 0) < MOST_BYTES;
}

/** Returns the fields that a file has both before its bytes and in the list at the end. */
function fields(crc: number, size: number, name: Uint8Array): number[] {
  const [short, long] = [(value: number) => [value & 255, (value >>> 8) & 255], (value: number) => [value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24]];
  // Version 2.0, names in UTF-8, stored, 1 January 1980.
  return [...short(20), ...short(0x800), ...short(0), ...short(0), ...short(33), ...long(crc), ...long(size), ...long(size), ...short(name.length), ...short(0)];
}

/** Returns files as a zip; one at a time is read, for its sum. */
export async function zipOf(entries: readonly ZipEntry[]): Promise<Blob> {
  const parts: BlobPart[] = [];
  const list: BlobPart[] = [];
  let [at, listed] = [0, 0];
  const long = (value: number): number[] => [value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24];
  for (const { name: text, file } of entries) {
    const name = new TextEncoder().encode(text);
    const same = fields(crc32(new Uint8Array(await file.arrayBuffer())), file.size, name);
    const head = Uint8Array.from([0x50, 0x4b, 3, 4, ...same]);
    const row = Uint8Array.from([0x50, 0x4b, 1, 2, 20, 0, ...same, 0, 0, 0, 0, 0, 0, ...long(0), ...long(at)]);
    parts.push(head, name, file);
    list.push(row, name);
    at += head.length + name.length + file.size;
    listed += row.length + name.length;
  }
  const many = [entries.length & 255, entries.length >>> 8];
  const end = Uint8Array.from([0x50, 0x4b, 5, 6, 0, 0, 0, 0, ...many, ...many, ...long(listed), ...long(at), 0, 0]);
  return new Blob([...parts, ...list, end], { type: "application/zip" });
}
