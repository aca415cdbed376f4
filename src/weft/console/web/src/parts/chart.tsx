/** A chart of curves, drawn by uPlot: drag to zoom, double click to see all; cursors of one page move together. */
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { smooth, stepAt, xValues, type Line, type XAxis } from "../text/curves";
import { bytes, count, duration, finePercent, number, plural } from "../text/format";
import { colour, useColourTurn } from "../theme";
import css from "./chart.module.css";

export interface ChartProps {
  title: string;
  metric?: string; // tells the unit where the title is not its name
  lines: Line[];
  axis: XAxis;
  smoothing: number;
  log: boolean;
  height?: number;
  zoom?: { first: number; last: number } | null;
  onZoom?: (range: { first: number; last: number } | null) => void;
}

const cursors = uPlot.sync("weft");

/** Returns how values of a metric are written: its name tells the unit. */
export function valueFormat(name: string): (value: number | null) => string {
  if (/bytes_s/.test(name)) return (value) => (value === null ? "–" : `${bytes(value)}/s`);
  if (/bytes/.test(name)) return (value) => (value === null ? "–" : bytes(value));
  if (/^system\/(cpu|gpu|memory|gpu_memory)(@|$)/.test(name)) return (value) => (value === null ? "–" : finePercent(value));
  return (value) => number(value);
}

/** Steps between the lines of an axis of bytes: powers of two, so that they stand at whole KiB and MiB. */
const BYTE_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);

export function Chart({ title, metric = title, lines, axis, smoothing, log, height = 190, zoom = null, onZoom }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const turn = useColourTurn();
  const data = useMemo(() => tables(lines, axis, smoothing, log), [lines, axis, smoothing, log]);
  const format = useMemo(() => valueFormat(metric), [metric]);
  const newest = useRef({ lines, axis, onZoom });
  newest.current = { lines, axis, onZoom };
  const shape = `${lines.map((line) => `${line.label}:${line.colour}`).join()}|${axis}|${log}|${smoothing > 0}|${turn}|${height}`;

  useEffect(() => {
    const host = box.current;
    if (!host) return undefined;
    const made = new uPlot(options(newest.current.lines, metric, axis, log, smoothing > 0, height, host.clientWidth, format, {
      setCursor: [(self: uPlot) => setCursor(self.cursor.idx ?? null)],
      setSelect: [
        (self: uPlot) => {
          const { left, width } = self.select;
          if (width < 4) return;
          const { lines: shown, axis: now, onZoom: tell } = newest.current;
          const [from, to] = [self.posToVal(left, "x"), self.posToVal(left + width, "x")];
          const first = shown[0];
          if (first) tell?.({ first: stepAt(first, now, from), last: stepAt(first, now, to) });
          self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        },
      ],
    }), data, host);
    plot.current = made;
    made.over.addEventListener("dblclick", () => newest.current.onZoom?.(null));
    const watcher = new ResizeObserver(() => made.setSize({ width: host.clientWidth, height }));
    watcher.observe(host);
    return () => {
      watcher.disconnect();
      made.destroy();
      plot.current = null;
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data, true);
    const first = lines[0];
    if (!zoom || !first || !plot.current || axis !== "step") return;
    plot.current.setScale("x", { min: zoom.first, max: zoom.last });
  }, [data, zoom, lines, axis]);

  const odd = lines.reduce((sum, line) => sum + line.curve.odd.length, 0);
  return (
    <figure className={css.chart} data-testid="chart">
      <div className={css.head}>
        <figcaption className={css.title}>{title}</figcaption>
        {odd > 0 && <span className={css.odd}>not finite in {plural(odd, "place")}</span>}
        <ul className={css.legend}>
          {lines.map((line, index) => (
            <li key={line.label}>
              <i className={css.swatch} style={{ background: `var(--line-${(line.colour % 8) + 1})` }} />
              {lines.length > 1 || line.label !== title ? line.label : null} <b>{format(valueAt(data, lines, index, smoothing, cursor))}</b>
            </li>
          ))}
        </ul>
      </div>
      <div ref={box} role="img" aria-label={summary(title, lines, format)} />
    </figure>
  );
}

/** Series of one line in the tables: low, high, raw where it is smoothed, and the line itself. */
const PER_LINE = (smoothed: boolean): number => (smoothed ? 2 : 3);

function valueAt(data: uPlot.AlignedData, lines: Line[], index: number, smoothing: number, cursor: number | null): number | null {
  const per = PER_LINE(smoothing > 0);
  const values = data[1 + index * per + per - 1];
  if (!values) return null;
  if (cursor === null) return lines[index]?.curve.mean.findLast((value) => value !== null) ?? null;
  for (let place = cursor; place >= 0; place -= 1) {
    const value = values[place];
    if (value !== undefined) return value;
  }
  return null;
}

/** Returns what uPlot draws: one axis for all lines, and for each the band or the raw values, then the line. */
export function tables(lines: Line[], axis: XAxis, smoothing: number, log: boolean): uPlot.AlignedData {
  const drawable = (values: readonly (number | null)[]): (number | null)[] =>
    log ? values.map((value) => (value !== null && value > 0 ? value : null)) : [...values];
  const parts = lines.map((line) => {
    const { mean, low, high } = line.curve;
    const columns =
      smoothing > 0 ? [drawable(mean), drawable(smooth(mean, smoothing))] : [drawable(low), drawable(high), drawable(mean)];
    return [xValues(line, axis), ...columns] as uPlot.AlignedData;
  });
  if (parts.length === 0) return [[]];
  return parts.length === 1 ? parts[0]! : uPlot.join(parts);
}

function options(
  lines: Line[],
  metric: string,
  axis: XAxis,
  log: boolean,
  smoothed: boolean,
  height: number,
  width: number,
  format: (value: number | null) => string,
  hooks: uPlot.Hooks.Arrays,
): uPlot.Options {
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  for (const line of lines) {
    const tone = colour(`--line-${(line.colour % 8) + 1}`);
    const dash = line.colour >= 8 ? [6, 3] : undefined;
    const crowded = lines.length > 2; // bands over bands hide the lines
    const edge: uPlot.Series = { width: 1, stroke: faint(tone, crowded ? 0.12 : 0.3), points: { show: false } };
    if (smoothed) series.push({ stroke: faint(tone, 0.28), width: 1, points: { show: false } });
    else {
      bands.push({ series: [series.length + 1, series.length], fill: faint(tone, crowded ? 0.08 : 0.16) });
      series.push(edge, edge);
    }
    const alone = line.curve.steps.length === 1; // one point makes no line
    series.push({ stroke: tone, width: 1.6, points: alone ? { show: true, size: 7, fill: tone } : { show: false }, ...(dash ? { dash } : {}) });
  }
  const ink = colour("--ink-3");
  const grid = { stroke: colour("--line"), width: 1 };
  const font = "11px 'Plex Sans', sans-serif";
  const base = { stroke: ink, grid, ticks: { show: false }, font };
  const side = (_: uPlot, splits: number[]): string[] => splits.map((value) => (value === null ? "" : format(value)));
  const along = (_: uPlot, splits: number[]): string[] =>
    splits.map((value) => (axis === "relative" ? duration(value * 1000).replace(/ 00 [sm]$/, "") : short(value)));
  return {
    width,
    height,
    series,
    bands,
    hooks,
    legend: { show: false },
    padding: [6, 8, 0, 0],
    cursor: { sync: { key: cursors.key }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: { x: { time: axis === "time" }, y: log ? { distr: 3 } : metric.startsWith("system/") ? { range: (_, __, high) => [0, high > 0 ? high * 1.05 : 1] } : {} },
    axes: [
      { ...base, size: 26, ...(axis === "time" ? {} : { values: along }) },
      { ...base, size: sizer, values: side, gap: 6, ...(/bytes/.test(metric) && !log ? { incrs: BYTE_STEPS } : {}) },
    ],
  };
}

/** Returns the width that the values beside the axis need. */
function sizer(_: uPlot, values: string[] | null): number {
  const longest = (values ?? []).reduce((most, value) => Math.max(most, (value ?? "").length), 0);
  return Math.max(36, longest * 6.4 + 14);
}

function short(value: number): string {
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return count(value);
}

function faint(tone: string, share: number): string {
  return tone.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
}

function summary(title: string, lines: Line[], format: (value: number | null) => string): string {
  const told = lines.map((line) => {
    const last = line.curve.mean.findLast((value) => value !== null) ?? null;
    return `${line.label} ${format(last)} at step ${line.curve.steps.at(-1) ?? 0}`;
  });
  return `${title}: ${told.join("; ")}`;
}
