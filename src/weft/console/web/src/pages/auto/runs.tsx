/** Models of tables: the list of searches, and the dialog that begins one. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../../api/client";
import { useMayAct, useRefresh } from "../../api/queries";
import type { AutoRunsAnswer } from "../../api/types";
import { Button, Wrong } from "../../parts/controls";
import { Card, Empty, layout, Page, Skeleton } from "../../parts/layout";
import { ACTIVE, StateMark } from "../../parts/state";
import { useParam } from "../../text/address";
import { metricWord } from "../../text/auto";
import { ago, number, percent } from "../../text/format";
import { BeginDialog } from "./begin";
import css from "./auto.module.css";

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
        <Card title="Searches">
          <div className={layout.scroll} tabIndex={0} role="group" aria-label="Searches for models of tables">
            <table className={`${layout.table} ${css.wide}`}>
              <thead><tr><th>Search</th><th>State</th><th>Table</th><th>Predicts</th><th className={layout.number}>Score</th><th>Model</th><th>Begun</th></tr></thead>
              <tbody>
                {runs.map((one) => (
                  <tr key={one.job.id}>
                    <td><Link href={`/tables/${one.job.id}`}>{one.job.name} {one.job.id}</Link></td>
                    <td><StateMark state={one.job.state} wanted={one.job.wanted} />{ACTIVE.includes(one.job.state) && one.job.progress !== null ? ` ${percent(one.job.progress)}` : ""}</td>
                    <td>{one.table}</td>
                    <td>{one.target}</td>
                    <td className={layout.number}>{one.score === null ? "–" : `${metricWord(one.metric)} ${number(one.score)}`}</td>
                    <td>{one.model ? <Link href={`/models?open=${encodeURIComponent(one.model)}`}>{one.model}</Link> : "–"}</td>
                    <td>{ago(one.job.created_ms)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {begins && <BeginDialog onClose={() => setBegins("")} />}
    </Page>
  );
}
