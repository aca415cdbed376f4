/** Requests and answers of the API. Written by tools/console_types.py; do not edit. */

/** A point that a user gives. */
export interface AddedTrial {
  params: Record<string, unknown>;
}

/** The names that a study may use, and those of optimizers for a space. */
export interface AlgorithmsAnswer {
  searches: string[];
  schedules: string[];
  rules: string[];
  optimizers: string[];
}

/** The answer to a request that was refused or failed. */
export interface ApiError {
  error: ErrorDetail;
}

/** One attempt to run a job. */
export interface AttemptView {
  number: number;
  started_ms: number;
  ended_ms: number | null;
  hosts: HostShare[];
  code: number | null;
  message: string | null;
}

/** One page of the audit, newest first. */
export interface AuditAnswer {
  entries: AuditEntry[];
  next: string | null;
}

/** One action of a user. */
export interface AuditEntry {
  id: number;
  time_ms: number;
  user: string;
  action: string;
  target: string;
  detail: Record<string, unknown>;
}

/** One model of a leaderboard. */
export interface AutoBoardRow {
  name: string;
  score: number | null;
  held_score: number | null;
  weight: number | null;
  seconds: number | null;
  params: Record<string, unknown>;
}

/** A column with the role that was found for it. */
export interface AutoColumn {
  name: string;
  role: string;
  kind: string;
  distinct: number;
  missing_share: number | null;
  why: string;
}

/** The mean prediction where a column has each of some values in all rows. */
export interface AutoDependence {
  column: string;
  values: (number | string | null)[];
  means: (number | null)[];
}

/** One prediction taken apart: the base, the largest effects and the rest add up to it. */
export interface AutoExplainedRow {
  row: number;
  base: number | null;
  predicted: number | null;
  rest: number | null;
  reasons: AutoReason[];
}

/** The explanation of a model, by rows that it was not trained on. */
export interface AutoExplanation {
  output: string;
  importance?: AutoImportance[];
  rows?: AutoExplainedRow[];
  dependence?: AutoDependence[];
  groups?: AutoGroup[];
  calibration?: ([number | null, number | null, number])[];
  confusion?: number[][];
  scores?: Record<string, number | null>;
}

/** A warning about a table: a leak, drift, a column that is left out. */
export interface AutoFinding {
  kind: string;
  column: string;
  figure: number | null;
  threshold: number | null;
  sentence: string;
}

/** The outcome of a group of rows beside those of others. */
export interface AutoGroup {
  column: string;
  group: string;
  rows: number;
  rate: number | null;
  ratio: number | null;
  loss: number | null;
  warned: boolean;
}

/** The importance of a column: its mean absolute Shapley value, and how the loss grows without it. */
export interface AutoImportance {
  name: string;
  loss_growth: number | null;
  mean_shapley: number | null;
}

/** The effect of a column on one prediction. */
export interface AutoReason {
  column: string;
  value: string;
  effect: number | null;
}

/** A run with its leaderboard as it is now, and its explanations once it is over. */
export interface AutoRunDetail {
  job: JobView;
  table: string;
  target: string;
  metric: string;
  score: number | null;
  model: string | null;
  doing: string;
  spent_s: number | null;
  budget_s: number | null;
  models: number;
  rows: number | null;
  validation: string;
  classes: string[];
  leaderboard: AutoBoardRow[];
  columns: AutoColumn[];
  findings: AutoFinding[];
  notes: string[];
  explanation: AutoExplanation | null;
  files: AutoRunFile[];
  deployments: string[];
}

/** A file of a run that can be downloaded. */
export interface AutoRunFile {
  name: string;
  url: string;
  bytes: number;
}

/** A run at a glance: its job, its table and the best score so far. */
export interface AutoRunView {
  job: JobView;
  table: string;
  target: string;
  metric: string;
  score: number | null;
  model: string | null;
}

/** Runs, newest first. */
export interface AutoRunsAnswer {
  runs: AutoRunView[];
}

/** The job that labels, and the number of pictures. */
export interface AutolabelAnswer {
  job: JobView;
  pictures: number;
}

/** An automatic labelling to begin. */
export interface AutolabelBody {
  model: string;
  confidence?: number;
  files?: string[];
  workers?: number;
  gpus?: number;
  cpus?: number;
}

/** A version that answers a share of the requests. */
export interface CanaryView {
  version: number;
  percent: number;
}

/** All hosts together. */
export interface CapacityView {
  total: ResourceView;
  used: ResourceView;
}

/** One label or category, counted. */
export interface ClassHealth {
  name: string;
  pictures: number;
  shapes: number;
  splits: Record<string, number>;
  median_area: number;
}

/** Fields of the specification that the copy shall have otherwise: {"queue.priority": 80, "run": "..."}. */
export interface CloneBody {
  changes?: Record<string, unknown>;
}

/** The code that a job runs. */
export interface CodeAnswer {
  files: CodeFileView[];
  git_commit: string | null;
  git_dirty: boolean;
}

/** A file that differs. */
export interface CodeDiff {
  path: string;
  change: "added" | "changed" | "removed";
  diff: string | null;
}

/** One file of a job's code. */
export interface CodeFileView {
  path: string;
  kind: "file" | "link" | "program";
  size: number;
  digest: string;
}

/** A folder at one moment. */
export interface CodeSnapshot {
  files: SnapshotFile[];
  git_commit?: string | null;
  git_diff?: string | null;
}

/** One metric in at most a given number of groups of points that follow each other; spikes stay in `low` and `high`. */
export interface CurveView {
  name: string;
  steps: number[];
  times_ms: number[];
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  odd: OddValue[];
}

/** Curves in the order in which they were asked for. */
export interface CurvesAnswer {
  curves: CurveView[];
}

/** One file of a data set. */
export interface DataFileView {
  path: string;
  size: number;
  digest: string;
}

/** The files of a data set, counted. */
export interface DatasetCounts {
  pictures?: number;
  films?: number;
  labelled?: number;
  unlabelled?: number;
  auto?: number;
  review?: number;
}

/** One version with its first files, and what came of it. */
export interface DatasetVersionDetail {
  version: number;
  source: string;
  digest: string;
  files: number;
  bytes: number;
  note: string;
  user: string;
  created_ms: number;
  name: string;
  listing: DataFileView[];
  jobs: number[];
  models: string[];
}

/** One version of a data set. */
export interface DatasetVersionView {
  version: number;
  source: string;
  digest: string;
  files: number;
  bytes: number;
  note: string;
  user: string;
  created_ms: number;
}

/** A data set with its versions, newest first. */
export interface DatasetView {
  name: string;
  description: string;
  user: string;
  created_ms: number;
  versions: DatasetVersionView[];
  mine: boolean;
}

/** All data sets. */
export interface DatasetsAnswer {
  datasets: DatasetView[];
}

/** The newest deliveries. */
export interface DeliveriesAnswer {
  deliveries: DeliveryView[];
}

/** One message to a webhook. */
export interface DeliveryView {
  id: number;
  webhook_id: number | null;
  url: string;
  event: string;
  job: number | null;
  state: "delivered" | "failed" | "waiting";
  tries: number;
  status: number | null;
  message: string | null;
  created_ms: number;
  next_ms: number | null;
}

/** One deployment with its figures; without while it does not answer. */
export interface DeploymentDetail {
  name: string;
  model: string;
  version: number;
  previous: number[];
  state: "failed" | "running" | "starting" | "stopped";
  message: string | null;
  url: string | null;
  user: string;
  created_ms: number;
  changed_ms: number;
  mine: boolean;
  figures: ServingView | null;
  canary: CanaryView | null;
  by_version: VersionServing[];
  inputs: Record<string, unknown>[];
  outputs: Record<string, unknown>[];
}

/** One served model. */
export interface DeploymentView {
  name: string;
  model: string;
  version: number;
  previous: number[];
  state: "failed" | "running" | "starting" | "stopped";
  message: string | null;
  url: string | null;
  user: string;
  created_ms: number;
  changed_ms: number;
  mine: boolean;
}

/** All deployments. */
export interface DeploymentsAnswer {
  deployments: DeploymentView[];
}

/** The differences from one job to another. */
export interface DiffAnswer {
  spec: ValueDiff[];
  code: CodeDiff[];
  environment: ValueDiff[];
  truncated: boolean;
}

/** The reason why a request was refused or failed. */
export interface ErrorDetail {
  code: string;
  text: string;
  problems?: RequestProblem[];
}

/** One event of a job. */
export interface EventView {
  id: number;
  time_ms: number;
  kind: string;
  data: Record<string, unknown>;
}

/** Events, oldest first. */
export interface EventsAnswer {
  events: EventView[];
}

/** The model that a completed job puts into the model store. */
export interface ExportSpec {
  model: string;
  path?: string;
  alias?: string | null;
}

/** One file or folder of a job. */
export interface FileEntry {
  path: string;
  size: number;
  is_dir: boolean;
  modified_ms: number;
  kind: "folder" | "image" | "other" | "table" | "text";
}

/** The content of a folder of a job: outputs, checkpoints, attempts. */
export interface FilesAnswer {
  entries: FileEntry[];
  truncated: boolean;
}

/** An inference on a film at a glance. */
export interface FilmInference {
  job: JobView;
  film: string;
  film_name: string;
  dataset: string;
  model: string;
  captioned: string | null;
}

/** A film to be looked at by a trained model. */
export interface FilmInferenceBody {
  model: string;
  confidence?: number;
  every?: number;
  gpus?: number;
  cpus?: number;
}

/** An inference with its answers: `time_s`, `classified` and `shapes` of each frame that was looked at. */
export interface FilmInferenceDetail {
  job: JobView;
  film: string;
  film_name: string;
  dataset: string;
  model: string;
  captioned: string | null;
  frames: Record<string, unknown>[];
  actions?: Record<string, unknown>[];
}

/** Inferences on films, newest first. */
export interface FilmInferences {
  inferences: FilmInference[];
}

/** A recent finding, with its job. */
export interface FindingOfJob {
  job: number;
  name: string;
  rule: string;
  severity: string;
  text: string;
  last_ms: number;
}

/** One observation of a rule of advice. */
export interface FindingView {
  rule: string;
  severity: string;
  text: string;
  evidence: Record<string, number | "-Infinity" | "Infinity" | "NaN">;
  action: string | null;
  first_ms: number;
  last_ms: number;
}

/** All findings about a job. */
export interface FindingsAnswer {
  findings: FindingView[];
}

/** Code from a repository in place of a folder. */
export interface GitCode {
  git: string;
  ref?: string;
}

/** A job's most telling metric at a glance. */
export interface Headline {
  name: string;
  last: number | "-Infinity" | "Infinity" | "NaN" | null;
  values: (number | null)[];
}

/** The health of the service, also for those who are not logged in. */
export interface HealthAnswer {
  status: "degraded" | "ok";
  version: string;
  problems?: string[];
}

/** One kind of trouble in a data set, with files that show it. */
export interface HealthIssue {
  kind: string;
  level: "info" | "problem" | "warning";
  text: string;
  count: number;
  files: string[];
}

/** Changes to a host; what is left out stays. */
export interface HostChanges {
  labels?: string[];
  rack?: string;
}

/** Numbers of hosts by state. */
export interface HostCounts {
  up: number;
  drained: number;
  lost: number;
}

/** One host with its sockets, accelerators and network cards. */
export interface HostDetail {
  name: string;
  state: string;
  labels: string[];
  rack: string;
  message: string | null;
  seen_ms: number | null;
  total: ResourceView;
  used: ResourceView;
  jobs: HostJob[];
  topology: Record<string, unknown> | null;
  links: LinkView[];
}

/** A job that runs on a host. */
export interface HostJob {
  id: number;
  name: string;
  workers: number;
}

/** Workers of a job on one host. */
export interface HostShare {
  host: string;
  workers: number;
}

/** One host. */
export interface HostView {
  name: string;
  state: string;
  labels: string[];
  rack: string;
  message: string | null;
  seen_ms: number | null;
  total: ResourceView;
  used: ResourceView;
  jobs: HostJob[];
}

/** All hosts. */
export interface HostsAnswer {
  hosts: HostView[];
}

/** The tensors that a model answers with. */
export interface InferenceAnswer {
  model_name: string;
  outputs: Record<string, unknown>[];
}

/** A request of the open inference protocol, with its tensors in JSON. */
export interface InferenceRequest {
  inputs: Record<string, unknown>[];
  id?: string | null;
  parameters?: Record<string, unknown>;
  outputs?: Record<string, unknown>[] | null;
}

/** Interactions of pairs of parameters, the largest first; none while too few trials are complete. */
export interface InteractionsAnswer {
  interactions: ParameterInteraction[];
}

/** Changes to a job; what is left out stays. */
export interface JobChanges {
  priority?: number;
  tags?: Record<string, string>;
  name?: string;
  pinned?: boolean;
  project?: string;
}

/** One job with all that belongs to it. */
export interface JobDetail {
  id: number;
  name: string;
  project: string;
  user: string;
  kind: string;
  state: "completed" | "failed" | "held" | "paused" | "queued" | "running" | "staging" | "starting" | "stopped" | "storing";
  wanted: string | null;
  queue: string;
  priority: number;
  workers: number;
  min_workers: number;
  max_workers: number;
  attempt: number;
  progress: number | null;
  cause: string | null;
  message: string | null;
  reason: ReasonView | null;
  snapshot: string | null;
  parent_id: number | null;
  tags: Record<string, string>;
  pinned: boolean;
  created_ms: number;
  queued_ms: number;
  started_ms: number | null;
  ended_ms: number | null;
  headline: Headline | null;
  mine: boolean;
  spec: JobSpec;
  command: string;
  attempts: AttemptView[];
  hosts: HostShare[];
  after: number[];
  metrics: MetricView[];
  params: Record<string, string>;
  environment: Record<string, string>;
  findings: FindingView[];
}

/** A project with the number of its jobs. */
export interface JobNameUse {
  name: string;
  jobs: number;
  running: number;
  last_ms: number | null;
}

/** One job, as its owner writes it. */
export interface JobSpec {
  run: string | string[];
  name?: string | null;
  project?: string;
  description?: string;
  code?: string | GitCode;
  workers?: number | string;
  engine?: "auto" | "kubernetes" | "local" | "mpi" | "slurm" | "ssh";
  kubernetes?: KubernetesConfig | null;
  resources?: ResourceSpec;
  data?: Record<string, string>;
  outputs?: Record<string, string>;
  env?: Record<string, string | number | boolean>;
  secrets?: string[];
  tags?: Record<string, string>;
  queue?: QueueSpec;
  retry?: RetrySpec;
  metrics?: (TensorboardSource | RegexSource | JsonLinesSource | OutputSource)[];
  advice?: Record<string, Record<string, number | boolean | string>>;
  notify?: NotifySpec[];
  export?: ExportSpec | null;
  array?: Record<string, (string | number)[]> | null;
  schedule?: string | null;
}

/** One job in a list. */
export interface JobView {
  id: number;
  name: string;
  project: string;
  user: string;
  kind: string;
  state: "completed" | "failed" | "held" | "paused" | "queued" | "running" | "staging" | "starting" | "stopped" | "storing";
  wanted: string | null;
  queue: string;
  priority: number;
  workers: number;
  min_workers: number;
  max_workers: number;
  attempt: number;
  progress: number | null;
  cause: string | null;
  message: string | null;
  reason: ReasonView | null;
  snapshot: string | null;
  parent_id: number | null;
  tags: Record<string, string>;
  pinned: boolean;
  created_ms: number;
  queued_ms: number;
  started_ms: number | null;
  ended_ms: number | null;
  headline: Headline | null;
  mine: boolean;
}

/** One page of jobs, how many the filter lets through, and how many there are in each state. */
export interface JobsAnswer {
  jobs: JobView[];
  next: string | null;
  total: number;
  counts: Record<string, number>;
}

/** Metrics from a file of JSON lines. */
export interface JsonLinesSource {
  kind: "file";
  path: string;
}

/** The settings of one run on Kubernetes. */
export interface KubernetesConfig {
  image?: string;
  kind?: "job" | "jobset" | "trainjob";
  app_wrapper?: boolean;
  name?: string | null;
  namespace?: string | null;
  context?: string | null;
  kubeconfig?: string | null;
  pods?: number;
  pull_policy?: "Always" | "IfNotPresent" | "Never" | null;
  pull_secrets?: string[];
  resources?: Record<string, string | number>;
  requests?: Record<string, string | number>;
  node_selector?: Record<string, string>;
  tolerations?: PodToleration[];
  lost_node_s?: number;
  service_account?: string | null;
  volumes?: PodVolume[];
  env?: Record<string, string>;
  secrets?: Record<string, string>;
  shm?: string | null;
  run_as_user?: number | null;
  run_as_group?: number | null;
  fs_group?: number | null;
  root?: boolean;
  capabilities?: string[];
  host_network?: boolean;
  networks?: string[];
  queue?: string | null;
  queue_priority?: string | null;
  topology?: PodTopology | null;
  priority_class?: string | null;
  scheduler?: string | null;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  retries?: number | null;
  deadline_s?: number | null;
  keep_s?: number | null;
  grace_s?: number;
  code?: "image" | "snapshot" | null;
  workdir?: string;
  runtime?: string;
  port?: number;
  checks?: boolean;
  detach?: boolean;
  client_s?: number | null;
  extra_args?: string[];
  elastic?: boolean;
}

/** A label of objects, or a category of whole pictures. */
export interface LabelView {
  name: string;
  colour: string;
  pictures?: number;
}

/** The verdict on which samples each committed step consumed. */
export interface LedgerView {
  elastic: boolean;
  verdict: "broken" | "none" | "running" | "whole";
  text: string;
  steps: number;
  samples: number;
  problems: string[];
}

/** Data that the job of a model has read. */
export interface LineageData {
  name: string;
  digest: string;
  source: string;
  kind: string;
}

/** A link that logs in once. */
export interface LinkAnswer {
  url: string;
  expires_ms: number;
}

/** A measured link from a host to another. */
export interface LinkView {
  to: string;
  mbps: number | null;
  back_mbps: number | null;
  rtt_ms: number | null;
  measured_ms: number;
}

/** One line of a log. */
export interface LogLineView {
  rank: number;
  number: number;
  text: string;
}

/** A name and a password, or the text of a link. */
export interface Login {
  name?: string | null;
  password?: string | null;
  link?: string | null;
}

/** Log lines, and the cursor after the last of them. */
export interface LogsAnswer {
  lines: LogLineView[];
  next: string;
  first: string;
  ended: boolean;
  ranks: number[];
}

/** A mask as COCO writes it: height and width, and packed counts. */
export interface MaskView {
  size: [number, number];
  counts: string;
}

/** One metric of a job at a glance. */
export interface MetricView {
  name: string;
  points: number;
  last: number | "-Infinity" | "Infinity" | "NaN" | null;
  last_step: number | null;
  last_ms: number | null;
  lowest: number | null;
  highest: number | null;
}

/** All metrics of a job. */
export interface MetricsAnswer {
  metrics: MetricView[];
}

/** The way from data to a model, kept when it was made. */
export interface ModelLineage {
  job: number | null;
  job_name: string;
  project: string;
  user: string;
  code: string | null;
  git_commit: string | null;
  data: LineageData[];
  params: Record<string, string>;
  metrics: Record<string, number | "-Infinity" | "Infinity" | "NaN">;
  ledger: Record<string, unknown> | null;
}

/** One version with its card and its origin. */
export interface ModelVersionDetail {
  version: number;
  aliases: string[];
  sha256: string;
  bytes: number;
  created: string;
  job: number | null;
  deployments: string[];
  name: string;
  card: Record<string, unknown>;
  lineage: ModelLineage | null;
}

/** One version in the model store. */
export interface ModelVersionView {
  version: number;
  aliases: string[];
  sha256: string;
  bytes: number;
  created: string;
  job: number | null;
  deployments: string[];
}

/** A model with its versions, newest first. */
export interface ModelView {
  name: string;
  versions: ModelVersionView[];
}

/** All models of the store. */
export interface ModelsAnswer {
  models: ModelView[];
}

/** A name for a version. */
export interface NewAlias {
  alias: string;
  version: number;
}

/** A run to begin: a table, the column to predict, and how long to look for better models. */
export interface NewAutoRun {
  target: string;
  upload?: string | null;
  dataset?: string | null;
  file?: string;
  name?: string | null;
  minutes?: number;
  task?: "auto" | "classes" | "numbers";
  metric?: "accuracy" | "auc" | "log_loss" | "mae" | "rmse" | null;
  time?: string | null;
  group?: string | null;
  fairness?: string[];
  drop?: string[];
  models?: ("boosting" | "catboost" | "forest" | "lightgbm" | "linear" | "network" | "xgboost")[];
  trials?: number | null;
  seed?: number;
  cpus?: number;
  memory?: string | null;
  priority?: number;
}

/** Another version for a share of the requests; null ends it. */
export interface NewCanary {
  version: number | null;
  percent?: number;
}

/** A version to register; the data stays where it is. */
export interface NewDataset {
  name: string;
  source: string;
  note?: string;
  description?: string | null;
}

/** A model to serve, as NAME, NAME@VERSION or NAME@ALIAS. */
export interface NewDeployment {
  name: string;
  model: string;
}

/** A host that may run jobs from now on. */
export interface NewHost {
  name: string;
  labels?: string[];
  rack?: string;
}

/** A file of a job that shall be a model. */
export interface NewModel {
  job: number;
  model: string;
  path?: string;
  alias?: string | null;
}

/** A project to make. */
export interface NewPictureProject {
  name: string;
  description?: string;
  enforce?: boolean;
  auto_deploy?: boolean;
  datasets?: string[];
}

/** A value that the caller's jobs may have in an environment variable. */
export interface NewSecret {
  name: string;
  value: string;
}

/** A study to begin: its settings as data or as the text of study.yaml, and the digest of its code. */
export interface NewStudy {
  config?: Record<string, unknown> | null;
  yaml?: string | null;
  snapshot?: string | null;
  warm_start?: number | null;
  dry_run?: boolean;
}

/** A token to be made. */
export interface NewToken {
  name: string;
  scopes?: ("admin" | "read" | "write")[];
  days?: number | null;
}

/** A token with its text, which is shown this once. */
export interface NewTokenAnswer {
  token: TokenView;
  text: string;
}

/** A training to begin: data set, and whatever is not to be chosen by itself. */
export interface NewTraining {
  dataset: string;
  version?: number | null;
  name?: string | null;
  task?: "anomaly" | "classification" | "detection" | "segmentation" | null;
  model?: string | null;
  config?: Record<string, unknown>;
  workers?: number | string;
  gpus?: number;
  cpus?: number;
  memory?: string | null;
  lms?: string | null;
  priority?: number;
  project?: number | null;
}

/** A user to be made; without a password, one who logs in by a link. */
export interface NewUser {
  name: string;
  role?: "admin" | "member" | "viewer";
  password?: string | null;
  system_user?: string | null;
}

/** A data set to make. */
export interface NewVisionDataset {
  name: string;
  description?: string;
}

/** A version to freeze. */
export interface NewVisionVersion {
  note?: string;
}

/** An address to which events are sent. */
export interface NewWebhook {
  url: string;
  events?: ("advice" | "completed" | "failed" | "paused" | "retried" | "started" | "stopped")[];
  project?: string | null;
}

/** A webhook with the key that signs what is sent to it, shown this once. */
export interface NewWebhookAnswer {
  webhook: WebhookView;
  key: string;
}

/** A web address to which events are sent. */
export interface NotifySpec {
  webhook: string;
  on?: ("advice" | "completed" | "failed" | "paused" | "retried" | "started" | "stopped")[];
}

/** A place of a curve where a value is not a finite number. */
export interface OddValue {
  index: number;
  value: "-Infinity" | "Infinity" | "NaN";
}

/** Metrics from lines of JSON that the job prints; trials of studies have it from the start. */
export interface OutputSource {
  kind: "output";
}

/** The state of the service on one page; of each list at most 20. */
export interface OverviewAnswer {
  counts: Record<string, number>;
  hosts: HostCounts;
  capacity: CapacityView;
  running: JobView[];
  waiting: JobView[];
  failures: JobView[];
  findings: FindingOfJob[];
}

/** The share of one parameter in the difference between trials, and the middle 90 % of its resamples. */
export interface ParameterImportance {
  name: string;
  share: number;
  low: number;
  high: number;
}

/** The interaction of two parameters: the share of their joint effect that is not a sum, with its spread. */
export interface ParameterInteraction {
  first: string;
  second: string;
  share: number;
  low: number;
  high: number;
}

/** The name under which a trained model is served; none: its own. */
export interface PictureDeployBody {
  name?: string | null;
}

/** Changes to a trained model; what is left out stays. */
export interface PictureModelChanges {
  status?: "production" | "rejected" | "untested" | null;
  project?: number | null;
}

/** A trained model with metrics, confusion, curves and its worst mistakes. */
export interface PictureModelDetail {
  model: string;
  version: number;
  reference: string;
  job: number | null;
  task: string;
  network: string;
  dataset: string;
  dataset_name: string;
  dataset_version: number;
  score_name: string;
  score: number | null;
  status: "production" | "rejected" | "untested";
  project: number | null;
  user: string;
  mine: boolean;
  deployments: string[];
  created_ms: number;
  changed_ms: number;
  results: Record<string, unknown>;
  examples: TrainingExample[];
  classes: string[];
}

/** One version of a trained model at a glance. */
export interface PictureModelView {
  model: string;
  version: number;
  reference: string;
  job: number | null;
  task: string;
  network: string;
  dataset: string;
  dataset_name: string;
  dataset_version: number;
  score_name: string;
  score: number | null;
  status: "production" | "rejected" | "untested";
  project: number | null;
  user: string;
  mine: boolean;
  deployments: string[];
  created_ms: number;
  changed_ms: number;
}

/** Trained models, newest first. */
export interface PictureModelsAnswer {
  models: PictureModelView[];
}

/** Changes to a project; what is left out stays. */
export interface PictureProjectChanges {
  name?: string | null;
  description?: string | null;
  enforce?: boolean | null;
  auto_deploy?: boolean | null;
  datasets?: string[] | null;
}

/** A project. */
export interface PictureProjectView {
  id: number;
  name: string;
  description: string;
  enforce: boolean;
  auto_deploy: boolean;
  datasets: string[];
  models: number;
  user: string;
  mine: boolean;
  created_ms: number;
  changed_ms: number;
}

/** Projects by name. */
export interface PictureProjectsAnswer {
  projects: PictureProjectView[];
}

/** One job that a dry run would have made. */
export interface PlannedJob {
  name: string;
  command: string;
  min_workers: number;
  max_workers: number;
  spec: JobSpec;
}

/** A taint of nodes that the pods put up with. */
export interface PodToleration {
  key?: string | null;
  operator?: "Equal" | "Exists";
  value?: string | null;
  effect?: "NoExecute" | "NoSchedule" | "PreferNoSchedule" | null;
  seconds?: number | null;
}

/** The level of the machines' topology within which Kueue places all pods. */
export interface PodTopology {
  required?: string | null;
  preferred?: string | null;
}

/** A folder of a pod, from exactly one source. */
export interface PodVolume {
  at: string;
  claim?: string | null;
  config_map?: string | null;
  secret?: string | null;
  nfs?: string | null;
  host_path?: string | null;
  empty?: string | null;
  sub_path?: string | null;
  read_only?: boolean;
}

/** The fate of a batch: kept, or known already. */
export interface PointsAnswer {
  new: boolean;
}

/** Points of a job's metrics; a batch that was sent before, by its source and sequence, changes nothing. */
export interface PointsBody {
  source: string;
  sequence: number;
  points: ([string, number, number, number | "-Infinity" | "Infinity" | "NaN"])[];
}

/** The answer of a served model to a picture. */
export interface PredictAnswer {
  classified?: PredictedClass[] | null;
  detections?: PredictedBox[] | null;
  heatmap?: string | null;
  outputs?: unknown;
  collected?: string | null;
}

/** An object that was found, in pixels of the upright picture. */
export interface PredictedBox {
  label: string;
  confidence: number;
  xmin: number;
  ymin: number;
  xmax: number;
  ymax: number;
  polygons?: [number, number][][];
}

/** A class that a picture may be of. */
export interface PredictedClass {
  label: string;
  confidence: number;
}

/** All projects that the caller may see jobs of. */
export interface ProjectsAnswer {
  projects: JobNameUse[];
}

/** The place of a job among others. */
export interface QueueSpec {
  name?: string;
  priority?: number;
  preemptible?: boolean;
  hold?: boolean;
  max_time?: string | number | null;
  after?: (number | string)[];
}

/** A queue with the jobs that wait in it. */
export interface QueueView {
  name: string;
  waiting: number;
  running: number;
  jobs: JobView[];
}

/** All queues that have jobs. */
export interface QueuesAnswer {
  queues: QueueView[];
}

/** One worker: where it ran and how fast, for the heat strip. */
export interface RankView {
  rank: number;
  host: string;
  step_ms: number | null;
  values: (number | null)[];
}

/** All workers of a job's attempt. */
export interface RanksAnswer {
  ranks: RankView[];
  exposed_share: number | null;
}

/** The reason why a job waits. */
export interface ReasonView {
  why: string;
  text: string;
  place: number | null;
  earliest_ms: number | null;
}

/** Metrics from output lines; each named group of the expression is one, as `prefix/name` with a prefix. */
export interface RegexSource {
  kind: "regex";
  pattern: string;
  prefix?: string;
}

/** A job that is kept no longer. */
export interface RemovedJob {
  id: number;
  name: string;
  ended_ms: number;
  bytes: number;
  why: string;
}

/** One thing that is wrong with a request. */
export interface RequestProblem {
  path: string;
  must: string;
  got: string;
  next: string;
}

/** Resources of one worker, and the hosts that may take it. */
export interface ResourceSpec {
  gpus?: number;
  cpus?: number;
  memory?: string | number | null;
  hosts?: string | string[];
  lms?: string | number | null;
}

/** An amount of what hosts have and jobs take. */
export interface ResourceView {
  cpus?: number;
  memory_bytes?: number;
  gpus?: number;
}

/** The jobs that were removed, or would be. */
export interface RetentionAnswer {
  jobs: RemovedJob[];
  bytes: number;
  dry_run: boolean;
}

/** Bounds of what is kept, to be looked at or carried out now. */
export interface RetentionBody {
  days?: number | null;
  most_bytes?: number | null;
  dry_run?: boolean;
}

/** The rules for another attempt after a failed one. */
export interface RetrySpec {
  max?: number;
  on?: ("error" | "host-lost" | "out-of-memory" | "time-out")[];
  backoff?: string | number;
  avoid_hosts?: boolean;
}

/** The number of workers that an elastic job shall have. */
export interface ScaleBody {
  workers: number;
}

/** The name of a secret; its value is never answered. */
export interface SecretView {
  name: string;
  created_ms: number;
}

/** The caller's secrets. */
export interface SecretsAnswer {
  secrets: SecretView[];
}

/** The load and latency of a deployment since its version was loaded. */
export interface ServingView {
  requests: number;
  failures: number;
  in_flight: number;
  versions: number[];
  p50_ms: number | null;
  p95_ms: number | null;
  p99_ms: number | null;
}

/** The user who is logged in, and the value that writes with the cookie must send as X-Weft-CSRF. */
export interface SessionAnswer {
  user: SessionUser;
  csrf: string | null;
  version: string;
  shared: boolean;
  scopes: string[];
}

/** The user who is logged in. */
export interface SessionUser {
  id: number;
  name: string;
  role: "admin" | "member" | "viewer";
}

/** One labelled object of a picture, in pixels of the upright picture. */
export interface ShapeView {
  label: string;
  box: [number, number, number, number];
  polygons?: [number, number][][];
  mask?: MaskView | null;
  confidence?: number | null;
  model?: string | null;
  track?: string | null;
  id?: string;
}

/** Pictures of about the same size. */
export interface SizeBin {
  width: number;
  height: number;
  count: number;
}

/** A snapshot's digest, and the contents that must be sent before a job can use it. */
export interface SnapshotAnswer {
  digest: string;
  missing: string[];
}

/** One file of a snapshot. */
export interface SnapshotFile {
  path: string;
  kind: "file" | "link" | "program";
  digest: string;
  size: number;
}

/** Studies, the newest first. */
export interface StudiesAnswer {
  studies: StudyView[];
}

/** One study; in a dry run there is none yet, and `trials` are the first points. */
export interface StudyAnswer {
  study: StudyView | null;
  trials?: TrialView[];
}

/** A study's new budget, parallelism, given points, failures that end it, or retries of a lost trial. */
export interface StudyChanges {
  budget?: Record<string, unknown> | null;
  parallel?: number | null;
  points?: Record<string, unknown>[] | null;
  act?: Record<string, boolean> | null;
  failures?: number | null;
  retries?: number | null;
}

/** Changes to the settings of a study for a new one, field by field, and whether it takes the trials over. */
export interface StudyCopy {
  changes?: Record<string, unknown>;
  warm?: boolean;
}

/** One study with its settings, insights and importances. */
export interface StudyDetail {
  study: StudyView;
  config: Record<string, unknown>;
  front: number[];
  insights: StudyInsight[];
  importances: ParameterImportance[];
  events: number;
  mine: boolean;
}

/** The events that a study's state is made of, as its journal has them. */
export interface StudyEventsAnswer {
  events: Record<string, unknown>[];
  next: number;
}

/** One finding: the rule, a sentence, what to do, and the numbers behind it. */
export interface StudyInsight {
  rule: string;
  severity: string;
  text: string;
  advice: string;
  evidence: Record<string, unknown>;
  trials?: number[];
}

/** A file of a trial that becomes a version of a model: of the best one, unless `trial` names another. */
export interface StudyModel {
  model: string;
  path?: string;
  alias?: string | null;
  trial?: number | null;
}

/** One study at a glance. */
export interface StudyView {
  name: string;
  state: string;
  message: string;
  metrics: Record<string, string>;
  search: string;
  schedule: string;
  trials: number;
  counts: Record<string, number>;
  best?: TrialView | null;
  begun_ms?: number | null;
  ended_ms?: number | null;
  budget_trials?: number | null;
  gpu_hours?: number;
  id?: number | null;
  user?: string;
  project?: string;
}

/** A job to be queued: its specification as data or as YAML text. */
export interface Submission {
  spec?: JobSpec | null;
  yaml?: string | null;
  snapshot?: string | null;
  dry_run?: boolean;
}

/** The jobs that were made: several of an array, none of a dry run. */
export interface SubmitAnswer {
  jobs: JobView[];
  plan?: PlannedJob[] | null;
  notes?: string[];
}

/** A column as its first rows show it. */
export interface TableColumnView {
  name: string;
  kind: "date" | "number" | "text";
  example: string;
}

/** A table that a run can begin with. */
export interface TableLook {
  file: string;
  columns: TableColumnView[];
  rows: number | null;
  dataset?: string | null;
  upload?: string | null;
}

/** Metrics from TensorBoard event files in a folder. */
export interface TensorboardSource {
  kind: "tensorboard";
  folder: string;
}

/** The history of an elastic run, from its ledger and its views; empty for other runs. */
export interface TimelineView {
  elastic: boolean;
  items: Record<string, unknown>[];
}

/** One token, without its text. */
export interface TokenView {
  id: number;
  name: string;
  scopes: string[];
  created_ms: number;
  used_ms: number | null;
  expires_ms: number | null;
}

/** The caller's tokens. */
export interface TokensAnswer {
  tokens: TokenView[];
}

/** A training with its configuration and what it has shown so far; curves are those of its job. */
export interface TrainingDetail {
  job: JobView;
  dataset: string;
  dataset_name: string;
  version: number;
  task: string;
  network: string;
  model: string | null;
  score_name: string;
  score: number | null;
  config: Record<string, unknown>;
  examples: TrainingExample[];
  results: Record<string, unknown>;
}

/** A picture that shows what a model finds, or what it should. */
export interface TrainingExample {
  name: string;
  url: string;
}

/** A training at a glance: its job, its data and what came of it. */
export interface TrainingView {
  job: JobView;
  dataset: string;
  dataset_name: string;
  version: number;
  task: string;
  network: string;
  model: string | null;
  score_name: string;
  score: number | null;
}

/** Trainings, newest first. */
export interface TrainingsAnswer {
  trainings: TrainingView[];
}

/** A promotion by hand: a paused trial goes on to its next rung, or as far as `until` says. */
export interface TrialPromotion {
  until?: number | null;
}

/** One trial. */
export interface TrialView {
  number: number;
  state: string;
  params: Record<string, number | string | boolean | null>;
  values: Record<string, number | string | null>;
  step: number;
  until?: number | null;
  bracket?: number;
  starts?: number;
  given?: boolean;
  held?: boolean;
  source?: string;
  parent?: number | null;
  message?: string;
  begun_ms?: number | null;
  ended_ms?: number | null;
  run_s?: number;
  job_id?: number | null;
  curve?: ([number, number | string])[];
  curve_from?: number;
}

/** Trials by number; `events` is the `since` of the next question. */
export interface TrialsAnswer {
  trials: TrialView[];
  events: number;
}

/** Changes to a user; what is left out stays. Users may change their own password alone. */
export interface UserChanges {
  role?: "admin" | "member" | "viewer";
  password?: string | null;
  old_password?: string | null;
  disabled?: boolean;
  system_user?: string | null;
}

/** The weight of a user in the fair share, and the most that their jobs may hold at a time; null: no limit. */
export interface UserQuota {
  weight?: number;
  cpus?: number | null;
  memory_bytes?: number | null;
  gpus?: number | null;
}

/** One user. */
export interface UserView {
  id: number;
  name: string;
  role: "admin" | "member" | "viewer";
  disabled: boolean;
  has_password: boolean;
  created_ms: number;
  system_user?: string | null;
  quota?: UserQuota;
  usage?: number;
}

/** All users. */
export interface UsersAnswer {
  users: UserView[];
}

/** A field that differs; null where a job does not have it. */
export interface ValueDiff {
  path: string;
  before: string | null;
  after: string | null;
}

/** The figures of one version that is loaded. */
export interface VersionServing {
  version: number;
  figures: ServingView;
}

/** Outer rings of what a tool found. */
export interface VisionAssistAnswer {
  polygons: [number, number][][];
}

/** A tool that finds the outline of an object, and where to look. */
export interface VisionAssistBody {
  tool: "grabcut" | "model" | "wand";
  box?: [number, number, number, number] | null;
  point?: [number, number] | null;
  tolerance?: number;
}

/** A new data set of changed pictures: one for each step, and the pictures as they are. */
export interface VisionAugmentBody {
  name: string;
  steps: VisionAugmentStep[];
  keep?: boolean;
  seed?: number;
}

/** One way to change pictures, with its level. */
export interface VisionAugmentStep {
  kind: "blur" | "colour" | "crop" | "flip_left_right" | "flip_top_bottom" | "noise" | "rotate" | "sharpen";
  level?: number;
}

/** An action on many files: those that are named, or all that a filter lets through. */
export interface VisionChange {
  action: "accept" | "approve" | "categorise" | "copy" | "delete" | "move" | "reject" | "review";
  files?: string[];
  filter?: VisionFilesQuery | null;
  target?: string | null;
  category?: string | null;
  confidence?: number;
}

/** The files that an action changed. */
export interface VisionChangeAnswer {
  changed: number;
  left: number;
}

/** The name of a copy. */
export interface VisionCloneBody {
  name: string;
}

/** A data set at a glance. */
export interface VisionDataset {
  id: string;
  name: string;
  description: string;
  owner: string;
  mine: boolean;
  shares: string[];
  counts: DatasetCounts;
  labels: LabelView[];
  categories: LabelView[];
  cover: string | null;
  created_ms: number;
  updated_ms: number;
  newest_version: number;
}

/** Changes of a data set; what is not named stays. */
export interface VisionDatasetChanges {
  name?: string | null;
  description?: string | null;
  shares?: string[] | null;
  cover?: string | null;
}

/** All data sets of pictures that the caller may see. */
export interface VisionDatasets {
  datasets: VisionDataset[];
}

/** A picture, a film or a frame at a glance. */
export interface VisionFile {
  id: string;
  dataset: string;
  name: string;
  kind: "film" | "frame" | "picture";
  width: number;
  height: number;
  bytes: number;
  sha256: string;
  state: "auto" | "labelled" | "unlabelled";
  review: "" | "approved" | "changes" | "review";
  category: string | null;
  category_confidence: number | null;
  labels: Record<string, number>;
  confidence: number | null;
  revision: number;
  split: "test" | "train" | "validation";
  parent: string | null;
  time_s: number | null;
  duration_s: number | null;
  frames_per_s: number | null;
  frames: number;
  added_ms: number;
  updated_ms: number;
}

/** A file with its labels and all that is known of it. */
export interface VisionFileDetail {
  id: string;
  dataset: string;
  name: string;
  kind: "film" | "frame" | "picture";
  width: number;
  height: number;
  bytes: number;
  sha256: string;
  state: "auto" | "labelled" | "unlabelled";
  review: "" | "approved" | "changes" | "review";
  category: string | null;
  category_confidence: number | null;
  labels: Record<string, number>;
  confidence: number | null;
  revision: number;
  split: "test" | "train" | "validation";
  parent: string | null;
  time_s: number | null;
  duration_s: number | null;
  frames_per_s: number | null;
  frames: number;
  added_ms: number;
  updated_ms: number;
  shapes: ShapeView[];
  metadata: Record<string, string>;
  previous: string | null;
  next: string | null;
  updated_by: string;
}

/** One page of a data set's files. */
export interface VisionFiles {
  files: VisionFile[];
  total: number;
  next: string | null;
}

/** A page of files. */
export interface VisionFilesQuery {
  state?: "all" | "auto" | "labelled" | "review" | "unlabelled";
  label?: string | null;
  category?: string | null;
  kind?: "film" | "frame" | "picture" | null;
  parent?: string | null;
  query?: string;
  sort?: "-added" | "-confidence" | "-name" | "-updated" | "added" | "confidence" | "name" | "updated";
  after?: string | null;
  limit?: number;
}

/** Frames to capture of a film: at times, or every N seconds. */
export interface VisionFramesBody {
  times_s?: number[];
  every_s?: number | null;
}

/** The health of a data set. */
export interface VisionHealth {
  counts: DatasetCounts;
  labels: ClassHealth[];
  categories: ClassHealth[];
  splits: Record<string, number>;
  sizes: SizeBin[];
  issues: HealthIssue[];
}

/** An import of pictures at addresses, or of a data set that the service can read. */
export interface VisionImportBody {
  urls: string[];
  skip_duplicates?: boolean;
}

/** A label or a category in the wanted order. */
export interface VisionLabelEntry {
  name: string;
  colour?: string | null;
  was?: string | null;
}

/** The labels of a file, as a whole; `revision` is the one that they were made from. */
export interface VisionLabelsBody {
  revision: number;
  shapes?: ShapeView[];
  category?: string | null;
  category_confidence?: number | null;
  review?: "" | "approved" | "changes" | "review" | null;
}

/** All labels or categories of a data set in order; those that are left out are removed if no file has them. */
export interface VisionLabelsChange {
  labels?: VisionLabelEntry[] | null;
  categories?: VisionLabelEntry[] | null;
}

/** Keys and values that users give a file; an empty value removes a key. */
export interface VisionMetadataBody {
  metadata: Record<string, string>;
}

/** Background work with its progress. */
export interface VisionTask {
  id: string;
  dataset: string;
  kind: string;
  state: "done" | "failed" | "running" | "stopped" | "waiting";
  done: number;
  total: number;
  message: string;
  problems: string[];
  result: Record<string, unknown>;
  owner: string;
  created_ms: number;
  updated_ms: number;
}

/** Background work, newest first. */
export interface VisionTasks {
  tasks: VisionTask[];
}

/** A track whose boxes are wanted in the frames between those where it was drawn. */
export interface VisionTrackBody {
  track: string;
}

/** The file that came of an upload, or the task that imports it. */
export interface VisionUploadAnswer {
  file?: VisionFile | null;
  task?: VisionTask | null;
}

/** An immutable state of a data set. */
export interface VisionVersion {
  dataset: string;
  name: string;
  number: number;
  digest: string;
  note: string;
  pictures: number;
  shapes: number;
  splits: Record<string, number>;
  labels: string[];
  categories: string[];
  created_ms: number;
  user: string;
}

/** The versions of a data set, newest first. */
export interface VisionVersions {
  versions: VisionVersion[];
}

/** Changes to a webhook. */
export interface WebhookChanges {
  events?: ("advice" | "completed" | "failed" | "paused" | "retried" | "started" | "stopped")[];
  active?: boolean;
}

/** One webhook. */
export interface WebhookView {
  id: number;
  url: string;
  events: string[];
  project: string | null;
  active: boolean;
  created_ms: number;
}

/** The caller's webhooks, and the key that signs messages to addresses in the caller's specifications. */
export interface WebhooksAnswer {
  webhooks: WebhookView[];
  notify_key: string;
}
