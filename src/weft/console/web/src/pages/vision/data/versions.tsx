/** Versions of a data set: immutable, with a digest; a training names the one that it used. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { get, send, url } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import { datasetPath, invalidateDataset, type Dataset } from "../../../api/vision";
import type { VisionVersion, VisionVersions } from "../../../api/types";
import { Button, Field, tell, Wrong } from "../../../parts/controls";
import { Card, Empty, layout, Skeleton } from "../../../parts/layout";
import { ago, count } from "../../../text/format";
import { submitted } from "../../settings/parts";
import { visionCommand } from "../places";
import css from "./data.module.css";

export function VersionsTab({ set }: { set: Dataset }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const [wrong, setWrong] = useState<unknown>(null);
  const list = useQuery({ queryKey: ["vision", "dataset", set.id, "versions"], queryFn: () => get<VisionVersions>(datasetPath(set.id, "/versions")) });
  const freeze = submitted((form, element) => {
    send<VisionVersion>("POST", datasetPath(set.id, "/versions"), { note: form.get("note") }).then((made) => {
      setWrong(null);
      element.reset();
      tell(`version ${made.number} is frozen`);
      invalidateDataset(client, set.id);
    }, setWrong);
  });
  const versions = list.data?.versions ?? [];
  return (
    <>
      {mayAct && (
        <form className={css.row} onSubmit={freeze}>
          <Field label="Note for the next version"><input type="text" name="note" placeholder="boxes of batch 3 checked" /></Field>
          <Button type="submit" icon="pin">Freeze a version</Button>
        </form>
      )}
      {wrong ? <Wrong error={wrong} /> : null}
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton />}
      {list.data && versions.length === 0 && <Empty title="No version yet" text="A training freezes one by itself, so that what a model learned from can always be said. From the terminal:" commands={[visionCommand(`data versions ${set.name} --freeze`)]} />}
      {versions.length > 0 && (
        <Card title="Versions">
          <div className={layout.scroll} tabIndex={0} role="group" aria-label="Versions of the data set">
            <table className={`${layout.table} ${layout.whole}`}>
              <thead><tr><th>Version</th><th>Note</th><th>Digest</th><th className={layout.number}>Pictures</th><th className={layout.number}>Objects</th><th>Train, validation, test</th><th>Frozen</th><th>Export</th></tr></thead>
              <tbody>
                {versions.map((one) => (
                  <tr key={one.number}>
                    <td>{one.name}@{one.number}</td>
                    <td>{one.note}</td>
                    <td><code>{one.digest.slice(0, 12)}</code></td>
                    <td className={layout.number}>{count(one.pictures)}</td>
                    <td className={layout.number}>{count(one.shapes)}</td>
                    <td>{["train", "validation", "test"].map((split) => count(one.splits[split] ?? 0)).join(", ")}</td>
                    <td>{one.user && `${one.user}, `}{ago(one.created_ms)}</td>
                    <td>{(["coco", "yolo", "voc"] as const).map((format) => <a key={format} className={css.format} href={url(datasetPath(set.id, "/export"), { format, version: one.number })} download>{format}</a>)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Card>
      )}
    </>
  );
}
