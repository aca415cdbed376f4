/** Which shade of the heat strip a value has: by its ratio to the usual, slow ones in the warm shades. */

export const LIMITS = [0.85, 0.97, 1.03, 1.15, 1.4] as const;

export function median(values: readonly (number | null)[]): number {
  const sorted = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
  if (sorted.length === 0) return 0;
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** Returns 0 (much faster than usual) to 5 (a straggler), or null where there is no value. */
export function shade(value: number | null, usual: number): number | null {
  if (value === null || usual <= 0) return null;
  const ratio = value / usual;
  const found = LIMITS.findIndex((limit) => ratio < limit);
  return found < 0 ? LIMITS.length : found;
}
