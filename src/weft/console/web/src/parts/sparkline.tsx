/** A curve at a glance, in the height of a line of text. */

/** Returns the path of values scaled into a box; gaps stay gaps. */
export function sparkPath(values: readonly (number | null)[], width: number, height: number): string {
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (finite.length < 2) return "";
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  const step = width / (values.length - 1);
  let path = "";
  let down = false;
  values.forEach((value, index) => {
    if (value === null || !Number.isFinite(value)) {
      down = false;
      return;
    }
    const y = height - 1.5 - ((value - low) / span) * (height - 3);
    path += `${down ? "L" : "M"}${(index * step).toFixed(1)} ${y.toFixed(1)}`;
    down = true;
  });
  return path;
}

export function Sparkline({ values, label, width = 84, height = 20 }: { values: readonly (number | null)[]; label: string; width?: number; height?: number }) {
  const path = sparkPath(values, width, height);
  if (!path) return null;
  return (
    <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
      <path d={path} fill="none" stroke="var(--line-1)" strokeWidth="1.3" strokeLinejoin="round" />
    </svg>
  );
}
