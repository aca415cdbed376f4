/** Models of the store: versions, aliases, where each came from, and one press to serve it. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, send } from "../../api/client";
import { useMayAct } from "../../api/queries";
import type { ModelsAnswer, ModelVersionDetail } from "../../api/types";
import { Button, Dialog, Field, tell, tellError, Wrong } from "../../parts/controls";
import { Card, Empty, Facts, layout, Page, Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { bytes, number } from "../../text/format";
import { submitted } from "../settings/parts";
import css from "./data.module.css";

export default function ModelsPage() {
  const list = useQuery({ queryKey: ["models"], queryFn: () => get<ModelsAnswer>("/models") });
  const [open, setOpen] = useParam("open");
  const models = list.data?.models ?? [];
  return (
    <Page name="Models" title="Models">
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && models.length === 0 && (
        <Empty title="No models" text="A job whose specification has this line puts what it exported into the store when it completes." commands={["export: {model: digits, alias: candidate}"]} />
      )}
      {models.map((model) => (
        <Card key={model.name} title={model.name}>
          <div className={layout.scroll}>
            <table className={layout.table}>
              <thead><tr><th>Version</th><th>Job</th><th className={layout.number}>Size</th><th>Made</th><th>Served as</th></tr></thead>
              <tbody>
                {model.versions.map((version) => (
                  <tr key={version.version}>
                    <td>
                      <button type="button" className={css.name} onClick={() => setOpen(`${model.name}@${version.version}`)}>{model.name}@{version.version}</button>
                      {version.aliases.map((alias) => <span key={alias} className={css.alias}>{alias}</span>)}
                    </td>
                    <td>{version.job === null ? "–" : <Link href={`/jobs/${version.job}`}>{version.job}</Link>}</td>
                    <td className={layout.number}>{bytes(version.bytes)}</td>
                    <td>{version.created.slice(0, 16).replace("T", " ")}</td>
                    <td>{version.deployments.map((name) => <Link key={name} href={`/deployments?open=${name}`}>{name} </Link>)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      ))}
      {open && <ModelDialog name={open} onClose={() => setOpen("")} />}
    </Page>
  );
}

function ModelDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [model, version] = [name.slice(0, name.lastIndexOf("@")), name.slice(name.lastIndexOf("@") + 1)];
  const client = useQueryClient();
  const mayAct = useMayAct();
  const [, go] = useLocation();
  const [wrong, setWrong] = useState<unknown>(null);
  const detail = useQuery({ queryKey: ["models", name], queryFn: () => get<ModelVersionDetail>(`/models/${encodeURIComponent(model)}/versions/${version}`) });
  const lineage = detail.data?.lineage;
  const alias = submitted((form, element) => {
    send("POST", `/models/${encodeURIComponent(model)}/aliases`, { alias: form.get("alias"), version: Number(version) }).then(() => {
      void client.invalidateQueries({ queryKey: ["models"] });
      element.reset();
      tell(`${String(form.get("alias"))} means version ${version}`);
    }, setWrong);
  });
  async function deploy(): Promise<void> {
    try {
      await send("POST", "/deployments", { name: model, model: name });
      void client.invalidateQueries({ queryKey: ["deployments"] });
      go(`/deployments?open=${encodeURIComponent(model)}`);
    } catch (error) {
      tellError(error);
    }
  }
  return (
    <Dialog title={name} onClose={onClose} foot={<>{mayAct && <Button kind="primary" onClick={() => void deploy()}>Deploy</Button>}<Button onClick={onClose}>Close</Button></>}>
      {detail.error ? <Wrong error={detail.error} /> : null}
      {detail.isPending && <Skeleton />}
      {detail.data && (
        <div className={css.stack}>
          {lineage && (
            <div className={css.lineage} aria-label="Where it came from" role="group">
              {lineage.data.map((data) => <span key={data.name} className={css.step}><small>data</small>{data.name} <code>{data.digest.slice(0, 8)}</code></span>)}
              {lineage.ledger && <span className={css.step}><small>ledger</small>{String(lineage.ledger["verdict"] ?? "kept")}</span>}
              <span className={css.step}><small>job</small>{lineage.job === null ? lineage.job_name : <Link href={`/jobs/${lineage.job}`}>{lineage.job_name} {lineage.job}</Link>}</span>
              <span className={css.step}><small>model</small>{name}</span>
              {detail.data.deployments.map((one) => <span key={one} className={css.step}><small>deployment</small><Link href={`/deployments?open=${one}`}>{one}</Link></span>)}
            </div>
          )}
          {lineage && (
            <Facts
              facts={[
                ["By", lineage.user],
                lineage.git_commit !== null && ["Commit", <code>{lineage.git_commit.slice(0, 10)}</code>],
                ...Object.entries(lineage.metrics).slice(0, 8).map(([metric, value]) => [metric, typeof value === "string" ? value : number(value)] as const),
              ]}
            />
          )}
          <Facts facts={[["SHA-256", <code>{detail.data.sha256}</code>]]} />
          {wrong ? <Wrong error={wrong} /> : null}
          {mayAct && (
            <form className={css.lineage} onSubmit={alias}>
              <Field label="Alias for this version"><input type="text" name="alias" required placeholder="production" /></Field>
              <Button type="submit">Set</Button>
            </form>
          )}
        </div>
      )}
    </Dialog>
  );
}
