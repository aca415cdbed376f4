/** Data sets of pictures as cards; a drop of files onto the page makes a new one of them. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { send } from "../../../api/client";
import { useMayAct, useRefresh } from "../../../api/queries";
import { thumbnailUrl, useDatasets, type Dataset, type Sent } from "../../../api/vision";
import { Button, Dialog, Field, tell, tellError, Wrong } from "../../../parts/controls";
import { Icon } from "../../../parts/icons";
import { Bar, Empty, layout, Page, Skeleton } from "../../../parts/layout";
import { useParam } from "../../../text/address";
import { ago, count, plural } from "../../../text/format";
import { submitted } from "../../settings/parts";
import { nameFor } from "../../../vision/uploads";
import { visionCommand, VisionTabs } from "../places";
import css from "./data.module.css";
import { DropZone, handOver, ImportButton } from "./upload";

export default function VisionDatasetsPage() {
  const list = useDatasets();
  useRefresh(["vision"], [["vision", "datasets"]], 2000);
  const mayAct = useMayAct();
  const [adding, setAdding] = useParam("new");
  const [text, setText] = useParam("q");
  const sets = (list.data?.datasets ?? []).filter((set) => `${set.name} ${set.description}`.toLowerCase().includes(text.toLowerCase()));
  const client = useQueryClient();
  const [, go] = useLocation();
  const drop = (files: readonly Sent[]): void => {
    if (!mayAct) return tell("viewers import nothing", true);
    const name = nameFor(files, (list.data?.datasets ?? []).map((set) => set.name));
    send<Dataset>("POST", "/vision/datasets", { name }).then((made) => {
      void client.invalidateQueries({ queryKey: ["vision", "datasets"] });
      handOver(made.id, files);
      go(`/vision/data/${encodeURIComponent(made.id)}`);
    }, tellError);
    return undefined;
  };
  return (
    <DropZone onFiles={drop}>
    <Page name="Vision" title="Vision" actions={mayAct && (
        <>
          {sets.length > 0 && <><ImportButton onFiles={drop} /><ImportButton onFiles={drop} folder /></>}
          <Button kind="primary" icon="plus" onClick={() => setAdding("1")}>New data set</Button>
        </>
      )}>
      <VisionTabs open="data" />
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && list.data.datasets.length === 0 && (
        <Empty
          title="No pictures yet"
          text="Drop pictures, films, a zip or a folder anywhere on this page: they become a data set, with the labels that COCO, YOLO, Pascal VOC, CVAT, Label Studio, LabelMe, VIA or IBM's tools have written, or with folders as categories. From the terminal:"
          commands={[visionCommand("data import cells ./pictures --create")]}
        >
          {mayAct && <p className={css.row}><ImportButton onFiles={drop} /><ImportButton onFiles={drop} folder /></p>}
        </Empty>
      )}
      {list.data && list.data.datasets.length > 6 && <input type="search" aria-label="Find data sets" placeholder="Find data sets" value={text} onChange={(event) => setText(event.target.value)} />}
      <ul className={css.cards}>
        {sets.map((set) => <li key={set.id}><DatasetCard set={set} /></li>)}
      </ul>
      {adding && <NewDialog onClose={() => setAdding("")} />}
    </Page>
    </DropZone>
  );
}

function DatasetCard({ set }: { set: Dataset }) {
  const { counts } = set;
  const done = counts.pictures ? counts.labelled / counts.pictures : 0;
  return (
    <Link href={`/vision/data/${encodeURIComponent(set.id)}`} className={css.card}>
      <div className={css.cover}>{set.cover ? <img src={thumbnailUrl(set.cover, 512)} alt="" loading="lazy" /> : <Icon name="picture" size={40} />}</div>
      <div className={css.about}>
        <h2>{set.name}</h2>
        {set.description && <p className={css.clip}>{set.description}</p>}
        <Bar share={done} label={`${Math.round(done * 100)} % labelled`} tone="var(--green)" />
        <p className={layout.note}>
          {plural(counts.pictures, "picture")}{counts.films ? `, ${plural(counts.films, "film")}` : ""}; {count(counts.labelled)} labelled{counts.auto ? `, ${count(counts.auto)} auto` : ""}
        </p>
        <p className={layout.note}>{set.labels.length ? `${plural(set.labels.length, "label")}, ` : ""}{set.mine ? "" : `${set.owner}, `}{set.shares.length ? "shared, " : ""}{ago(set.updated_ms)}</p>
      </div>
    </Link>
  );
}

function NewDialog({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [wrong, setWrong] = useState<unknown>(null);
  const make = submitted((form) => {
    send<Dataset>("POST", "/vision/datasets", { name: form.get("name"), description: form.get("description") }).then((made) => {
      void client.invalidateQueries({ queryKey: ["vision", "datasets"] });
      go(`/vision/data/${encodeURIComponent(made.id)}`);
    }, setWrong);
  });
  return (
    <Dialog title="New data set" onClose={onClose} foot={<><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" form="new-set">Make it</Button></>}>
      <form id="new-set" className={css.stack} onSubmit={make}>
        {wrong ? <Wrong error={wrong} /> : null}
        <Field label="Name"><input type="text" name="name" required maxLength={64} autoFocus /></Field>
        <Field label="What the pictures show"><input type="text" name="description" /></Field>
      </form>
    </Dialog>
  );
}
