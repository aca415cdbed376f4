/** Deployments: served models with their load and latency, a panel to try them, and the way back a version. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, send } from "../../api/client";
import { useMayAct } from "../../api/queries";
import type { DeploymentDetail, DeploymentsAnswer, InferenceAnswer, ModelView } from "../../api/types";
import { CodeText } from "../../parts/code";
import { Button, Field, tell, tellError, Wrong } from "../../parts/controls";
import { Bar, Card, Empty, Facts, layout, Page, Skeleton } from "../../parts/layout";
import { toneClass } from "../../parts/state";
import { useParam } from "../../text/address";
import { ago, count, number } from "../../text/format";
import { Sure } from "../settings/parts";
import css from "./data.module.css";

const TONES = { running: "green", starting: "blue", failed: "orange", stopped: "grey" } as const;
const PACE_MS = 3000;

export default function DeploymentsPage() {
  const list = useQuery({ queryKey: ["deployments"], queryFn: () => get<DeploymentsAnswer>("/deployments"), refetchInterval: PACE_MS });
  const [open, setOpen] = useParam("open");
  const deployments = list.data?.deployments ?? [];
  const shown = deployments.find((one) => one.name === open) ?? deployments[0];
  return (
    <Page name="Deployments" title="Deployments">
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && deployments.length === 0 && (
        <Empty title="Nothing is served" text="Open a model of the store and press Deploy. A job puts one there when its specification has this line:" commands={["export: {model: digits, alias: candidate}"]}>
          <Link href="/models">To the models</Link>
        </Empty>
      )}
      {deployments.length > 0 && (
        <Card title="Served">
          <div className={layout.scroll}>
            <table className={layout.table}>
              <thead><tr><th>Name</th><th>State</th><th>Model</th><th>Address</th><th>Changed</th></tr></thead>
              <tbody>
                {deployments.map((one) => (
                  <tr key={one.name}>
                    <td><button type="button" className={css.name} onClick={() => setOpen(one.name)}>{one.name}</button></td>
                    <td className={toneClass(TONES[one.state])}>{one.state}{one.message ? `: ${one.message}` : ""}</td>
                    <td>{one.model}@{one.version}</td>
                    <td>{one.url ?? "–"}</td>
                    <td>{ago(one.changed_ms)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
      {shown && <Deployment key={shown.name} name={shown.name} />}
    </Page>
  );
}

function Deployment({ name }: { name: string }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const path = `/deployments/${encodeURIComponent(name)}`;
  const detail = useQuery({ queryKey: ["deployments", name], queryFn: () => get<DeploymentDetail>(path), refetchInterval: PACE_MS });
  async function ask(method: "POST" | "DELETE", where: string, done: string, body?: unknown): Promise<void> {
    try {
      await send(method, where, body);
      tell(done);
    } catch (error) {
      tellError(error);
    }
    void client.invalidateQueries({ queryKey: ["deployments"] });
  }
  if (detail.error) return <Wrong error={detail.error} />;
  if (!detail.data) return <Skeleton />;
  const { figures, previous } = detail.data;
  const ms = (value: number | null): string => (value === null ? "–" : `${number(value)} ms`);
  return (
    <div className={css.stack}>
      <Card
        title={`${name}: ${detail.data.model}@${detail.data.version}`}
        extra={
          mayAct && detail.data.mine && (
            <span className={css.lineage}>
              {previous.length > 0 && <Button small icon="retry" onClick={() => void ask("POST", `${path}/rollback`, "rolled back")}>Back to version {previous.at(-1)}</Button>}
              {detail.data.state === "running" && <Button small icon="stop" onClick={() => void ask("POST", `${path}/stop`, "stopped")}>Stop</Button>}
              <Sure word="Remove" label={`remove ${name}`} onSure={() => void ask("DELETE", path, "removed")} />
            </span>
          )
        }
      >
        {figures ? (
          <Facts facts={[["Requests", count(figures.requests)], ["Failed", count(figures.failures)], ["In flight", count(figures.in_flight)], ["p50", ms(figures.p50_ms)], ["p95", ms(figures.p95_ms)], ["p99", ms(figures.p99_ms)]]} />
        ) : (
          <p className={layout.note}>{detail.data.message ?? "It does not answer now."}</p>
        )}
      </Card>
      {detail.data.state === "running" && (
        <CanaryCard detail={detail.data} mayChange={mayAct && detail.data.mine} onSet={(version, percent, done) => void ask("POST", `${path}/canary`, done, { version, percent })} />
      )}
      {detail.data.state === "running" && detail.data.inputs.length > 0 && <TryCard path={path} inputs={detail.data.inputs as unknown as Tensor[]} />}
    </div>
  );
}

interface CanaryProps {
  detail: DeploymentDetail;
  mayChange: boolean;
  onSet: (version: number | null, percent: number, done: string) => void;
}

/** The versions that answer now, side by side, and which share of the requests another one gets. */
function CanaryCard({ detail, mayChange, onSet }: CanaryProps) {
  const model = useQuery({ queryKey: ["models", detail.model], queryFn: () => get<ModelView>(`/models/${encodeURIComponent(detail.model)}`), enabled: mayChange });
  const others = (model.data?.versions ?? []).map((one) => one.version).filter((version) => version !== detail.version);
  const { canary } = detail;
  const shares = new Map<number, number>([[detail.version, 100 - (canary?.percent ?? 0)]]);
  if (canary) shares.set(canary.version, canary.percent);
  const rows = detail.by_version.filter((one) => shares.has(one.version));
  const ms = (value: number | null): string => (value === null ? "–" : `${number(value)} ms`);
  return (
    <Card title="Canary" extra={canary && mayChange && <Button small icon="stop" onClick={() => onSet(null, 0, "the canary is ended")}>End the canary</Button>}>
      <div className={css.try}>
        {rows.length > 0 && (
          <div className={layout.scroll} tabIndex={0} role="group" aria-label="Figures by version">
            <table className={layout.table}>
              <thead><tr><th>Version</th><th>Share</th><th className={layout.number}>Requests</th><th className={layout.number}>Failed</th><th className={layout.number}>p50</th><th className={layout.number}>p95</th><th className={layout.number}>p99</th></tr></thead>
              <tbody>
                {rows.map(({ version, figures }) => (
                  <tr key={version}>
                    <td>{version}{canary?.version === version ? " (canary)" : ""}</td>
                    <td style={{ minWidth: "7rem" }}>
                      {number(shares.get(version) ?? 0)} %
                      <Bar share={(shares.get(version) ?? 0) / 100} label={`version ${version}: ${number(shares.get(version) ?? 0)} %`} tone={canary?.version === version ? "var(--amber)" : "var(--blue)"} />
                    </td>
                    <td className={layout.number}>{count(figures.requests)}</td>
                    <td className={layout.number}>{count(figures.failures)}</td>
                    <td className={layout.number}>{ms(figures.p50_ms)}</td>
                    <td className={layout.number}>{ms(figures.p95_ms)}</td>
                    <td className={layout.number}>{ms(figures.p99_ms)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
        {mayChange && others.length > 0 && (
          <form
            className={css.lineage}
            onSubmit={(event) => {
              event.preventDefault();
              const form = new FormData(event.currentTarget);
              const [version, percent] = [Number(form.get("version")), Number(form.get("percent"))];
              onSet(version, percent, `version ${version} answers ${percent} % of the requests`);
            }}
          >
            <Field label="Version"><select name="version" defaultValue={canary?.version}>{others.map((version) => <option key={version}>{version}</option>)}</select></Field>
            <Field label="Percent of the requests"><input type="number" name="percent" min={0} max={100} defaultValue={canary?.percent ?? 10} /></Field>
            <Button type="submit">Set the canary</Button>
          </form>
        )}
        {!canary && others.length === 0 && <p className={layout.note}>With another version of the model in the store, a share of the requests can go to that one first.</p>}
      </div>
    </Card>
  );
}

interface Tensor {
  name: string;
  datatype: string;
  shape: number[];
}

/** Returns a request of zeros in the shape that a model takes. */
export function exampleRequest(inputs: readonly Tensor[]): string {
  const made = inputs.map(({ name, datatype, shape }) => {
    const sides = shape.map((side) => (side < 1 ? 1 : side));
    const size = Math.min(4096, sides.reduce((all, side) => all * side, 1));
    const zero = datatype === "BYTES" ? '""' : "0";
    return `    {"name": ${JSON.stringify(name)}, "datatype": "${datatype}", "shape": [${sides.join(", ")}],\n     "data": [${Array.from({ length: size }, () => zero).join(", ")}]}`;
  });
  return `{\n  "inputs": [\n${made.join(",\n")}\n  ]\n}`;
}

function TryCard({ path, inputs }: { path: string; inputs: Tensor[] }) {
  const [text, setText] = useState(() => exampleRequest(inputs));
  const [result, setResult] = useState<{ answer: InferenceAnswer; took: number } | null>(null);
  const [wrong, setWrong] = useState<unknown>(null);
  async function infer(): Promise<void> {
    setWrong(null);
    try {
      const request = JSON.parse(text) as unknown;
      const began = performance.now();
      const answer = await send<InferenceAnswer>("POST", `${path}/infer`, request);
      setResult({ answer, took: performance.now() - began });
    } catch (error) {
      setWrong(error);
    }
  }
  return (
    <Card title="Try it">
      <div className={css.try}>
        <textarea aria-label="Request, as JSON" rows={10} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
        <div className={css.lineage}>
          <Button kind="primary" onClick={() => void infer()}>Ask</Button>
          {result && <span className={layout.note} role="status">answered in {Math.round(result.took)} ms</span>}
        </div>
        {wrong ? <Wrong error={wrong} /> : null}
        {result && <CodeText text={JSON.stringify(result.answer.outputs, null, 1)} />}
      </div>
    </Card>
  );
}
