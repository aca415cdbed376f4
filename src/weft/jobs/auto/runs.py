"""Runs of `weft.auto` as jobs: what is asked for becomes a specification and a document for the job's worker."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from weft.jobs.spec.model import ExportSpec, JobSpec, QueueSpec, ResourceSpec, RetrySpec
from weft.jobs.store.jobs import StoredJob

TAG, RUN = "auto", "run"  # a tag of the jobs, with its value
DOCUMENT = "request.json"  # in the code of such a job
RUN_FOLDER = (
    "auto"  # among the checkpoints, which all attempts share: the next one goes on where the last was killed
)
MODEL = "model.onnx"  # among the outputs
DATA = "table"  # the name of a registered data set among the job's data
WORKER = "weft.jobs.auto.worker"
MOST_RETRIES = 3  # after a lost host: finished trials are not run again
LONGEST_TAG = 200


@dataclass(frozen=True, kw_only=True)
class AutoRequest:
    """A run as it is requested: a table that was uploaded, or a file of a registered data set."""

    file: str  # the name of the upload, or a path in the data set; "": its only table
    config: Mapping[str, Any]  # of weft.auto.AutoConfig
    name: str  # of the model
    dataset: str = ""  # dataset:NAME@VERSION; "": an upload, which is a file of the job's code
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    priority: int = 50

    @property
    def table(self) -> str:
        """The table as people know it."""
        parts = (self.dataset.removeprefix("dataset:"), self.file)
        return "/".join(part for part in parts if part)


def run_document(asked: AutoRequest) -> dict[str, Any]:
    """Return what the worker of a run reads."""
    return {"file": asked.file, "uploaded": not asked.dataset, "config": dict(asked.config)}


def run_spec(asked: AutoRequest) -> JobSpec:
    """Return the job of a run; its graph goes into the model store when it completes."""
    tags = {TAG: RUN, "table": asked.table, "target": str(asked.config["target"]), "model": asked.name}
    return JobSpec(
        run=("-m", WORKER, DOCUMENT),
        name=asked.name,
        project="tables",
        resources=asked.resources,
        data={DATA: asked.dataset} if asked.dataset else {},
        tags={name: text[:LONGEST_TAG] for name, text in tags.items()},
        queue=QueueSpec(priority=asked.priority),
        retry=RetrySpec(max=MOST_RETRIES, on=("host-lost",)),
        export=ExportSpec(model=asked.name, path=MODEL),
    )


def is_auto_run(job: StoredJob) -> bool:
    return job.tags.get(TAG) == RUN


def model_name(file: str, target: str) -> str:
    """Return a name for the model of a table and a target, in letters that the model store takes."""
    words = f"{PurePosixPath(file).stem}-{target}" if file else target
    words = "".join(one for one in unicodedata.normalize("NFKD", words) if not unicodedata.combining(one))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-._")[:100] or "table"
