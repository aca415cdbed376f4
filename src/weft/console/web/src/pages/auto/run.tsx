/** One search for a model of a table: live leaderboard, warnings, explanations, files, and one press to serve it. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, send } from "../../api/client";
import { useMayAct, useRefresh } from "../../api/queries";
import type { AutoBoardRow, AutoRunDetail, DeploymentView } from "../../api/types";
import { Button, ButtonLink, tell, tellError, Wrong } from "../../parts/controls";
import { Icon } from "../../parts/icons";
import { Bar, Card, Facts, layout, Page, Skeleton } from "../../parts/layout";
import { ACTIVE, ENDED, StateMark } from "../../parts/state";
import { doneShare, metricWord, missingText, paramsText } from "../../text/auto";
import { bytes, count, duration, number, percent } from "../../text/format";
import { ExplanationView } from "./explanation";
import css from "./auto.module.css";

const LIVE_MS = 2000;
const FILE_WORDS: Record<string, string> = {
  "report.html": "Report (HTML)", "report.pdf": "Report (PDF)", "model.onnx": "Pipeline (ONNX)", "leaderboard.json": "Leaderboard (JSON)", "explanation.json": "Explanations (JSON)",
};

export default function AutoRunPage({ id }: { id: number }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const found = useQuery({
    queryKey: ["auto", "run", id],
    queryFn: ({ signal }) => get<AutoRunDetail>(`/auto/runs/${id}`, {}, signal),
    refetchInterval: (query) => (query.state.data && !ENDED.includes(query.state.data.job.state) ? LIVE_MS : false),
  });
  useRefresh([`job:${id}`], [["auto", "run", id]]);
  if (found.error && !found.data) return <Page name="Search" title="Search"><Wrong error={found.error} /></Page>;
  if (!found.data) return <Page name="Search" title="Search"><Skeleton lines={6} /></Page>;
  const run = found.data;
  const active = ACTIVE.includes(run.job.state);
  const finish = (): void => void send("POST", `/auto/runs/${id}/finish`).then(() => {
    tell("it ends with this model, and keeps the best");
    void client.invalidateQueries({ queryKey: ["auto"] });
  }, tellError);
  return (
    <Page
      name={run.job.name}
      title={<><Link href="/tables">Tables</Link> / {run.job.name} {id} <StateMark state={run.job.state} wanted={run.job.wanted} badge /></>}
      actions={
        <>
          {mayAct && run.job.mine && active && run.leaderboard.length > 1 && <Button icon="stop" onClick={finish}>End now, keep the best</Button>}
          <ButtonLink to={`/jobs/${id}/logs`} icon="jobs">Job</ButtonLink>
          {mayAct && run.model && run.deployments.length === 0 && <DeployButton run={run} />}
          {run.deployments.map((name) => <ButtonLink key={name} kind="primary" icon="out" to={`/deployments?open=${encodeURIComponent(name)}`}>Served as {name}</ButtonLink>)}
        </>
      }
    >
      {found.error ? <Wrong error={found.error} /> : null}
      <HeadCard run={run} active={active} />
      {run.findings.length > 0 && <FindingsCard run={run} />}
      {run.leaderboard.length > 0 ? <BoardCard run={run} active={active} /> : active && <Card title={run.job.state === "running" ? "It reads the table" : "It waits for its turn"}><p className={layout.note}>Columns, warnings and models appear here by themselves.</p><Skeleton lines={4} /></Card>}
      {run.explanation && <ExplanationView explanation={run.explanation} columns={run.columns} classes={run.classes} />}
      {run.columns.length > 0 && <ColumnsCard run={run} />}
    </Page>
  );
}

function DeployButton({ run }: { run: AutoRunDetail }) {
  const client = useQueryClient();
  const [busy, setBusy] = useState(false);
  const name = run.model!.split("@")[0]!.replaceAll(".", "-").slice(0, 50);
  const deploy = (): void => {
    setBusy(true);
    send<DeploymentView>("POST", "/deployments", { name, model: run.model }).then(() => {
      tell(`${run.model} is served as ${name}`);
      void client.invalidateQueries({ queryKey: ["auto"] });
    }, (error: unknown) => { setBusy(false); tellError(error); });
  };
  return <Button kind="primary" icon="out" disabled={busy} onClick={deploy}>Serve it</Button>;
}

function HeadCard({ run, active }: { run: AutoRunDetail; active: boolean }) {
  const { state, message, reason } = run.job;
  return (
    <Card>
      <Facts facts={[
        ["Table", run.table], ["Predicts", run.target], run.score !== null && [`${metricWord(run.metric)}, ${run.explanation ? "held out" : "cross-validated"}`, <b>{number(run.score)}</b>],
        run.rows !== null && ["Rows", count(run.rows)], run.models > 1 && ["Models judged", count(run.models - (run.explanation ? 2 : 1))], run.classes.length > 0 && ["Classes", count(run.classes.length)],
        run.spent_s !== null && [active ? "Spent" : "Took", active && run.budget_s ? `${duration(run.spent_s * 1000)} of ${duration(run.budget_s * 1000)}` : duration(run.spent_s * 1000)],
        run.validation !== "" && ["Validation", run.validation], run.model !== null && ["Model", <Link href={`/models?open=${encodeURIComponent(run.model)}`}>{run.model}</Link>],
        message !== null && state !== "completed" && ["Message", message], reason !== null && !active && ["Waits", reason.text],
      ]} />
      {active && run.budget_s && <div className={css.progress}><Bar share={doneShare(run)} label={`${percent(doneShare(run))} of the time`} /><span role="status">{run.doing}</span></div>}
      {run.files.length > 0 && (
        <ul className={css.files}>
          {run.files.map((file) => <li key={file.name}><a href={file.url} download={file.name}><Icon name="load" size={13} /> {FILE_WORDS[file.name] ?? file.name}</a> <small className={layout.note}>{bytes(file.bytes)}</small></li>)}
        </ul>
      )}
      {run.notes.map((note) => <p key={note} className={layout.note}>{note}</p>)}
    </Card>
  );
}

function FindingsCard({ run }: { run: AutoRunDetail }) {
  return (
    <Card title="Warnings" extra={<span className={layout.note}>{count(run.findings.length)}</span>}>
      <ul className={css.findings}>
        {run.findings.map((one) => <li key={`${one.kind} ${one.column}`} data-kind={one.kind}><b>{one.kind}</b> {one.sentence}</li>)}
      </ul>
    </Card>
  );
}

const MOST = 25;

function BoardCard({ run, active }: { run: AutoRunDetail; active: boolean }) {
  const [all, setAll] = useState(false);
  const rows = all ? run.leaderboard : run.leaderboard.slice(0, MOST);
  const held = run.leaderboard.some((row) => row.held_score !== null);
  return (
    <Card title="Leaderboard" extra={<span className={layout.note}>{metricWord(run.metric)}{active ? ", live" : ""}</span>}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Leaderboard">
        <table className={`${layout.table} ${layout.whole}`}>
          <thead><tr><th>Model</th><th className={layout.number}>Cross-validated</th>{held && <th className={layout.number}>Held out</th>}<th>In the ensemble</th><th className={layout.number}>Seconds</th><th>Parameters</th></tr></thead>
          <tbody>{rows.map((row) => <BoardLine key={row.name} row={row} held={held} />)}</tbody>
        </table>
      </div>
      {run.leaderboard.length > MOST && <Button small kind="quiet" onClick={() => setAll(!all)}>{all ? "Show fewer" : `Show all ${run.leaderboard.length}`}</Button>}
    </Card>
  );
}

function BoardLine({ row, held }: { row: AutoBoardRow; held: boolean }) {
  const part = row.name !== "ensemble" && row.weight !== null && row.weight > 0;
  return (
    <tr data-name={row.name}>
      <td>{row.name === "ensemble" ? <b>{row.name}</b> : row.name}</td>
      <td className={layout.number}>{number(row.score)}</td>
      {held && <td className={layout.number}>{number(row.held_score)}</td>}
      <td>{part ? <span className={css.weight}><Bar share={row.weight!} label={`${percent(row.weight!)} of the ensemble`} />{percent(row.weight!)}</span> : ""}</td>
      <td className={layout.number}>{row.seconds ? number(Math.round(row.seconds * 10) / 10) : "–"}</td>
      <td className={css.params}>{paramsText(row.params)}</td>
    </tr>
  );
}

function ColumnsCard({ run }: { run: AutoRunDetail }) {
  return (
    <Card title="Columns" extra={<span className={layout.note}>{count(run.columns.length)}, as they were typed</span>}>
      <div className={layout.scroll} tabIndex={0} role="group" aria-label="Columns">
        <table className={`${layout.table} ${layout.whole}`}>
          <thead><tr><th>Column</th><th>Role</th><th className={layout.number}>Distinct</th><th className={layout.number}>Missing</th><th>Found from</th></tr></thead>
          <tbody>
            {run.columns.map((one) => (
              <tr key={one.name}>
                <td>{one.name}</td><td data-role={one.role} className={css.role}>{one.role}</td><td className={layout.number}>{count(one.distinct)}</td>
                <td className={layout.number}>{missingText(one.missing_share)}</td><td>{one.why}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
