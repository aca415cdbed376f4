/** What a model of a table looks at: importance, dependence, groups, calibration, confusion, reasons of single predictions. */
import type { AutoColumn, AutoDependence, AutoExplanation } from "../../api/types";
import { Bar, Card, layout } from "../../parts/layout";
import { drawn, shareOf, spanOf } from "../../text/auto";
import { count, number } from "../../text/format";
import css from "./auto.module.css";

const MOST_COLUMNS = 15;

export function ExplanationView({ explanation, columns, classes }: { explanation: AutoExplanation; columns: readonly AutoColumn[]; classes: readonly string[] }) {
  const { output, importance = [], dependence = [], groups = [], calibration = [], confusion = [], rows = [] } = explanation;
  const kinds = new Map(columns.map((one) => [one.name, one.kind]));
  const span = spanOf(dependence);
  return (
    <>
      {importance.length > 0 && <ImportanceCard importance={importance} output={output} />}
      {dependence.length > 0 && (
        <Card title="Partial dependence" extra={<span className={layout.note}>the mean {output} where a column has one value in all rows</span>}>
          <div className={css.curves}>{dependence.map((one) => <DependenceCurve key={one.column} curve={one} kind={kinds.get(one.column) ?? "number"} span={span} />)}</div>
        </Card>
      )}
      {groups.length > 0 && <GroupsCard groups={groups} />}
      {calibration.length > 0 && <CalibrationCard points={calibration} />}
      {confusion.length > 0 && classes.length === confusion.length && classes.length <= 20 && <ConfusionCard classes={classes} counts={confusion} />}
      {rows.length > 0 && <ReasonsCard rows={rows} output={output} />}
    </>
  );
}

function ImportanceCard({ importance, output }: { importance: NonNullable<AutoExplanation["importance"]>; output: string }) {
  const sizes = importance.map((one) => one.mean_shapley);
  return (
    <Card title="What matters" extra={<span className={layout.note}>mean absolute Shapley values, of the {output}</span>}>
      <ol className={css.bars}>
        {importance.slice(0, MOST_COLUMNS).map((one) => (
          <li key={one.name} title={`without it the loss grows by ${number(one.loss_growth)}`}>
            <span>{one.name}</span>
            <Bar share={shareOf(one.mean_shapley, sizes)} label={`${one.name}: ${number(one.mean_shapley)}`} tone="var(--line-1)" />
            <b>{number(one.mean_shapley)}</b>
          </li>
        ))}
      </ol>
      {importance.length > MOST_COLUMNS && <p className={layout.note}>The first {MOST_COLUMNS} of {count(importance.length)}; the others are in the report.</p>}
    </Card>
  );
}

function DependenceCurve({ curve, kind, span }: { curve: AutoDependence; kind: string; span: readonly [number, number] }) {
  const { path, points } = drawn(curve, kind, span);
  const told = points.map((one) => `${one.text}: ${number(one.mean)}`).join(", ");
  return (
    <figure>
      <figcaption>{curve.column}</figcaption>
      <svg viewBox="-2 -4 104 108" preserveAspectRatio="none" role="img" aria-label={`${curve.column}: ${told}`}>
        <path d="M0 0V100H100M0 50H100" className={css.axes} />
        {kind === "text" ? points.map((one) => <path key={one.text} d={`M${one.x} 100V${one.y}`} className={css.column}><title>{`${one.text}: ${number(one.mean)}`}</title></path>) : <path d={path} />}
      </svg>
      <div className={css.scale}><span>{points[0]?.text}</span><span>{points.length > 1 ? points.at(-1)?.text : ""}</span></div>
      <div className={css.scale}><small>from {number(span[0])}</small><small>to {number(span[1])}</small></div>
    </figure>
  );
}

function GroupsCard({ groups }: { groups: NonNullable<AutoExplanation["groups"]> }) {
  return (
    <Card title="Groups" extra={<span className={layout.note}>a ratio below 0.8 is disparate impact by the four-fifths rule</span>}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Outcomes by group">
        <table className={`${layout.table} ${layout.whole}`}>
          <thead><tr><th>Column</th><th>Group</th><th className={layout.number}>Rows</th><th className={layout.number}>Rate</th><th className={layout.number}>Ratio</th><th className={layout.number}>Loss</th><th>Judged</th></tr></thead>
          <tbody>
            {groups.map((one) => (
              <tr key={`${one.column} ${one.group}`}>
                <td>{one.column}</td><td>{one.group}</td><td className={layout.number}>{count(one.rows)}</td><td className={layout.number}>{number(one.rate)}</td>
                <td className={layout.number}>{number(one.ratio)}</td><td className={layout.number}>{number(one.loss)}</td><td className={one.warned ? css.warned : undefined}>{one.warned ? "below four fifths" : "alike"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function CalibrationCard({ points }: { points: NonNullable<AutoExplanation["calibration"]> }) {
  const known = points.filter(([predicted, share]) => predicted !== null && share !== null) as [number, number, number][];
  const path = known.map(([predicted, share], index) => `${index ? "L" : "M"}${predicted * 100} ${100 - share * 100}`).join("");
  return (
    <Card title="Calibration" extra={<span className={layout.note}>how often it comes true, over what was predicted</span>}>
      <svg viewBox="-12 -4 116 116" className={css.calibration} role="img" aria-label={`Calibration: ${known.map(([predicted, share]) => `predicted ${number(predicted)}, true ${number(share)}`).join("; ")}`}>
        <path d="M0 0V100H100M0 100L100 0" className={css.axes} />
        <path d={path} />
        {known.map(([predicted, share, rows]) => <circle key={predicted} cx={predicted * 100} cy={100 - share * 100} r="2"><title>{`predicted ${number(predicted)}, true ${number(share)}, ${count(rows)} rows`}</title></circle>)}
        {[0, 0.5, 1].map((at) => <text key={at} x={at * 100} y="107" textAnchor="middle">{at}</text>)}
        {[0.5, 1].map((at) => <text key={at} x="-2" y={102 - at * 100} textAnchor="end">{at}</text>)}
      </svg>
    </Card>
  );
}

function ConfusionCard({ classes, counts }: { classes: readonly string[]; counts: NonNullable<AutoExplanation["confusion"]> }) {
  return (
    <Card title="Confusion" extra={<span className={layout.note}>rows: what it is; columns: what the model said</span>}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Confusion matrix">
        <table className={css.confusion}>
          <thead><tr><th><span className="unseen">Truth</span></th>{classes.map((name) => <th key={name} scope="col">{name}</th>)}</tr></thead>
          <tbody>
            {counts.map((row, place) => (
              <tr key={classes[place]}>
                <th scope="row">{classes[place]}</th>
                {row.map((value, column) => <td key={column} data-right={place === column || undefined} style={{ "--share": value / Math.max(1, row.reduce((sum, one) => sum + one, 0)) } as React.CSSProperties}>{value ? count(value) : ""}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

const SIGNED = (value: number | null): string => (value === null ? "–" : `${value < 0 ? "−" : "+"}${number(Math.abs(value))}`);

function ReasonsCard({ rows, output }: { rows: NonNullable<AutoExplanation["rows"]>; output: string }) {
  return (
    <Card title="Reasons of single predictions" extra={<span className={layout.note}>the base and all effects add up to the {output}</span>}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Reasons of single predictions">
        <table className={`${layout.table} ${layout.whole}`}>
          <thead><tr><th className={layout.number}>Row</th><th className={layout.number}>Predicted</th><th className={layout.number}>Base</th><th>Reasons</th></tr></thead>
          <tbody>
            {rows.slice(0, 20).map((one) => (
              <tr key={one.row}>
                <td className={layout.number}>{one.row}</td><td className={layout.number}>{number(one.predicted)}</td><td className={layout.number}>{number(one.base)}</td>
                <td>{one.reasons.map((reason) => <span key={reason.column} className={css.reason} data-up={(reason.effect ?? 0) >= 0 || undefined}>{reason.column} = {reason.value} <b>{SIGNED(reason.effect)}</b></span>)} <span className={layout.note}>others {SIGNED(one.rest)}</span></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
