/** Parallel coordinates: each job is a line through what differs between the jobs and how well they did. */
import type { JobDetail } from "../../api/types";
import { layout } from "../../parts/layout";
import { axisOf, placeOn, type CompareRow } from "../../text/compare";
import { number } from "../../text/format";
import css from "./compare.module.css";

const HEIGHT = 300;
const TOP = 44;
const SIDE = 70;
const GAP = 150;

/** Returns the rows that become axes: parameters that differ, then metrics that tell how well a job did. */
export function chooseAxes(rows: CompareRow[]): CompareRow[] {
  const differing = rows.filter((row) => row.differs);
  const results = differing.filter((row) => row.section === "Metrics, best");
  const telling = results.filter((row) => /loss|acc|error|score|f1|auc|perplexity|wer|bleu|reward/i.test(row.name));
  return [...differing.filter((row) => row.section === "Parameters").slice(0, 6), ...(telling.length ? telling : results).slice(0, 3)];
}

export function Parallel({ jobs, rows }: { jobs: JobDetail[]; rows: CompareRow[] }) {
  const chosen = chooseAxes(rows);
  if (chosen.length < 2) return <p className={layout.note}>At least two parameters or metrics must differ to draw lines between them.</p>;
  const axes = chosen.map((row) => axisOf(row.name, row.values));
  const width = SIDE * 2 + GAP * (axes.length - 1);
  const y = (place: number): number => TOP + (1 - place) * (HEIGHT - TOP - 30);
  return (
    <div className={css.lines} tabIndex={0} role="group" aria-label="Parallel coordinates">
      <svg viewBox={`0 0 ${width} ${HEIGHT}`}>
        {axes.map((axis, index) => {
          const x = SIDE + index * GAP;
          const marks = axis.numeric ? [axis.low, (axis.low + axis.high) / 2, axis.high].map((value) => [number(value), placeOn(axis, String(value))] as const) : axis.words.map((word) => [word, placeOn(axis, word)] as const);
          return (
            <g key={`${chosen[index]!.section} ${axis.name}`}>
              <line x1={x} x2={x} y1={y(1)} y2={y(0)} stroke="var(--line-strong)" />
              <text className={css.axisName} x={x} y={16} textAnchor="middle">{axis.name}</text>
              <text x={x} y={30} textAnchor="middle">{chosen[index]!.section === "Parameters" ? "" : "best"}</text>
              {marks.map(([word, place], mark) => (
                <text key={mark} x={x - 6} y={y(place ?? 0) + 4} textAnchor="end">{word}</text>
              ))}
            </g>
          );
        })}
        {jobs.map((job, index) => {
          const points = axes.flatMap((axis, place) => {
            const at = placeOn(axis, chosen[place]!.values[index] ?? null);
            return at === null ? [] : [`${SIDE + place * GAP} ${y(at).toFixed(1)}`];
          });
          return (
            <path key={job.id} d={`M${points.join("L")}`} stroke={`var(--line-${(index % 8) + 1})`}>
              <title>{`${job.id} ${job.name}`}</title>
            </path>
          );
        })}
      </svg>
    </div>
  );
}
