/** Results of a model: figures, confusion, precision and recall by class and threshold, and its worst mistakes as pictures. */
import { useState } from "react";
import { Link } from "wouter";
import { thumbnailUrl } from "../../../api/vision";
import { Card, Facts, layout } from "../../../parts/layout";
import { count, number, percent } from "../../../text/format";
import { atThreshold, curvePath, scoreText, scoreWord, shareOfRow, type Mistake, type Results } from "../../../vision/results";
import data from "../data/data.module.css";
import css from "./train.module.css";

const share = (value: number | null | undefined): string => (value === null || value === undefined ? "–" : percent(value));

export function ResultsView({ results, dataset }: { results: Results; dataset: string }) {
  return (
    <div className={data.stack}>
      <Card title="Figures"><Facts facts={Object.entries(results.metrics).map(([name, value]) => [scoreWord(name), scoreText(value)] as const)} /></Card>
      {results.sweep.length > 0 && <ThresholdCard results={results} />}
      <div className={data.two}>
        {results.confusion && <ConfusionCard confusion={results.confusion} />}
        {results.curves.length > 0 && <CurvesCard curves={results.curves} />}
      </div>
      {results.classes.length > 0 && <ClassesCard classes={results.classes} />}
      {results.worst.length > 0 && <WorstCard worst={results.worst} dataset={dataset} />}
    </div>
  );
}

function ThresholdCard({ results }: { results: Results }) {
  const [threshold, setThreshold] = useState(results.threshold);
  const at = atThreshold(results.sweep, threshold);
  return (
    <Card title="Threshold">
      <label className={css.slider}>
        Confidence from
        <input type="range" min={0} max={0.99} step={0.01} value={threshold} onChange={(event) => setThreshold(Number(event.target.value))} />
        <output>{percent(threshold)}</output>
      </label>
      {at && (
        <Facts facts={[
          at.precision !== undefined && ["Of what it finds, right", share(at.precision)], at.recall !== undefined && ["Of what is there, found", share(at.recall)],
          at.f1 !== undefined && ["F1", number(at.f1)], at.accuracy !== undefined && ["Of its answers, right", share(at.accuracy)], at.answered !== undefined && ["Pictures answered", share(at.answered)],
        ]} />
      )}
    </Card>
  );
}

function ConfusionCard({ confusion }: { confusion: NonNullable<Results["confusion"]> }) {
  const { labels, counts } = confusion;
  return (
    <Card title="Confusion">
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Confusion matrix">
        <table className={css.confusion}>
          <caption className={layout.note}>rows: what it is; columns: what the model said</caption>
          <thead><tr><th><span className="unseen">Truth</span></th>{labels.map((label) => <th key={label} scope="col">{label}</th>)}</tr></thead>
          <tbody>
            {counts.map((row, index) => (
              <tr key={labels[index] ?? index}>
                <th scope="row">{labels[index]}</th>
                {row.map((value, column) => (
                  <td key={column} data-right={index === column || undefined} style={{ "--share": shareOfRow(counts, index, column) } as React.CSSProperties}>{value ? count(value) : ""}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function CurvesCard({ curves }: { curves: Results["curves"] }) {
  return (
    <Card title="Precision and recall">
      <svg viewBox="-12 -4 116 116" className={css.curves} role="img" aria-label={`Precision over recall: ${curves.map((one) => `${one.label} ${number(one.average_precision)}`).join(", ")}`}>
        <path d="M0 0V100H100M0 50H100M50 0V100M100 0V100M0 0H100" className={css.axes} />
        {curves.map((curve, index) => <path key={curve.label} d={curvePath(curve)} style={{ stroke: `var(--line-${(index % 8) + 1})` }} />)}
        {[0, 0.5, 1].map((at) => <text key={at} x={at * 100} y="106" textAnchor="middle">{at}</text>)}
        {[0.5, 1].map((at) => <text key={at} x="-2" y={101.5 - at * 100} textAnchor="end">{at}</text>)}
        <text x="75" y="106" textAnchor="middle">recall</text>
        <text transform="translate(-5 74) rotate(-90)" textAnchor="middle">precision</text>
      </svg>
      <ul className={css.legend}>
        {curves.map((curve, index) => <li key={curve.label}><i style={{ background: `var(--line-${(index % 8) + 1})` }} />{curve.label} <b>{scoreText(curve.average_precision)}</b></li>)}
      </ul>
    </Card>
  );
}

function ClassesCard({ classes }: { classes: Results["classes"] }) {
  const detects = classes.some((one) => one.map50 !== undefined);
  return (
    <Card title="Classes">
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Figures by class">
        <table className={layout.table}>
          <thead><tr><th>Class</th><th className={layout.number}>{detects ? "Objects" : "Pictures"}</th><th className={layout.number}>Precision</th><th className={layout.number}>Recall</th><th className={layout.number}>{detects ? "mAP@.5" : "F1"}</th>{detects && <th className={layout.number}>mAP@.5:.95</th>}</tr></thead>
          <tbody>
            {classes.map((one) => (
              <tr key={one.label}>
                <td>{one.label}</td>
                <td className={layout.number}>{count(one.objects ?? one.pictures ?? 0)}</td>
                <td className={layout.number}>{share(one.precision)}</td>
                <td className={layout.number}>{share(one.recall)}</td>
                <td className={layout.number}>{scoreText(detects ? one.map50 : one.f1)}</td>
                {detects && <td className={layout.number}>{scoreText(one.map50_95)}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function toldOf(one: Mistake): string {
  if (one.guess !== undefined) return `${one.guess}, it is ${one.truth}`;
  return [one.missed && `${one.missed} missed`, one.invented && `${one.invented} invented`, one.confused && `${one.confused} confused`].filter(Boolean).join(", ");
}

function WorstCard({ worst, dataset }: { worst: Results["worst"]; dataset: string }) {
  return (
    <Card title="Worst mistakes" extra={<span className={layout.note}>often a label is wrong: open it and see</span>}>
      <ul className={css.mistakes}>
        {worst.map((one) => (
          <li key={one.picture}>
            <Link href={`/vision/label/${encodeURIComponent(dataset)}/${encodeURIComponent(one.picture)}`}>
              <img src={thumbnailUrl(one.picture)} alt="" loading="lazy" />
              <span>{toldOf(one)}</span>
              {one.confidence !== undefined && <small>{percent(one.confidence)} sure</small>}
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  );
}
