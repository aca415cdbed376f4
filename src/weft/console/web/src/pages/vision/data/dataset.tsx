/** One data set: its pictures, labels, films, versions and health; the address says which, and what is filtered. */
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { send, url } from "../../../api/client";
import { useMayAct, useRefresh } from "../../../api/queries";
import { datasetKeys, datasetPath, invalidateDataset, labelPath, running, useDataset, useTasks, type Dataset } from "../../../api/vision";
import { Button, ButtonLink, Dialog, Field, Tabs, tell, tellError, Wrong } from "../../../parts/controls";
import { layout, Page, Skeleton } from "../../../parts/layout";
import { useParam } from "../../../text/address";
import { count, plural } from "../../../text/format";
import { submitted, Sure } from "../../settings/parts";
import { addressesOf } from "../../../vision/uploads";
import { TrainDialog } from "../train/dialog";
import { AugmentDialog } from "./augment";
import { AutolabelDialog } from "./autolabel";
import css from "./data.module.css";
import { PicturesTab } from "./grid";
import { HealthTab } from "./health";
import { LabellingBar } from "./labelling";
import { LabelsTab } from "./labels";
import { FilmsTab } from "./films";
import { DropZone, fetchPictures, ImportButton, TaskBars, UploadBar, useUploads } from "./upload";
import { VersionsTab } from "./versions";

const TABS = ["pictures", "labels", "films", "versions", "health"] as const;

export default function VisionDatasetPage({ dataset, tab }: { dataset: string; tab: string }) {
  const found = useDataset(dataset);
  const mayAct = useMayAct();
  const uploads = useUploads(dataset);
  const tasks = useTasks();
  const [dialog, setDialog] = useParam("do");
  const [labelling, setLabelling] = useParam("labelling");
  useRefresh(["vision"], datasetKeys(found.data?.id ?? dataset), 1500, ({ kind, data }) => kind === "resync" || data.dataset === found.data?.id);
  if (found.error) return <Page name="Data set" title="Data set"><Wrong error={found.error} /></Page>;
  if (!found.data) return <Page name="Data set" title="Data set"><Skeleton lines={6} /></Page>;
  const set = found.data;
  const base = `/vision/data/${encodeURIComponent(dataset)}`;
  const counts = { pictures: set.counts.pictures, labels: set.labels.length + set.categories.length, films: set.counts.films, versions: set.newest_version, health: undefined };
  const close = (): void => setDialog("");
  const empty = set.counts.pictures + set.counts.films === 0;
  const busy = uploads.items.some((item) => item.state === "waiting" || item.state === "sending") || (tasks.data?.tasks ?? []).some((task) => task.dataset === set.id && running(task));
  return (
    <DropZone onFiles={mayAct ? uploads.add : () => tell("viewers import nothing", true)}>
      <Page
        name={set.name}
        fill={tab === "pictures"}
        title={<><Link href="/vision">Vision</Link> / {set.name}</>}
        actions={
          <>
            {mayAct && <ImportButton onFiles={uploads.add} />}
            {mayAct && <ImportButton onFiles={uploads.add} folder />}
            <Button icon="settings" onClick={() => setDialog("more")}>More</Button>
            {mayAct && !empty && <Button icon="magic" onClick={() => setDialog("autolabel")}>Auto-label</Button>}
            {mayAct && !empty && <Button icon="studies" onClick={() => setDialog("train")}>Train</Button>}
            {!empty && <ButtonLink kind="primary" icon="tag" to={labelPath(set)}>Label</ButtonLink>}
          </>
        }
      >
        {set.description && <p className={layout.note}>{set.description}</p>}
        <Tabs label="Data set" open={tab} tabs={TABS.map((key) => ({ key, text: `${key[0]!.toUpperCase()}${key.slice(1)}`, to: key === "pictures" ? base : `${base}/${key}`, count: counts[key] }))} />
        <UploadBar uploads={uploads} />
        <TaskBars dataset={set.id} />
        {labelling && <LabellingBar set={set} job={Number(labelling)} onClose={() => setLabelling("")} />}
        {tab === "pictures" && <PicturesTab set={set} busy={busy} />}
        {tab === "labels" && <LabelsTab set={set} />}
        {tab === "films" && <FilmsTab set={set} />}
        {tab === "versions" && <VersionsTab set={set} />}
        {tab === "health" && <HealthTab set={set} />}
        {dialog === "more" && <MoreDialog set={set} onClose={close} onAugment={() => setDialog("augment")} mayAct={mayAct} />}
        {dialog === "train" && <TrainDialog set={set} onClose={close} />}
        {dialog === "autolabel" && <AutolabelDialog set={set} onClose={close} />}
        {dialog === "augment" && <AugmentDialog set={set} onClose={close} />}
      </Page>
    </DropZone>
  );
}

const FORMATS = [["coco", "COCO"], ["yolo", "YOLO"], ["voc", "Pascal VOC"], ["folders", "Class folders"], ["ibm", "IBM zip"]] as const;

function MoreDialog({ set, onClose, onAugment, mayAct }: { set: Dataset; onClose: () => void; onAugment: () => void; mayAct: boolean }) {
  const client = useQueryClient();
  const [, go] = useLocation();
  const [wrong, setWrong] = useState<unknown>(null);
  const change = submitted((form) => {
    const shares = String(form.get("shares")).split(/[\s,]+/).filter(Boolean);
    send("PATCH", datasetPath(set.id), { name: form.get("name"), description: form.get("description"), shares }).then(() => {
      invalidateDataset(client, set.id);
      tell("changed");
      onClose();
    }, setWrong);
  });
  const fetched = submitted((form) => {
    const urls = addressesOf(String(form.get("urls")));
    if (urls.length === 0) return setWrong(new Error("each line must be an address that begins with http:// or https://, got another; write one a line"));
    fetchPictures(client, set.id, urls).then(onClose, setWrong);
  });
  const clone = submitted((form) => {
    send("POST", datasetPath(set.id, "/clone"), { name: form.get("copy") }).then(() => {
      void client.invalidateQueries({ queryKey: ["vision"] });
      tell("it is copied in the background");
      onClose();
    }, setWrong);
  });
  return (
    <Dialog title={set.name} onClose={onClose}>
      <div className={css.stack}>
        {wrong ? <Wrong error={wrong} /> : null}
        <section aria-label="Export">
          <h3>Export {plural(set.counts.pictures, "picture")} with their labels</h3>
          <p className={css.row}>{FORMATS.map(([format, text]) => <a key={format} href={url(datasetPath(set.id, "/export"), { format })} download>{text}</a>)}</p>
        </section>
        {mayAct && (
          <>
            <form className={css.stack} onSubmit={fetched}>
              <h3>Import from addresses</h3>
              <Field label="Addresses of pictures, one a line"><textarea name="urls" rows={3} required placeholder="https://" /></Field>
              <div className={css.row}><Button type="submit">Fetch</Button></div>
            </form>
            <section aria-label="Augment"><h3>Augment</h3><div className={css.row}><Button icon="magic" onClick={onAugment}>Make a data set of changed pictures</Button></div></section>
            <form className={css.stack} onSubmit={change}>
              <h3>Change</h3>
              <Field label="Name"><input type="text" name="name" defaultValue={set.name} required maxLength={64} /></Field>
              <Field label="What the pictures show"><input type="text" name="description" defaultValue={set.description} /></Field>
              {set.mine && <Field label="Shared with these users; * is everybody"><input type="text" name="shares" defaultValue={set.shares.join(" ")} /></Field>}
              <div className={css.row}><Button type="submit">Change</Button></div>
            </form>
            <form className={css.row} onSubmit={clone}>
              <Field label="Name of a copy"><input type="text" name="copy" required defaultValue={`${set.name}-copy`} maxLength={64} /></Field>
              <Button type="submit">Copy</Button>
            </form>
            {set.mine && (
              <p className={css.row}>
                <Sure word="Remove" label={`remove ${set.name} with ${count(set.counts.pictures)} pictures`} onSure={() => void send("DELETE", datasetPath(set.id)).then(() => {
                  void client.invalidateQueries({ queryKey: ["vision", "datasets"] });
                  go("/vision");
                }, tellError)} />
                <span className={layout.note}>with {plural(set.counts.pictures, "picture")} and their labels; models stay</span>
              </p>
            )}
          </>
        )}
      </div>
    </Dialog>
  );
}
