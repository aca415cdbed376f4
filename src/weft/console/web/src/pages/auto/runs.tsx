/** Models of tables: the list of searches, and the dialog that begins one. */
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { useMayAct, useRefresh } from "../../api/queries";
import type { AutoRunsAnswer } from "../../api/types";
import { Button, Wrong } from "../../parts/controls";
import { Empty, Page, Skeleton } from "../../parts/layout";
import { MakingJobs } from "../../parts/made";
import { useParam } from "../../text/address";
import { metricWord } from "../../text/auto";
import { number } from "../../text/format";
import { BeginDialog } from "./begin";

export default function AutoRunsPage() {
  const list = useQuery({ queryKey: ["auto", "runs"], queryFn: () => get<AutoRunsAnswer>("/auto/runs") });
  const [begins, setBegins] = useParam("new");
  const mayAct = useMayAct();
  useRefresh(["jobs"], [["auto", "runs"]]);
  const runs = list.data?.runs ?? [];
  return (
    <Page name="Tables" title="Tables" actions={mayAct && <Button kind="primary" icon="plus" onClick={() => setBegins("1")}>Find a model</Button>}>
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && runs.length === 0 && <Empty title="No models of tables" text="Press Find a model and drop a table: its columns are typed, models are tuned and blended, and the best is explained and served. Or from the terminal:" commands={[`weft auto orders.csv --target arrival --url ${window.location.origin}`]} />}
      {runs.length > 0 && (
        <MakingJobs
          title="Searches"
          label="Searches for models of tables"
          kind="Search"
          heads={["Table", "Predicts"]}
          jobs={runs.map((one) => ({
            job: one.job,
            to: `/tables/${one.job.id}`,
            cells: [one.table, one.target],
            score: one.score === null ? null : `${metricWord(one.metric)} ${number(one.score)}`,
            model: one.model,
            modelTo: `/models?open=${encodeURIComponent(one.model ?? "")}`,
          }))}
        />
      )}
      {begins && <BeginDialog onClose={() => setBegins("")} />}
    </Page>
  );
}
