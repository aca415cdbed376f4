/** Trainings of pictures: the list, and one of them live, with its curves, examples and results. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "wouter";
import { get, send } from "../../../api/client";
import { useJob, useMayAct, useRefresh } from "../../../api/queries";
import type { TrainingDetail, TrainingsAnswer } from "../../../api/types";
import { Button, ButtonLink, tell, tellError, Wrong } from "../../../parts/controls";
import { Bar, Card, Empty, Facts, layout, Page, Skeleton } from "../../../parts/layout";
import { MakingJobs } from "../../../parts/made";
import { ACTIVE, ENDED, StateMark } from "../../../parts/state";
import { duration, number, percent } from "../../../text/format";
import { readResults, scoreText, scoreWord, timeLeft } from "../../../vision/results";
import { ChartTools, MetricCharts } from "../../job/curves";
import data from "../data/data.module.css";
import { visionCommand, VisionTabs } from "../places";
import { ExamplesCard } from "./examples";
import { ResultsView } from "./results";

export function TrainingsPage() {
  const list = useQuery({ queryKey: ["vision", "trainings"], queryFn: () => get<TrainingsAnswer>("/vision/trainings") });
  useRefresh(["jobs"], [["vision", "trainings"]]);
  const trainings = list.data?.trainings ?? [];
  return (
    <Page name="Trainings" title="Vision">
      <VisionTabs open="trainings" />
      {list.error ? <Wrong error={list.error} /> : null}
      {list.isPending && <Skeleton lines={5} />}
      {list.data && trainings.length === 0 && <Empty title="No trainings" text="Open a data set with labels and press Train; or from the terminal, with a configuration of your own:" commands={[visionCommand("train --data cells")]}><ButtonLink to="/vision">To the data sets</ButtonLink></Empty>}
      {trainings.length > 0 && (
        <MakingJobs
          title="Trainings"
          label="Trainings of pictures"
          kind="Training"
          heads={["Data", "Network"]}
          jobs={trainings.map((one) => ({
            job: one.job,
            to: `/vision/trainings/${one.job.id}`,
            cells: [`${one.dataset_name}@${one.version}`, <>{one.network} <span className={layout.note}>{one.task}</span></>],
            score: one.score === null ? null : `${one.score_name} ${number(one.score)}`,
            model: one.model,
            modelTo: `/vision/models/${encodeURIComponent(one.model ?? "")}`,
          }))}
        />
      )}
    </Page>
  );
}

const SHOWN = /^(loss|val_.*|accuracy|lr)$/;

export default function TrainingPage({ id }: { id: number }) {
  const client = useQueryClient();
  const mayAct = useMayAct();
  const found = useQuery({
    queryKey: ["vision", "training", id],
    queryFn: ({ signal }) => get<TrainingDetail>(`/vision/trainings/${id}`, {}, signal),
    refetchInterval: (query) => (query.state.data && !ENDED.includes(query.state.data.job.state) ? 2000 : false),
  });
  const job = useJob(id);
  useRefresh([`job:${id}`], [["vision", "training", id], ["job", id]]);
  const results = useMemo(() => (found.data ? readResults(found.data.results) : null), [found.data]);
  if (found.error) return <Page name="Training" title="Training"><VisionTabs open="trainings" /><Wrong error={found.error} /></Page>;
  if (!found.data) return <Page name="Training" title="Training"><Skeleton lines={6} /></Page>;
  const training = found.data;
  const { state, progress, started_ms, ended_ms } = training.job;
  const active = ACTIVE.includes(state);
  const left = active && started_ms ? timeLeft(Date.now() - started_ms, progress, training.config) : null;
  const names = (job.data?.metrics ?? []).map((metric) => metric.name).filter((name) => SHOWN.test(name));
  const finish = (): void => void send("POST", `/vision/trainings/${id}/finish`).then(() => {
    tell("it ends now and keeps its best state");
    void client.invalidateQueries({ queryKey: ["vision"] });
  }, tellError);
  return (
    <Page
      name={training.job.name}
      title={<><Link href="/vision/trainings">Trainings</Link> / {training.job.name} {id} <StateMark state={state} wanted={training.job.wanted} badge /></>}
      actions={
        <>
          {mayAct && active && <Button icon="stop" onClick={finish}>End now, keep the best</Button>}
          <ButtonLink to={`/jobs/${id}/logs`} icon="jobs">Job</ButtonLink>
          {training.model && <ButtonLink kind="primary" icon="out" to={`/vision/models/${encodeURIComponent(training.model)}`}>Model</ButtonLink>}
        </>
      }
    >
      <Card>
        <Facts facts={[
          ["Data", <Link href={`/vision/data/${encodeURIComponent(training.dataset)}/versions`}>{training.dataset_name}@{training.version}</Link>], ["Task", training.task], ["Network", training.network],
          training.score !== null && [scoreWord(training.score_name), scoreText(training.score)], left !== null && ["Left", duration(left)],
          started_ms !== null && ["Took", duration((ended_ms ?? Date.now()) - started_ms)], training.job.message !== null && state !== "completed" && ["Message", training.job.message],
          training.job.reason !== null && !active && ["Waits", training.job.reason.text],
        ]} />
        {active && <Bar share={progress ?? 0} label={`${percent(progress ?? 0)} done`} />}
      </Card>
      {job.data && names.length > 0 && <><ChartTools /><MetricCharts job={job.data} names={names} /></>}
      {active && names.length === 0 && <Card title={state === "running" ? "It reads the pictures" : "It waits for its turn"}><p className={layout.note}>Curves and examples appear here by themselves with its first steps.</p><Skeleton lines={4} /></Card>}
      <ExamplesCard examples={training.examples} active={active} dataset={training.dataset} classes={[]} />
      {results && <div className={data.stack}><ResultsView results={results} dataset={training.dataset} /></div>}
    </Page>
  );
}
