/** Routes of the console, for those who are logged in and those who are not yet. */
import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect } from "react";
import { Route, Switch, useLocation } from "wouter";
import { ApiError, whenLoggedOut } from "./api/client";
import { useSession } from "./api/queries";
import { Wrong } from "./parts/controls";
import { Empty, Page, Skeleton } from "./parts/layout";
import { LoginPage } from "./pages/login";
import { JobsPage } from "./pages/jobs/jobs";
import { OverviewPage } from "./pages/overview";
import { Shell } from "./shell";

const JobPage = lazy(() => import("./pages/job/job"));
const HostsPage = lazy(() => import("./pages/hosts"));
const ComparePage = lazy(() => import("./pages/compare/compare"));
const DatasetsPage = lazy(() => import("./pages/data/datasets"));
const ModelsPage = lazy(() => import("./pages/data/models"));
const DeploymentsPage = lazy(() => import("./pages/data/deployments"));
const SettingsPage = lazy(() => import("./pages/settings/settings"));
const StudiesPage = lazy(() => import("./pages/studies/studies"));
const StudyPage = lazy(() => import("./pages/studies/study"));
const VisionDatasetsPage = lazy(() => import("./pages/vision/data/datasets"));
const VisionDatasetPage = lazy(() => import("./pages/vision/data/dataset"));
const FilmPage = lazy(() => import("./pages/vision/data/films"));
const TrainingPage = lazy(() => import("./pages/vision/train/trainings"));
const TrainingsPage = lazy(() => import("./pages/vision/train/trainings").then((found) => ({ default: found.TrainingsPage })));
const VisionModelPage = lazy(() => import("./pages/vision/models/models"));
const VisionModelsPage = lazy(() => import("./pages/vision/models/models").then((found) => ({ default: found.VisionModelsPage })));
const AutoRunsPage = lazy(() => import("./pages/auto/runs"));
const AutoRunPage = lazy(() => import("./pages/auto/run"));
const LabelPage = lazy(() => import("./pages/vision/label/label"));
const NewJobPage = lazy(() => import("./pages/new-job"));

/** Returns where a link that MLflow's client prints leads: #/experiments/0/runs/7 is job 7. */
export function runLink(hash: string): string | null {
  const found = /^#\/experiments\/[^/]+(?:\/runs\/(\d+))?$/.exec(hash);
  return found ? (found[1] ? `/jobs/${found[1]}` : "/jobs") : null;
}

export function App() {
  const [location, go] = useLocation();
  const session = useSession();
  const client = useQueryClient();
  useEffect(() => {
    const place = runLink(window.location.hash);
    if (place) go(place, { replace: true });
  }, [go]);
  useEffect(() => whenLoggedOut(() => client.setQueryData(["session"], null)), [client]);
  const outside = session.data === null || (session.error instanceof ApiError && session.error.status === 401);
  useEffect(() => {
    if (!outside || location === "/login") return;
    const back = location + window.location.search;
    go(back === "/" ? "/login" : `/login?next=${encodeURIComponent(back)}`, { replace: true });
  }, [outside, location, go]);

  if (location === "/login") return <LoginPage />;
  if (session.isPending || outside) return null;
  if (session.isError)
    return (
      <main style={{ padding: 32 }}>
        <Wrong error={session.error} />
      </main>
    );
  return (
    <Shell>
      <Suspense fallback={<div style={{ padding: 32 }}><Skeleton lines={6} /></div>}>
        <Switch>
          <Route path="/" component={OverviewPage} />
          <Route path="/jobs" component={JobsPage} />
          <Route path="/jobs/:id/:tab?">{({ id, tab }) => <JobPage key={id} id={Number(id)} tab={tab ?? "curves"} />}</Route>
          <Route path="/studies" component={StudiesPage} />
          <Route path="/studies/:id/:tab?">{({ id, tab }) => <StudyPage key={id} id={Number(id)} tab={tab ?? "progress"} />}</Route>
          <Route path="/hosts" component={HostsPage} />
          <Route path="/compare" component={ComparePage} />
          <Route path="/datasets" component={DatasetsPage} />
          <Route path="/models" component={ModelsPage} />
          <Route path="/deployments" component={DeploymentsPage} />
          <Route path="/settings/:tab?">{({ tab }) => <SettingsPage tab={tab ?? "tokens"} />}</Route>
          <Route path="/tables" component={AutoRunsPage} />
          <Route path="/tables/:id">{({ id }) => <AutoRunPage key={id} id={Number(id)} />}</Route>
          <Route path="/vision" component={VisionDatasetsPage} />
          <Route path="/vision/data/:dataset/:tab?">{({ dataset, tab }) => <VisionDatasetPage key={dataset} dataset={decodeURIComponent(dataset)} tab={tab ?? "pictures"} />}</Route>
          <Route path="/vision/film/:film">{({ film }) => <FilmPage key={film} film={decodeURIComponent(film)} />}</Route>
          <Route path="/vision/trainings" component={TrainingsPage} />
          <Route path="/vision/trainings/:id">{({ id }) => <TrainingPage key={id} id={Number(id)} />}</Route>
          <Route path="/vision/models" component={VisionModelsPage} />
          <Route path="/vision/models/:model">{({ model }) => <VisionModelPage key={model} reference={decodeURIComponent(model)} />}</Route>
          <Route path="/vision/label/:dataset/:file?">{({ dataset, file }) => <LabelPage key={dataset} dataset={decodeURIComponent(dataset)} file={file && decodeURIComponent(file)} />}</Route>
          <Route path="/new" component={NewJobPage} />
          <Route>
            <Page name="Nothing here" title="Nothing here">
              <Empty title="There is no such page" text="The address may be mistyped, or what it showed is gone." />
            </Page>
          </Route>
        </Switch>
      </Suspense>
    </Shell>
  );
}
