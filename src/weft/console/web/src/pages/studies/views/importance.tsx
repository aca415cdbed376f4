/** The share of each parameter in the difference between trials, with the middle 90 % of its resamples. */
import { Link } from "wouter";
import { Card, layout } from "../../../parts/layout";
import { useMayAct } from "../../../api/queries";
import { useSetParams } from "../../../text/address";
import { percent } from "../../../text/format";
import { useInteractions } from "../live";
import css from "../studies.module.css";
import { Insights, type StudyProps } from "../view";

export default function ImportanceTab({ id, detail, choose }: StudyProps) {
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
      <InteractionsCard id={id} complete={detail.study.counts["completed"] ?? 0} />
      <Insights insights={detail.insights.filter((one) => ["edge", "no-matter"].includes(one.rule))} choose={choose} onClone={mayAct ? () => setParams({ open: "clone" }) : undefined} />
    </div>
  );
}

const MOST_PAIRS = 8;

/** Pairs of parameters whose joint effect is more than the sum of both, the largest first. */
function InteractionsCard({ id, complete }: { id: number; complete: number }) {
  const { data } = useInteractions(id, complete);
  const pairs = (data?.interactions ?? []).slice(0, MOST_PAIRS);
  if (pairs.length === 0) return null;
  return (
    <Card title="Interactions" extra={<span className={layout.note}>bar: share of the joint effect of two parameters that is no sum of single ones; line: middle 90 % of resamples</span>}>
      <ol className={css.shares}>
        {pairs.map((one) => (
          <li key={`${one.first} ${one.second}`}>
            <span className={css.shareName}>{one.first} × {one.second}</span>
            <span className={css.share} role="img" aria-label={`${one.first} and ${one.second}: ${percent(one.share)}, between ${percent(one.low)} and ${percent(one.high)}`}>
              <i style={{ width: `${one.share * 100}%` }} />
              <b style={{ left: `${one.low * 100}%`, width: `${(one.high - one.low) * 100}%` }} />
            </span>
            <span className={css.shareNumber}>{percent(one.share)} <small>{percent(one.low)} to {percent(one.high)}</small></span>
            <Link href={`/studies/${id}/slices?px=${encodeURIComponent(one.first)}&py=${encodeURIComponent(one.second)}`} aria-label={`contour of ${one.first} and ${one.second}`}>contour</Link>
          </li>
        ))}
      </ol>
    </Card>
  );
}
