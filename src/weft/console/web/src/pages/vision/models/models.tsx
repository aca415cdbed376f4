/** Trained models: what each learned from, how good it is, what it is good for, and one press to serve it. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, send, url } from "../../../api/client";
import { useMayAct } from "../../../api/queries";
import type { DeploymentView, PictureModelDetail, PictureModelsAnswer, PictureModelView } from "../../../api/types";
import { Button, ButtonLink, Chip, Chips, Command, Segments, tell, tellError, Wrong } from "../../../parts/controls";
import { Card, Empty, Facts, layout, Page, Skeleton } from "../../../parts/layout";
import { toneClass } from "../../../parts/state";
import { useParam } from "../../../text/address";
import { ago } from "../../../text/format";
import { readResults, scoreText, scoreWord } from "../../../vision/results";
import data from "../data/data.module.css";
import { visionCommand, VisionTabs } from "../places";
import { ExamplesCard } from "../train/examples";
import { ResultsView } from "../train/results";
import { Sure } from "../../settings/parts";
import css from "../train/train.module.css";
import { ProjectChoice } from "./project";
import { TryPanel } from "./try";

const TONES = { production: "green", rejected: "orange", untested: "grey" } as const;
const TASKS = ["classification", "detection", "segmentation", "anomaly"] as const;
const modelPath = (reference: string, rest: string = ""): string => `/vision/models/${encodeURIComponent(reference)}${rest}`;

export function VisionModelsPage() {
  const [task, setTask] = useParam("task");
  const [status, setStatus] = useParam("status");
  const list = useQuery({ queryKey: ["vision", "models", task, status], queryFn: () => get<PictureModelsAnswer>("/vision/models", { task, status }) });
  const models = list.data?.models ?? [];
  return (
    <Page name="Models of pictures" title="Vision">
      <VisionTabs open="models" />
      <Chips label="Filters">
        {TASKS.map((one) => <Chip key={one} on={task === one} onClick={() => setTask(task === one ? "" : one)}>{one}</Chip>)}
        {Object.keys(TONES).map((one) => <Chip key={one} on={status === one} onClick={() => setStatus(status === one ? "" : one)}>{one}</Chip>)}
      </Chips>
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && models.length === 0 && <Empty title="No models" text="A training puts its model here when it has completed. Press Train on the page of a data set, or:" commands={[visionCommand("train --data cells")]} />}
      <ul className={data.cards}>{models.map((model) => <li key={model.reference}><ModelCard model={model} /></li>)}</ul>
    </Page>
  );
}

function ModelCard({ model }: { model: PictureModelView }) {
  return (
    <Link href={modelPath(model.reference)} className={data.card}>
      <div className={data.about}>
        <h2>{model.reference}</h2>
        <p><b className={css.score}>{scoreText(model.score)}</b> <span className={layout.note}>{scoreWord(model.score_name)}</span></p>
        <p className={layout.note}>{model.task}, {model.network}; on {model.dataset_name}@{model.dataset_version}</p>
        <p><span className={toneClass(TONES[model.status])}>{model.status}</span>{model.deployments.length > 0 && <span className={layout.note}> · served</span>}</p>
        <p className={layout.note}>{model.user}, {ago(model.created_ms)}</p>
      </div>
    </Link>
  );
}

export default function VisionModelPage({ reference }: { reference: string }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const found = useQuery({ queryKey: ["vision", "model", reference], queryFn: () => get<PictureModelDetail>(modelPath(reference)) });
  if (found.error) return <Page name="Model" title="Model"><VisionTabs open="models" /><Wrong error={found.error} /></Page>;
  if (!found.data) return <Page name="Model" title="Model"><Skeleton lines={6} /></Page>;
  const model = found.data;
  const results = readResults(model.results);
  const mayChange = mayAct && model.mine;
  const ask = (done: string, request: Promise<unknown>): void => void request.then(() => tell(done), tellError).finally(() => {
    for (const key of [["vision", "model"], ["vision", "models"], ["deployments"]]) void client.invalidateQueries({ queryKey: key });
  });
  const served = model.deployments[0];
  return (
    <Page
      name={model.reference}
      title={<><Link href="/vision/models">Models</Link> / {model.reference}</>}
      actions={
        <>
          <a className={data.format} href={url(modelPath(reference, "/onnx"))} download>Export as ONNX</a>
          <a className={data.format} href={`/api/trained-models/${encodeURIComponent(reference)}/export`} download>IBM zip</a>
          {mayAct && !served && <Button kind="primary" icon="out" onClick={() => ask(`${model.model} is being started`, send<DeploymentView>("POST", modelPath(reference, "/deploy"), {}))}>Deploy</Button>}
          {served && <ButtonLink to={`/deployments?open=${encodeURIComponent(served)}`} icon="out">Served as {served}</ButtonLink>}
        </>
      }
    >
      <Card title="Card">
        <div className={data.stack}>
          <Facts facts={[
            [scoreWord(model.score_name || "Score"), scoreText(model.score)], ["Task", model.task], ["Network", model.network],
            ["Data", <Link href={`/vision/data/${encodeURIComponent(model.dataset)}/versions`}>{model.dataset_name}@{model.dataset_version}</Link>],
            model.job !== null && ["Training", <Link href={`/vision/trainings/${model.job}`}>{model.job}</Link>], ["By", model.user], ["Made", ago(model.created_ms)], ["Classes", model.classes.join(", ") || "–"],
          ]} />
          {mayChange && (
            <div className={data.row}>
              <Segments label="What it is good for" value={model.status} options={[["untested", "Untested"], ["production", "Production"], ["rejected", "Rejected"]] as const} onChange={(status) => ask(`it is ${status}`, send("PATCH", modelPath(reference), { status }))} />
              <ProjectChoice model={model} path={modelPath(reference)} />
              {model.deployments.length === 0 && <Sure word="Remove" label={`remove ${reference}`} onSure={() => ask("removed", send("DELETE", modelPath(reference)))} />}
            </div>
          )}
          <Command text={`weft deployment deploy ${model.model} ${model.reference}`} />
        </div>
      </Card>
      {served && <TryPanel deployment={served} />}
      <ExamplesCard examples={model.examples} active={false} dataset={model.dataset} classes={model.classes} />
      {results && <ResultsView results={results} dataset={model.dataset} />}
    </Page>
  );
}
