/** Labelled shapes and the sheet of one picture: what the labelling page edits, sends and compares. Nothing is mutated. */
import {
  boxArea, boxAround, distance, height, inBox, inRing, moveBox, movePoint, nearestEdge, ringArea, tenth, tenths, width,
  type Box, type Point, type Size,
} from "./geometry";
import { decodeRuns, encodeRuns, noBits, runsArea, runsBox, runsHave, type RunLengths } from "./masks";

export type ShapeKind = "box" | "polygon" | "mask";

/** One labelled object: a box, and where drawn, its polygons or its mask. */
export interface Shape {
  readonly id: string;
  readonly label: string;
  readonly box: Box;
  readonly polygons: readonly (readonly Point[])[];
  readonly mask: RunLengths | null;
  readonly confidence: number | null; // of the model that made it; null: a person made or accepted it
  readonly model: string | null;
  readonly track: string | null;
}

/** All labels of one picture. */
export interface Sheet {
  readonly category: string | null;
  readonly category_confidence: number | null;
  readonly shapes: readonly Shape[];
}

export const EMPTY_SHEET: Sheet = { category: null, category_confidence: null, shapes: [] };

/** Returns a name for a new shape that no other shape has. */
export function freshId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const kindOf = (shape: Shape): ShapeKind => (shape.mask ? "mask" : shape.polygons.length > 0 ? "polygon" : "box");

export function boxShape(id: string, label: string, box: Box): Shape {
  const [x0, y0, x1, y1] = box;
  return { id, label, box: [tenth(x0), tenth(y0), tenth(x1), tenth(y1)], polygons: [], mask: null, confidence: null, model: null, track: null };
}

export function polygonShape(id: string, label: string, polygons: readonly (readonly Point[])[]): Shape {
  const rings = polygons.map((ring) => ring.map(tenths));
  return { ...boxShape(id, label, boxAround(rings.flat())), polygons: rings };
}

/** Returns a shape of a mask, or null where nothing is painted. */
export function maskShape(id: string, label: string, mask: RunLengths): Shape | null {
  const box = runsBox(mask);
  return box && { ...boxShape(id, label, box), mask };
}

export const INTERPOLATED = "interpolation"; // the model of boxes that a track put between two that were drawn

/** Returns a shape as a person's: what was corrected by hand has no model's confidence, and no track puts it elsewhere. */
export function byHand(shape: Shape): Shape {
  if (shape.confidence === null && shape.model !== INTERPOLATED) return shape;
  return { ...shape, confidence: null, model: shape.model === INTERPOLATED ? null : shape.model };
}

export function moveShape(shape: Shape, by: Point): Shape {
  if (by[0] === 0 && by[1] === 0) return shape;
  if (shape.mask) {
    const mask = moveMask(shape.mask, [Math.round(by[0]), Math.round(by[1])]);
    return byHand({ ...shape, mask, box: runsBox(mask) ?? shape.box });
  }
  const polygons = shape.polygons.map((ring) => ring.map((point) => tenths(movePoint(point, by))));
  const box = polygons.length ? boxAround(polygons.flat()) : boxShape("", "", moveBox(shape.box, by)).box;
  return byHand({ ...shape, box, polygons });
}

function moveMask(mask: RunLengths, by: Point): RunLengths {
  const [from, to] = [decodeRuns(mask), noBits(mask)];
  for (let x = 0; x < mask.width; x += 1) {
    const target = x + by[0];
    if (target < 0 || target >= mask.width) continue;
    for (let y = Math.max(0, -by[1]); y < Math.min(mask.height, mask.height - by[1]); y += 1) {
      to.data[target * mask.height + y + by[1]] = from.data[x * mask.height + y]!;
    }
  }
  return encodeRuns(to);
}

/** Returns a shape of one picture as it is put into another: clipped to it, without confidence or track; null: outside. */
export function fitShape(shape: Shape, size: Size, id: string): Shape | null {
  if (shape.mask) {
    return shape.mask.width === size.width && shape.mask.height === size.height ? { ...shape, id, confidence: null, model: null, track: null } : null;
  }
  const clip = ([x, y]: Point): Point => [Math.min(size.width, Math.max(0, x)), Math.min(size.height, Math.max(0, y))];
  const polygons = shape.polygons.map((ring) => ring.map(clip)).filter((ring) => ringArea(ring) > 0);
  const [a, b] = [clip([shape.box[0], shape.box[1]]), clip([shape.box[2], shape.box[3]])];
  const box = polygons.length ? boxAround(polygons.flat()) : ([a[0], a[1], b[0], b[1]] as const);
  if (boxArea(box) <= 0 || (shape.polygons.length > 0 && polygons.length === 0)) return null;
  return { ...shape, id, box, polygons, confidence: null, model: null, track: null };
}

export function shapeArea(shape: Shape): number {
  if (shape.mask) return runsArea(shape.mask);
  return shape.polygons.length ? shape.polygons.reduce((sum, ring) => sum + ringArea(ring), 0) : boxArea(shape.box);
}

/** Returns whether a shape is at a point, or has its outline within `reach` of it. */
export function shapeAt(shape: Shape, point: Point, reach: number): boolean {
  if (!inBox(shape.box, point, reach)) return false;
  if (shape.mask) return runsHave(shape.mask, point);
  if (shape.polygons.length === 0) return true;
  return shape.polygons.some((ring) => inRing(ring, point) || nearestEdge(ring, point).distance <= reach);
}

/** Returns the smallest shape at a point: what lies within another one can always be reached. */
export function smallestAt(shapes: Iterable<Shape>, point: Point, reach: number): Shape | null {
  let best: Shape | null = null;
  for (const shape of shapes) {
    if (shapeAt(shape, point, reach) && (best === null || shapeArea(shape) < shapeArea(best))) best = shape;
  }
  return best;
}

export interface VertexPlace {
  readonly ring: number;
  readonly index: number;
}

export function vertexAt(shape: Shape, point: Point, reach: number): VertexPlace | null {
  let best: (VertexPlace & { far: number }) | null = null;
  shape.polygons.forEach((ring, number) =>
    ring.forEach((vertex, index) => {
      const far = distance(vertex, point);
      if (far <= reach && (best === null || far < best.far)) best = { ring: number, index, far };
    }),
  );
  return best && { ring: (best as VertexPlace).ring, index: (best as VertexPlace).index };
}

/** Returns a polygon with one of its rings changed. */
export function withRing(shape: Shape, ring: number, points: readonly Point[]): Shape {
  const polygons = shape.polygons.map((old, index) => (index === ring ? points.map(tenths) : old));
  return byHand({ ...shape, polygons, box: boxAround(polygons.flat()) });
}

/** Returns what a screen reader says of a shape: "box RBC, 120 by 80". */
export function spokenShape(shape: Shape): string {
  const auto = shape.confidence === null ? "" : `, auto ${Math.round(shape.confidence * 100)} %`;
  const size = `${Math.round(width(shape.box))} by ${Math.round(height(shape.box))}`;
  const vertices = shape.polygons.length ? `, ${shape.polygons.flat().length} vertices` : "";
  return `${kindOf(shape)} ${shape.label || "without a label"}, ${size}${vertices}${auto}`;
}

export function sameShape(a: Shape, b: Shape): boolean {
  return a === b || JSON.stringify([a.label, a.box, a.polygons, a.mask, a.confidence, a.track]) === JSON.stringify([b.label, b.box, b.polygons, b.mask, b.confidence, b.track]);
}

export function sameSheet(a: Sheet, b: Sheet): boolean {
  return a.category === b.category && a.category_confidence === b.category_confidence && a.shapes.length === b.shapes.length
    && a.shapes.every((shape, index) => shape.id === b.shapes[index]!.id && sameShape(shape, b.shapes[index]!));
}
