/** Masks painted by brush: bits while they are painted, run lengths by columns (as COCO has them) while they are kept. */
import type { Box, Point, Size } from "./geometry";

/** A mask in run lengths, by columns: background first, then in turns. */
export interface RunLengths {
  readonly width: number;
  readonly height: number;
  readonly counts: readonly number[];
}

/** Painted pixels by columns: pixel (x, y) is at x * height + y, as in the run lengths. */
export interface Bits extends Size {
  readonly data: Uint8Array;
}

export const noBits = (size: Size): Bits => ({ width: size.width, height: size.height, data: new Uint8Array(size.width * size.height) });

export function decodeRuns(runs: RunLengths): Bits {
  const bits = noBits(runs);
  let place = 0;
  runs.counts.forEach((count, index) => {
    if (index % 2 === 1) bits.data.fill(1, place, place + count);
    place += count;
  });
  return bits;
}

export function encodeRuns(bits: Bits): RunLengths {
  const counts: number[] = [];
  const { data } = bits;
  let value = 0;
  let start = 0;
  while (start < data.length) {
    const end = data.indexOf(1 - value, start);
    const next = end === -1 ? data.length : end;
    counts.push(next - start);
    start = next;
    value = 1 - value;
  }
  return { width: bits.width, height: bits.height, counts: counts.length ? counts : [data.length] };
}

/** Returns how many pixels a mask covers. */
export function runsArea(runs: RunLengths): number {
  return runs.counts.reduce((sum, count, index) => (index % 2 === 1 ? sum + count : sum), 0);
}

/** Returns the box around the painted pixels, or null where there are none. */
export function runsBox(runs: RunLengths): Box | null {
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  let place = 0;
  runs.counts.forEach((count, index) => {
    if (index % 2 === 1 && count > 0) {
      const [first, last] = [place, place + count - 1];
      const [x0, x1] = [Math.floor(first / runs.height), Math.floor(last / runs.height)];
      left = Math.min(left, x0);
      right = Math.max(right, x1 + 1);
      // A run that goes on in the next column covers the lower end of one and the upper end of the other.
      top = Math.min(top, x0 === x1 ? first % runs.height : 0);
      bottom = Math.max(bottom, x0 === x1 ? (last % runs.height) + 1 : runs.height);
    }
    place += count;
  });
  return right < 0 ? null : [left, top, right, bottom];
}

export function runsHave(runs: RunLengths, point: Point): boolean {
  const [x, y] = [Math.floor(point[0]), Math.floor(point[1])];
  if (x < 0 || y < 0 || x >= runs.width || y >= runs.height) return false;
  const wanted = x * runs.height + y;
  let place = 0;
  for (let index = 0; index < runs.counts.length; index += 1) {
    place += runs.counts[index]!;
    if (wanted < place) return index % 2 === 1;
  }
  return false;
}

/** Paints, or wipes, all pixels whose centre is within `radius` of the way from one point to the other. */
export function stroke(bits: Bits, from: Point, to: Point, radius: number, value: 0 | 1): void {
  const reach = Math.max(radius, 0.5);
  const x0 = Math.max(0, Math.floor(Math.min(from[0], to[0]) - reach));
  const x1 = Math.min(bits.width - 1, Math.ceil(Math.max(from[0], to[0]) + reach));
  const y0 = Math.max(0, Math.floor(Math.min(from[1], to[1]) - reach));
  const y1 = Math.min(bits.height - 1, Math.ceil(Math.max(from[1], to[1]) + reach));
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const long = dx * dx + dy * dy;
  for (let x = x0; x <= x1; x += 1) {
    for (let y = y0; y <= y1; y += 1) {
      const [px, py] = [x + 0.5 - from[0], y + 0.5 - from[1]];
      const share = long === 0 ? 0 : Math.min(1, Math.max(0, (px * dx + py * dy) / long));
      const [ex, ey] = [px - share * dx, py - share * dy];
      if (ex * ex + ey * ey <= reach * reach) bits.data[x * bits.height + y] = value;
    }
  }
}

/** Returns a mask with a stroke through some points painted on it, or wiped off it. */
export function withStroke(runs: RunLengths | null, size: Size, points: readonly Point[], radius: number, value: 0 | 1): RunLengths {
  const bits = runs ? decodeRuns(runs) : noBits(size);
  points.forEach((point, index) => stroke(bits, points[index - 1] ?? point, point, radius, value));
  return encodeRuns(bits);
}

/** Returns counts as the text that COCO packs them into: differences in letters of six bits. */
export function packCounts(counts: readonly number[]): string {
  const letters: number[] = [];
  counts.forEach((count, index) => {
    let left = index > 2 ? count - counts[index - 2]! : count;
    for (let more = true; more; ) {
      const bits = left & 0x1f;
      left >>= 5;
      more = bits & 0x10 ? left !== -1 : left !== 0;
      letters.push((more ? bits | 0x20 : bits) + 48);
    }
  });
  return letters.map((letter) => String.fromCharCode(letter)).join("");
}

export function unpackCounts(text: string): number[] {
  const counts: number[] = [];
  let [value, shift] = [0, 0];
  for (const letter of text) {
    const bits = letter.charCodeAt(0) - 48;
    value |= (bits & 0x1f) << shift;
    shift += 5;
    if (bits & 0x20) continue;
    if (bits & 0x10 && shift < 32) value |= -1 << shift;
    counts.push(counts.length > 2 ? value + counts.at(-2)! : value);
    [value, shift] = [0, 0];
  }
  return counts;
}
