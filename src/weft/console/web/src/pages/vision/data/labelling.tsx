/** An automatic labelling of a data set on its way: how far its job is, and where its labels are looked at. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { useJob, useRefresh } from "../../../api/queries";
import { invalidateDataset, labelPath, type Dataset } from "../../../api/vision";
import { Button, ButtonLink } from "../../../parts/controls";
import { Bar, layout } from "../../../parts/layout";
import { ENDED, StateMark } from "../../../parts/state";
import { percent, plural } from "../../../text/format";
import css from "./data.module.css";

export function LabellingBar({ set, job: id, onClose }: { set: Dataset; job: number; onClose: () => void }) {
  const client = useQueryClient();
  const job = useJob(id);
  useRefresh([`job:${id}`], [["job", id]]);
  const state = job.data?.state;
  const ended = state !== undefined && ENDED.includes(state);
  useEffect(() => {
    if (ended) invalidateDataset(client, set.id);
  }, [ended, client, set.id]);
  const share = state === "completed" ? 1 : (job.data?.progress ?? 0);
  return (
    <section className={css.progress} aria-label="Auto-label">
      <div className={css.row}>
        <b>Auto-label</b>
        {state && <StateMark state={state} wanted={job.data!.wanted} />}
        <span className={layout.note}>{state === "completed" ? `${plural(set.counts.auto, "picture")} to look at` : ended ? (job.data?.message ?? "") : percent(share)}</span>
        {state === "completed" && set.counts.auto > 0 && <ButtonLink to={labelPath(set, { state: "auto" })} icon="check">Check them</ButtonLink>}
        <ButtonLink to={`/jobs/${id}/logs`} icon="jobs">Job</ButtonLink>
        {ended && <Button small kind="quiet" icon="close" aria-label="Close" onClick={onClose} />}
      </div>
      <Bar share={share} label={`auto-label: ${percent(share)}`} />
    </section>
  );
}
