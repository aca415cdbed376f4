/** Plane geometry of labels: points, boxes and polygons in pixels of the upright picture. */

export type Point = readonly [number, number];
/** Left, upper, right and lower edge. */
export type Box = readonly [number, number, number, number];
export interface Size {
  readonly width: number;
  readonly height: number;
}
/** The edges of a box that a handle moves: "n" is the upper one, "sw" the lower and the left one. */
export type Handle = "n" | "ne" | "e" | "se" | "s" | "sw" | "w" | "nw";
export const HANDLES: readonly Handle[] = ["nw", "n", "ne", "e", "se", "s", "sw", "w"];

export const distance = (a: Point, b: Point): number => Math.hypot(a[0] - b[0], a[1] - b[1]);
export const width = (box: Box): number => box[2] - box[0];
export const height = (box: Box): number => box[3] - box[1];
export const boxArea = (box: Box): number => Math.max(0, width(box)) * Math.max(0, height(box));
const between = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, value));

/** Returns the box between two corners, whichever they are. */
export function boxBetween(a: Point, b: Point): Box {
  return [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[0], b[0]), Math.max(a[1], b[1])];
}

/** Returns the box around points; the empty box of no points is at the origin. */
export function boxAround(points: Iterable<Point>): Box {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [x, y] of points) {
    left = Math.min(left, x);
    top = Math.min(top, y);
    right = Math.max(right, x);
    bottom = Math.max(bottom, y);
  }
  return left === Infinity ? [0, 0, 0, 0] : [left, top, right, bottom];
}

export function insidePicture(point: Point, size: Size): Point {
  return [between(point[0], 0, size.width), between(point[1], 0, size.height)];
}

/** Returns a point on the border of the picture where it is within `reach` of it, as people mean it to be. */
export function snapToBorder(point: Point, size: Size, reach: number): Point {
  const snap = (value: number, end: number): number => (value < reach ? 0 : value > end - reach ? end : value);
  return insidePicture([snap(point[0], size.width), snap(point[1], size.height)], size);
}

/** Returns by how much a box may move, so that it stays in the picture. */
export function allowedMove(box: Box, by: Point, size: Size): Point {
  const along = (low: number, high: number, wanted: number, end: number): number =>
    high - low >= end ? 0 : between(wanted, -low, end - high);
  return [along(box[0], box[2], by[0], size.width), along(box[1], box[3], by[1], size.height)];
}

export const movePoint = (point: Point, by: Point): Point => [point[0] + by[0], point[1] + by[1]];
export const moveBox = (box: Box, by: Point): Box => [box[0] + by[0], box[1] + by[1], box[2] + by[0], box[3] + by[1]];

export function handlePoint(box: Box, handle: Handle): Point {
  const x = handle.includes("w") ? box[0] : handle.includes("e") ? box[2] : (box[0] + box[2]) / 2;
  const y = handle.includes("n") ? box[1] : handle.includes("s") ? box[3] : (box[1] + box[3]) / 2;
  return [x, y];
}

/** Returns a box whose handle was pulled to a point; edges that were pulled past each other change roles. */
export function pullHandle(box: Box, handle: Handle, to: Point): Box {
  const x0 = handle.includes("w") ? to[0] : box[0];
  const x1 = handle.includes("e") ? to[0] : box[2];
  const y0 = handle === "n" || handle === "ne" || handle === "nw" ? to[1] : box[1];
  const y1 = handle === "s" || handle === "se" || handle === "sw" ? to[1] : box[3];
  return boxBetween([x0, y0], [x1, y1]);
}

export function inBox(box: Box, point: Point, margin: number = 0): boolean {
  return point[0] >= box[0] - margin && point[0] <= box[2] + margin && point[1] >= box[1] - margin && point[1] <= box[3] + margin;
}

/** Returns whether a ring has a point inside, by how often a ray to the right crosses it. */
export function inRing(ring: readonly Point[], [x, y]: Point): boolean {
  let inside = false;
  for (let here = 0, before = ring.length - 1; here < ring.length; before = here++) {
    const [x0, y0] = ring[before]!;
    const [x1, y1] = ring[here]!;
    if (y0 > y !== y1 > y && x < ((x0 - x1) * (y - y1)) / (y0 - y1) + x1) inside = !inside;
  }
  return inside;
}

/** Returns the area of a ring; a ring that runs the other way round has the same. */
export function ringArea(ring: readonly Point[]): number {
  let twice = 0;
  for (let here = 0, before = ring.length - 1; here < ring.length; before = here++) {
    twice += ring[before]![0] * ring[here]![1] - ring[here]![0] * ring[before]![1];
  }
  return Math.abs(twice) / 2;
}

/** Returns the point of a segment that is nearest to another point. */
export function nearestOnSegment(a: Point, b: Point, point: Point): Point {
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const long = dx * dx + dy * dy;
  const share = long === 0 ? 0 : between(((point[0] - a[0]) * dx + (point[1] - a[1]) * dy) / long, 0, 1);
  return [a[0] + share * dx, a[1] + share * dy];
}

/** Returns the edge of a ring that is nearest to a point: `index` is that of the vertex where it begins. */
export function nearestEdge(ring: readonly Point[], point: Point): { index: number; at: Point; distance: number } {
  let best = { index: 0, at: ring[0] ?? point, distance: Infinity };
  ring.forEach((start, index) => {
    const at = nearestOnSegment(start, ring[(index + 1) % ring.length]!, point);
    const far = distance(at, point);
    if (far < best.distance) best = { index, at, distance: far };
  });
  return best;
}

export const insertVertex = (ring: readonly Point[], edge: number, at: Point): Point[] => [...ring.slice(0, edge + 1), at, ...ring.slice(edge + 1)];
export const moveVertex = (ring: readonly Point[], index: number, to: Point): Point[] => ring.map((old, here) => (here === index ? to : old));

/** Returns a ring without a vertex; a triangle keeps all of its vertices. */
export function removeVertex(ring: readonly Point[], index: number): readonly Point[] {
  return ring.length <= 3 ? ring : ring.filter((_, here) => here !== index);
}

/** Returns whether two edges of a ring cross: such a polygon encloses nothing that one can name. */
export function crossesItself(ring: readonly Point[]): boolean {
  const many = ring.length;
  for (let one = 0; one < many; one += 1) {
    for (let other = one + 2; other < many; other += 1) {
      if (one === 0 && other === many - 1) continue; // they share a vertex
      if (segmentsCross(ring[one]!, ring[one + 1]!, ring[other]!, ring[(other + 1) % many]!)) return true;
    }
  }
  return false;
}

function segmentsCross(a: Point, b: Point, c: Point, d: Point): boolean {
  const turn = (p: Point, q: Point, r: Point): number => Math.sign((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]));
  return turn(a, b, c) * turn(a, b, d) < 0 && turn(c, d, a) * turn(c, d, b) < 0;
}

/** Returns a coordinate with a tenth of a pixel, which is finer than anybody draws. */
export const tenth = (value: number): number => Math.round(value * 10) / 10;
export const tenths = (point: Point): Point => [tenth(point[0]), tenth(point[1])];
