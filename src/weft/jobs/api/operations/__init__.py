"""The table of all operations under /api/v1: path, request, answer, and who may ask. It is data: routes and OpenAPI
are made from it, and it loads neither the server nor the database.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.jobs.api.operations.auto import AUTO
from weft.jobs.api.operations.model import PREFIX, Access, ApiOperation, Method
from weft.jobs.api.operations.model import delete_operation as _delete
from weft.jobs.api.operations.model import get_operation as _get
from weft.jobs.api.operations.model import patch_operation as _patch
from weft.jobs.api.operations.model import post_operation as _post
from weft.jobs.api.operations.trainings import TRAININGS
from weft.jobs.api.operations.vision import VISION_DATA
from weft.jobs.api.types import accounts, cluster, data, files, jobs, reports, studies
from weft.jobs.code.snapshot import CodeSnapshot

__all__ = ["OPERATIONS", "PREFIX", "Access", "ApiOperation", "Method", "types_of"]

_BYTES = "application/octet-stream"
_JOB = "/jobs/{job:int}"
_ACTIONS = {
    "stop": "Stop a job.",
    "pause": "Pause a running job at its last checkpoint.",
    "resume": "Queue a paused job again.",
    "retry": "Run a job that has ended again.",
    "hold": "Keep a waiting job from starting.",
    "release": "Let a held job start.",
}

JOBS = (
    _get("list_jobs", "/jobs", "Jobs that a filter lets through.", jobs.JobsAnswer, query=jobs.JobsQuery),
    _post("submit_job", "/jobs", "Queue a job, or an array of them.", jobs.SubmitAnswer, jobs.Submission, once=True),
    _get("show_job", _JOB, "One job with all that belongs to it.", jobs.JobDetail, job_scope=True),
    _patch("change_job", _JOB, "Change priority, tags, name, pin or project.", jobs.JobView, jobs.JobChanges,
           audit="change"),
    _delete("remove_job", _JOB, "Remove a job that has ended, with its files."),
    *(_post(f"{verb}_job", f"{_JOB}/{verb}", text, jobs.JobView, status=202) for verb, text in _ACTIONS.items()),
    _post("scale_job", f"{_JOB}/scale", "Give an elastic job another number of workers.", jobs.JobView,
          jobs.ScaleBody, status=202),
    _post("clone_job", f"{_JOB}/clone", "Submit a job again, with changes.", jobs.SubmitAnswer, jobs.CloneBody,
          once=True),
    _get("list_projects", "/projects", "Projects and the number of their jobs.", jobs.ProjectsAnswer),
    _get("list_queues", "/queues", "Queues, and what waits in them.", jobs.QueuesAnswer),
)  # fmt: skip
REPORTS = (
    _get("show_logs", f"{_JOB}/logs", "Log lines.", reports.LogsAnswer, query=reports.LogsQuery, job_scope=True),
    _get("raw_log", f"{_JOB}/logs/raw", "The log of one rank as it is.", bytes, query=reports.RawLogQuery,
         media_type="text/plain", job_scope=True),
    _get("list_metrics", f"{_JOB}/metrics", "All metrics at a glance.", reports.MetricsAnswer, job_scope=True),
    _get("show_curves", f"{_JOB}/curves", "Metrics for a chart.", reports.CurvesAnswer,
         query=reports.CurvesQuery, job_scope=True),
    _post("add_points", f"{_JOB}/points", "Report points of metrics.", reports.PointsAnswer, reports.PointsBody,
          status=200, job_scope=True),
    _get("list_events", f"{_JOB}/events", "Events of a job.", reports.EventsAnswer, query=reports.EventsQuery,
         job_scope=True),
    _get("list_findings", f"{_JOB}/findings", "What the rules of advice found.", reports.FindingsAnswer),
    _get("show_timeline", f"{_JOB}/timeline", "Views and recoveries of an elastic run.", reports.TimelineView,
         query=reports.AttemptQuery),
    _get("show_ledger", f"{_JOB}/ledger", "The verdict on an elastic run's samples.", reports.LedgerView,
         query=reports.AttemptQuery),
    _get("list_ranks", f"{_JOB}/ranks", "Workers, for the heat strip.", reports.RanksAnswer,
         query=reports.AttemptQuery),
)  # fmt: skip
FILES = (
    _post("add_snapshot", "/snapshots", "Tell of a snapshot of code; answer what must be sent.",
          files.SnapshotAnswer, CodeSnapshot),
    ApiOperation(name="add_blob", method="put", path="/blobs/{digest}", summary="Send the content of a file.",
              access="write", body=bytes, body_media_type=_BYTES, status=204),
    _get("list_files", f"{_JOB}/files", "Files of a job.", files.FilesAnswer, query=files.FilesQuery),
    _get("read_file", f"{_JOB}/files/{{path:path}}", "One file of a job.", bytes, query=files.FileQuery,
         media_type=_BYTES),
    _get("list_code", f"{_JOB}/code", "The code of a job.", files.CodeAnswer),
    _get("read_code", f"{_JOB}/code/{{path:path}}", "One file of a job's code.", bytes, media_type="text/plain"),
    _get("diff_jobs", f"{_JOB}/diff", "Differences between two jobs.", files.DiffAnswer, query=files.DiffQuery),
)  # fmt: skip
CLUSTER = (
    _get("show_overview", "/overview", "The state of the service.", cluster.OverviewAnswer),
    _get("list_hosts", "/hosts", "All hosts.", cluster.HostsAnswer),
    _post("add_host", "/hosts", "Let a host run jobs.", cluster.HostView, cluster.NewHost, access="admin",
          audit="add host"),
    _get("show_host", "/hosts/{host}", "One host with its topology.", cluster.HostDetail),
    _patch("change_host", "/hosts/{host}", "Change labels or rack.", cluster.HostView, cluster.HostChanges,
           access="admin", audit="change host"),
    _delete("remove_host", "/hosts/{host}", "Forget a host that runs nothing.", access="admin",
            audit="remove host"),
    _post("drain_host", "/hosts/{host}/drain", "Place no new workers on a host.", cluster.HostView,
          access="admin", status=202, audit="drain host"),
    _post("undrain_host", "/hosts/{host}/undrain", "Place workers on a host again.", cluster.HostView,
          access="admin", status=202, audit="undrain host"),
    _post("apply_retention", "/retention", "Remove jobs that are kept no longer, or tell which these are.",
          cluster.RetentionAnswer, cluster.RetentionBody, access="admin", status=200, audit="apply retention"),
    _get("show_health", "/health", "Whether the service works.", cluster.HealthAnswer, access="open"),
)  # fmt: skip
ACCOUNTS = (
    _post("log_in", "/session", "Log in by name and password, or by a link.", accounts.SessionAnswer,
          accounts.Login, access="open"),
    _get("show_session", "/session", "Who is logged in.", accounts.SessionAnswer),
    _delete("log_out", "/session", "Log out.", access="read", audit="log out"),
    _get("list_users", "/users", "All users.", accounts.UsersAnswer, access="admin"),
    _post("add_user", "/users", "Make a user.", accounts.UserView, accounts.NewUser, access="admin",
          audit="add user"),
    _patch("change_user", "/users/{user:int}", "Change a user, or one's own password.", accounts.UserView,
           accounts.UserChanges, access="read", audit="change user"),
    _delete("remove_user", "/users/{user:int}", "Remove a user who has no jobs.", access="admin",
            audit="remove user"),
    ApiOperation(name="set_quota", method="put", path="/users/{user:int}/quota", access="admin", audit="set quota",
                 summary="Set a user's weight in the fair share, and the most that their jobs may hold at a time.",
                 body=accounts.UserQuota, answer=accounts.UserView),
    _post("link_user", "/users/{user:int}/link", "Make a link that logs a user in once.", accounts.LinkAnswer,
          access="admin", audit="make link"),
    _get("list_tokens", "/tokens", "The caller's tokens.", accounts.TokensAnswer),
    _post("add_token", "/tokens", "Make a token.", accounts.NewTokenAnswer, accounts.NewToken, access="read",
          audit="add token"),
    _delete("remove_token", "/tokens/{token:int}", "Revoke a token.", access="read", audit="remove token"),
    _get("list_secrets", "/secrets", "Names of the caller's secrets.", accounts.SecretsAnswer),
    _post("add_secret", "/secrets", "Keep a secret, in place of one of the same name.", accounts.SecretView,
          accounts.NewSecret, audit="add secret"),
    _delete("remove_secret", "/secrets/{name}", "Forget a secret.", audit="remove secret"),
    _get("list_webhooks", "/webhooks", "The caller's webhooks.", accounts.WebhooksAnswer),
    _post("add_webhook", "/webhooks", "Tell an address of events.", accounts.NewWebhookAnswer,
          accounts.NewWebhook, audit="add webhook"),
    _patch("change_webhook", "/webhooks/{webhook:int}", "Change a webhook.", accounts.WebhookView,
           accounts.WebhookChanges, audit="change webhook"),
    _delete("remove_webhook", "/webhooks/{webhook:int}", "Remove a webhook.", audit="remove webhook"),
    _post("test_webhook", "/webhooks/{webhook:int}/test", "Send a message that only says hello.",
          accounts.DeliveryView, status=202, audit="test webhook"),
    _get("list_deliveries", "/webhooks/{webhook:int}/deliveries", "The newest messages to a webhook.",
         accounts.DeliveriesAnswer),
    _get("list_audit", "/audit", "Who did what.", accounts.AuditAnswer, access="admin",
         query=accounts.AuditQuery),
    _get("stream", "/stream", "Server-sent events; Last-Event-ID goes on after an interruption.", str,
         query=accounts.StreamQuery, media_type="text/event-stream", job_scope=True),
)  # fmt: skip
_VERSION = "/versions/{version:int}"
DATA = (
    _get("list_datasets", "/datasets", "All data sets.", data.DatasetsAnswer),
    _post("add_dataset", "/datasets", "Register a version of a data set.", data.DatasetView, data.NewDataset),
    _get("show_dataset", "/datasets/{dataset}", "One data set.", data.DatasetView),
    _delete("remove_dataset", "/datasets/{dataset}", "Forget a data set; the data stays."),
    _get("show_dataset_version", "/datasets/{dataset}" + _VERSION, "One version: files, jobs, models.",
         data.DatasetVersionDetail),
    _delete("remove_dataset_version", "/datasets/{dataset}" + _VERSION, "Forget a version."),
    _get("list_models", "/models", "All models of the store.", data.ModelsAnswer),
    _post("add_model", "/models", "Put a file of a job into the store.", data.ModelView, data.NewModel),
    _get("show_model", "/models/{model}", "One model.", data.ModelView),
    _get("show_model_version", "/models/{model}" + _VERSION, "One version: card and lineage.",
         data.ModelVersionDetail),
    _delete("remove_model_version", "/models/{model}" + _VERSION, "Remove a version without an alias."),
    _post("add_alias", "/models/{model}/aliases", "Let an alias mean a version.", data.ModelView, data.NewAlias,
          audit="tag model"),
    _delete("remove_alias", "/models/{model}/aliases/{alias}", "Forget an alias.", audit="untag model"),
    _get("list_deployments", "/deployments", "All deployments.", data.DeploymentsAnswer),
    _post("add_deployment", "/deployments", "Serve a model, or another version of it.", data.DeploymentView,
          data.NewDeployment),
    _get("show_deployment", "/deployments/{deployment}", "One deployment with load and latency.",
         data.DeploymentDetail),
    _delete("remove_deployment", "/deployments/{deployment}", "Stop serving, and forget it."),
    _post("stop_deployment", "/deployments/{deployment}/stop", "Stop serving.", data.DeploymentView, status=200),
    _post("roll_back_deployment", "/deployments/{deployment}/rollback", "Serve the version before.",
          data.DeploymentView, status=200),
    _post("set_canary", "/deployments/{deployment}/canary", "Let another version answer a share.",
          data.DeploymentView, data.NewCanary, status=200),
    _post("infer", "/deployments/{deployment}/infer", "Try a served model.", data.InferenceAnswer,
          data.InferenceRequest, access="read", status=200),
)  # fmt: skip
_STUDY = "/studies/{study:int}"
STUDIES = (
    _get("list_studies", "/studies", "Searches, the newest first.", studies.StudiesAnswer),
    _post("begin_study", "/studies", "Begin a search whose trials are jobs.", studies.StudyAnswer, studies.NewStudy,
          once=True),
    _get("list_algorithms", "/algorithms", "Names of searches, schedules and optimizers.", studies.AlgorithmsAnswer),
    _get("show_study", _STUDY, "One search with its settings, insights and importances.", studies.StudyDetail),
    _patch("change_study", _STUDY, "Change budget, parallelism, given points or what may act.", studies.StudyAnswer,
           studies.StudyChanges, status=202),
    _delete("remove_study", _STUDY, "Remove a search that is over; its jobs stay."),
    _get("list_trials", f"{_STUDY}/trials", "Trials, all or those that changed.", studies.TrialsAnswer,
         query=studies.TrialsQuery),
    _post("add_trial", f"{_STUDY}/trials", "Add a trial by hand.", studies.StudyAnswer, studies.AddedTrial,
          status=202),
    _post("promote_trial", f"{_STUDY}/trials/{{trial:int}}/promote", "Let a paused trial go on before all others.",
          studies.StudyAnswer, studies.TrialPromotion, status=202),
    _post("pause_trial", f"{_STUDY}/trials/{{trial:int}}/pause", "Pause a trial until it is promoted.",
          studies.StudyAnswer, status=202),
    _post("stop_trial", f"{_STUDY}/trials/{{trial:int}}/stop", "End a trial for good.", studies.StudyAnswer,
          status=202),
    _post("keep_study_model", f"{_STUDY}/model", "Put the model of the best trial into the store.", data.ModelView,
          studies.StudyModel),
    _get("list_study_events", f"{_STUDY}/events", "The events that the state is made of.",
         studies.StudyEventsAnswer, query=studies.StudyEventsQuery),
    _get("list_interactions", f"{_STUDY}/interactions", "How far pairs of parameters act together.",
         studies.InteractionsAnswer),
    _get("export_study", f"{_STUDY}/export", "All trials as CSV.", bytes, media_type="text/csv"),
    _post("stop_study", f"{_STUDY}/stop", "Stop a search with its trials.", studies.StudyAnswer, status=202),
    _post("pause_study", f"{_STUDY}/pause", "Pause a search: its trials end at their checkpoints.",
          studies.StudyAnswer, status=202),
    _post("resume_study", f"{_STUDY}/resume", "Go on with a search.", studies.StudyAnswer, status=202),
    _post("clone_study", f"{_STUDY}/clone", "Begin a search with the settings of another, and changes.",
          studies.StudyAnswer, studies.StudyCopy, once=True),
)  # fmt: skip
OPERATIONS: tuple[ApiOperation, ...] = (
    *JOBS,
    *REPORTS,
    *FILES,
    *CLUSTER,
    *ACCOUNTS,
    *DATA,
    *STUDIES,
    *VISION_DATA,
    *TRAININGS,
    *AUTO,
)


def types_of(operations: tuple[ApiOperation, ...] = OPERATIONS) -> Iterator[Any]:
    """Yield the types of all requests and answers, each once."""
    found = [kind for one in operations for kind in (one.answer, one.body) if kind not in (None, bytes, str)]
    yield from dict.fromkeys(found)
