/** The share of each parameter in the difference between trials, with the middle 90 % of its resamples. */
import { Link } from "wouter";
import { Card, layout } from "../../../parts/layout";
import { useMayAct } from "../../../api/queries";
import { useSetParams } from "../../../text/address";
import { percent } from "../../../text/format";
import css from "../studies.module.css";
import { Insights, type StudyProps } from "../view";

export default function ImportanceTab({ detail, choose }: StudyProps) {
  const setParams = useSetParams();
  const mayAct = useMayAct();
  const shares = [...detail.importances].sort((a, b) => b.share - a.share);
  const most = Math.max(0.01, ...shares.map((one) => one.high));
  return (
    <div className={css.stack}>
      <Card title="Importance" extra={<span className={layout.note}>bar: share of the difference between trials; line: middle 90 % of resamples</span>}>
        {shares.length === 0 && <p className={layout.note}>Too few trials are complete, or the study has several metrics: there is nothing to compare yet.</p>}
        <ol className={css.shares}>
          {shares.map((one) => (
            <li key={one.name}>
              <span className={css.shareName}>{one.name}</span>
              <span className={css.share} role="img" aria-label={`${one.name}: ${percent(one.share)}, between ${percent(one.low)} and ${percent(one.high)}`}>
                <i style={{ width: `${(one.share / most) * 100}%` }} />
                <b style={{ left: `${(one.low / most) * 100}%`, width: `${((one.high - one.low) / most) * 100}%` }} />
              </span>
              <span className={css.shareNumber}>{percent(one.share)} <small>{percent(one.low)} to {percent(one.high)}</small></span>
              <Link href={`/studies/${detail.study.id}/slices?px=${encodeURIComponent(one.name)}`} aria-label={`slice of ${one.name}`}>slice</Link>
            </li>
          ))}
        </ol>
      </Card>
      <Insights insights={detail.insights.filter((one) => ["edge", "no-matter"].includes(one.rule))} choose={choose} onClone={mayAct ? () => setParams({ open: "clone" }) : undefined} />
    </div>
  );
}
