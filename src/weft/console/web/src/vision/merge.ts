/** Labels that two people changed at once: what each of them did, and both together. */
import { sameShape, type Shape, type Sheet } from "./shapes";

export interface Merged {
  readonly sheet: Sheet;
  readonly clashes: readonly string[]; // ids of shapes that both changed, and differently; "category" for that
}

/** Returns the changes of two people to one sheet, put together; where both changed the same, mine stands and is told. */
export function mergeSheets(base: Sheet, mine: Sheet, theirs: Sheet): Merged {
  const clashes: string[] = [];
  const by = (sheet: Sheet): Map<string, Shape> => new Map(sheet.shapes.map((shape) => [shape.id, shape]));
  const [old, my, their] = [by(base), by(mine), by(theirs)];
  const same = (a: Shape | undefined, b: Shape | undefined): boolean => (a && b ? sameShape(a, b) : a === b);
  const ids = [...new Set([...theirs.shapes, ...mine.shapes].map((shape) => shape.id))];
  const shapes = ids.flatMap((id) => {
    const [was, one, other] = [old.get(id), my.get(id), their.get(id)];
    if (same(one, other) || same(was, one)) return other ?? [];
    if (!same(was, other)) clashes.push(id);
    return one ?? [];
  });
  const category = pick(base.category, mine.category, theirs.category);
  if (category.clash) clashes.push("category");
  const chosen = category.value === theirs.category && category.value !== mine.category ? theirs : mine;
  return { sheet: { category: category.value, category_confidence: chosen.category_confidence, shapes }, clashes };
}

function pick(base: string | null, mine: string | null, theirs: string | null): { value: string | null; clash: boolean } {
  if (mine === theirs || mine === base) return { value: theirs, clash: false };
  return { value: mine, clash: theirs !== base };
}

/** Returns what changed from one sheet to another, in words. */
export function changesInWords(from: Sheet, to: Sheet): string {
  const old = new Map(from.shapes.map((shape) => [shape.id, shape]));
  const fresh = new Map(to.shapes.map((shape) => [shape.id, shape]));
  const added = to.shapes.filter((shape) => !old.has(shape.id)).length;
  const gone = from.shapes.filter((shape) => !fresh.has(shape.id)).length;
  const changed = to.shapes.filter((shape) => old.has(shape.id) && !sameShape(shape, old.get(shape.id)!)).length;
  const words = [
    added && `${added} added`, changed && `${changed} changed`, gone && `${gone} deleted`,
    from.category !== to.category && `category ${to.category ?? "none"}`,
  ].filter(Boolean);
  return words.length ? words.join(", ") : "nothing changed";
}
