/** Studies: searches whose trials are jobs, the newest first; a page without any teaches `weft tune`. */
import { Link, useLocation } from "wouter";
import { useMayAct, useRefresh } from "../../api/queries";
import type { StudyView } from "../../api/types";
import { useKeys } from "../../keys/keys";
import { Button, useNow, Wrong } from "../../parts/controls";
import { Bar, Card, Empty, layout, Page, Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { ago, count, number } from "../../text/format";
import { useStudies } from "./live";
import { NewTuningDialog } from "./new-tuning";
import css from "./studies.module.css";
import { TrialMark } from "./view";

export default function StudiesPage() {
  const list = useStudies();
  const mayAct = useMayAct();
  const [open, setOpen] = useParam("new");
  const [text, setText] = useParam("q");
  const [at, setAt] = useParam("at", "0");
  const [, go] = useLocation();
  useRefresh(["studies"], [["studies"]], 1000);
  const all = list.data?.studies ?? [];
  const studies = all.filter((study) => `${study.id} ${study.name} ${study.user} ${study.state}`.toLowerCase().includes(text.toLowerCase()));
  const active = Math.min(Number(at) || 0, Math.max(0, studies.length - 1));
  useKeys([
    { keys: "j", label: "Next study", run: () => setAt(String(Math.min(studies.length - 1, active + 1))) },
    { keys: "k", label: "Study before", run: () => setAt(String(Math.max(0, active - 1))) },
    { keys: "Enter", label: "Open the study", run: () => studies[active] && go(`/studies/${studies[active].id}`) },
    ...(mayAct ? [{ keys: "w", label: "New tuning", run: () => setOpen("1") }] : []),
  ]);
  return (
    <Page
      name="Studies"
      title="Studies"
      actions={
        <>
          {all.length > 1 && <input type="search" aria-label="Find studies" placeholder="Find studies" value={text} onChange={(event) => setText(event.target.value)} />}
          {mayAct && <Button kind="primary" icon="plus" onClick={() => setOpen("1")}>New tuning</Button>}
        </>
      }
    >
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && all.length === 0 && (
        <Empty
          title="No search has been started"
          text="A study tries points of a space, each as a job; bad trials pause early, good ones go on from their checkpoints. The script reports by weft.report(step, loss=loss)."
          commands={["weft tune --space lr=log:1e-5:1e-1 --space optimizer=adam,sgd --minimize loss --trials 50 train.py --lr {lr} --optimizer {optimizer}", "weft tune study.yaml"]}
        />
      )}
      {all.length > 0 && (
        <Card label="Studies">
          <div className={layout.scroll} tabIndex={0} role="group" aria-label="List of studies">
            <table className={layout.table}>
              <thead>
                <tr>
                  <th>Study</th><th>State</th><th>Trials</th><th className={layout.number}>Best</th><th>Search, schedule</th><th>Owner</th><th>Begun</th>
                </tr>
              </thead>
              <tbody>
                {studies.map((study, index) => <Row key={study.id} study={study} active={index === active} />)}
              </tbody>
            </table>
          </div>
          {studies.length === 0 && <p className={layout.note}>None has that in its name.</p>}
        </Card>
      )}
      {open && mayAct && <NewTuningDialog onClose={() => setOpen("")} />}
    </Page>
  );
}

/** Returns the best value of a study with the name of its metric. */
export function bestText(study: StudyView): string {
  const metric = Object.keys(study.metrics)[0] ?? "";
  const value = study.best?.values[metric];
  return value === undefined || value === null ? "–" : `${metric} ${typeof value === "number" ? number(value) : value}`;
}

function Row({ study, active }: { study: StudyView; active: boolean }) {
  const now = useNow();
  const done = (study.counts["completed"] ?? 0) + (study.counts["stopped"] ?? 0) + (study.counts["failed"] ?? 0);
  const told = Object.entries(study.counts).map(([state, amount]) => `${amount} ${state}`).join(", ");
  return (
    <tr data-active={active} className={css.studyRow}>
      <td><Link href={`/studies/${study.id}`}>{study.name}</Link> <small className={css.faint}>{study.id}</small></td>
      <td><TrialMark state={study.state} /></td>
      <td className={css.progress}>
        {count(study.trials)}{study.budget_trials ? ` of ${count(study.budget_trials)}` : ""}
        <Bar share={study.state === "completed" ? 1 : done / Math.max(1, study.budget_trials ?? study.trials)} label={told || "no trial yet"} />
      </td>
      <td className={layout.number}>{bestText(study)}</td>
      <td>{study.search}, {study.schedule === "none" ? "no schedule" : study.schedule}</td>
      <td>{study.user}</td>
      <td>{study.begun_ms ? ago(study.begun_ms, now) : "–"}</td>
    </tr>
  );
}
