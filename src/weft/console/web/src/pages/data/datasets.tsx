/** Data sets: their versions with digests, the files in them, and what jobs and models came of them. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, send } from "../../api/client";
import { useMayAct } from "../../api/queries";
import type { DatasetsAnswer, DatasetVersionDetail } from "../../api/types";
import { Button, Dialog, Field, Wrong } from "../../parts/controls";
import { Card, Empty, Facts, layout, Page, Skeleton } from "../../parts/layout";
import { useParam } from "../../text/address";
import { ago, bytes, count } from "../../text/format";
import { submitted } from "../settings/parts";
import css from "./data.module.css";

export default function DatasetsPage() {
  const list = useQuery({ queryKey: ["datasets"], queryFn: () => get<DatasetsAnswer>("/datasets") });
  const [open, setOpen] = useParam("open");
  const [adding, setAdding] = useState(false);
  const mayAct = useMayAct();
  const sets = list.data?.datasets ?? [];
  return (
    <Page name="Data sets" title="Data sets" actions={mayAct && <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>Register data</Button>}>
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && sets.length === 0 && (
        <Empty title="No data sets" text="Register a folder or a place in S3 under a name. Its version has a digest, and a job that names it gets exactly that data." commands={["weft dataset add digits /data/digits", "data: {images: dataset:digits@1}"]} />
      )}
      {sets.map((set) => (
        <Card key={set.name} title={set.name} extra={<span className={layout.note}>{set.user}, {ago(set.created_ms)}</span>}>
          {set.description && <p>{set.description}</p>}
          <div className={layout.scroll}>
            <table className={layout.table}>
              <thead><tr><th>Version</th><th>Source</th><th>Digest</th><th className={layout.number}>Files</th><th className={layout.number}>Size</th><th>Registered</th></tr></thead>
              <tbody>
                {set.versions.map((version) => (
                  <tr key={version.version}>
                    <td><button type="button" className={css.name} onClick={() => setOpen(`${set.name}@${version.version}`)}>{set.name}@{version.version}</button></td>
                    <td>{version.source}{version.note && <div className={layout.note}>{version.note}</div>}</td>
                    <td><code>{version.digest.slice(0, 12)}</code></td>
                    <td className={layout.number}>{count(version.files)}</td>
                    <td className={layout.number}>{bytes(version.bytes)}</td>
                    <td>{ago(version.created_ms)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      ))}
      {open && <VersionDialog name={open} onClose={() => setOpen("")} />}
      {adding && <AddDialog onClose={() => setAdding(false)} />}
    </Page>
  );
}

function VersionDialog({ name, onClose }: { name: string; onClose: () => void }) {
  const [set, version] = [name.slice(0, name.lastIndexOf("@")), name.slice(name.lastIndexOf("@") + 1)];
  const detail = useQuery({ queryKey: ["datasets", name], queryFn: () => get<DatasetVersionDetail>(`/datasets/${encodeURIComponent(set)}/versions/${version}`) });
  return (
    <Dialog title={name} onClose={onClose}>
      {detail.error ? <Wrong error={detail.error} /> : null}
      {detail.isPending && <Skeleton />}
      {detail.data && (
        <div className={css.stack}>
          <Facts
            facts={[
              ["Digest", <code>{detail.data.digest}</code>],
              ["Jobs", detail.data.jobs.length ? detail.data.jobs.slice(0, 20).map((id) => <Link key={id} href={`/jobs/${id}`}>{id} </Link>) : "none"],
              ["Models", detail.data.models.length ? detail.data.models.map((one) => <Link key={one} href={`/models?open=${encodeURIComponent(one)}`}>{one} </Link>) : "none"],
            ]}
          />
          <table className={layout.table}>
            <thead><tr><th>File</th><th className={layout.number}>Size</th></tr></thead>
            <tbody>
              {detail.data.listing.slice(0, 100).map((file) => (
                <tr key={file.path}><td>{file.path}</td><td className={layout.number}>{bytes(file.size)}</td></tr>
              ))}
            </tbody>
          </table>
          {detail.data.files > 100 && <p className={layout.note}>The first 100 of {count(detail.data.files)}.</p>}
        </div>
      )}
    </Dialog>
  );
}

function AddDialog({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const [wrong, setWrong] = useState<unknown>(null);
  const add = submitted((form) => {
    send("POST", "/datasets", { name: form.get("name"), source: form.get("source"), note: form.get("note") }).then(() => {
      void client.invalidateQueries({ queryKey: ["datasets"] });
      onClose();
    }, setWrong);
  });
  return (
    <Dialog title="Register data" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" form="add-data">Register</Button></>}>
      <form id="add-data" className={css.stack} onSubmit={add}>
        {wrong ? <Wrong error={wrong} /> : null}
        <Field label="Name"><input type="text" name="name" required autoFocus /></Field>
        <Field label="Source: a folder of the hosts, or s3://bucket/prefix"><input type="text" name="source" required /></Field>
        <Field label="Note"><input type="text" name="note" /></Field>
      </form>
    </Dialog>
  );
}
