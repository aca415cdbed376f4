"""Requests and answers about trainings of pictures, the models they make, projects and predictions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from weft.documents import Document
from weft.jobs.api.types.common import Id, Text
from weft.jobs.api.types.jobs import JobView

VisionTaskName = Literal["classification", "detection", "segmentation", "anomaly"]
PictureModelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
DeploymentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,49}$")]
ModelStatus = Literal["untested", "production", "rejected"]
Confidence = Annotated[float, Meta(ge=0, le=1)]
PictureProjectName = Annotated[str, Meta(min_length=1, max_length=100)]


class NewTraining(Document, frozen=True):
    """A training to begin: data set, and whatever is not to be chosen by itself."""

    dataset: Annotated[str, Meta(min_length=1, max_length=64)]  # id or name
    version: Annotated[int, Meta(ge=1)] | None = None  # none: the data set as it is now
    name: PictureModelName | None = None  # of the model; none: of the data set
    task: VisionTaskName | None = None  # none: what the labels allow
    model: Text | None = None  # the network: one of ours, or a name of IBM's
    config: dict[str, Any] = msgspec.field(default_factory=dict)  # as in the file of `weft vision train`
    workers: Annotated[int, Meta(ge=1, le=65_536)] | Annotated[str, Meta(max_length=20)] = 1  # 2:8 is elastic
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0  # of a worker
    cpus: Annotated[float, Meta(ge=0, le=65_536)] = 1.0
    memory: Text | None = None
    lms: Text | None = None  # memory of the accelerator that it may use
    priority: Annotated[int, Meta(ge=0, le=100)] = 50
    project: Id | None = None  # that its model belongs to


class CustomTrainingQuery(Document, frozen=True):
    """A training by a zip with train.py and deploy.py, which is the body of the request."""

    dataset: Annotated[str, Meta(min_length=1, max_length=64)]  # id or name
    version: Annotated[int, Meta(ge=1)] | None = None  # none: the data set as it is now
    name: PictureModelName | None = None  # of the model; none: of the data set
    params: Annotated[str, Meta(max_length=20_000)] = "{}"  # JSON that onPreprocessing is given


class TrainingExample(msgspec.Struct, frozen=True):
    """A picture that shows what a model finds, or what it should."""

    name: str
    url: str


class TrainingView(msgspec.Struct, frozen=True, kw_only=True):
    """A training at a glance: its job, its data and what came of it."""

    job: JobView
    dataset: str  # id
    dataset_name: str
    version: int
    task: str
    network: str
    model: str | None  # NAME@VERSION, once it has completed
    score_name: str
    score: float | None


class TrainingsAnswer(msgspec.Struct, frozen=True):
    """Trainings, newest first."""

    trainings: tuple[TrainingView, ...]


class TrainingDetail(TrainingView, frozen=True, kw_only=True):
    """A training with its configuration and what it has shown so far; curves are those of its job."""

    config: dict[str, Any]
    examples: tuple[TrainingExample, ...]
    results: dict[str, Any]  # once it has completed


class PictureModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a trained model at a glance."""

    model: str  # name
    version: int
    reference: str  # NAME@VERSION
    job: int | None
    task: str
    network: str
    dataset: str
    dataset_name: str
    dataset_version: int
    score_name: str
    score: float | None
    status: ModelStatus
    project: int | None
    user: str
    mine: bool
    deployments: tuple[str, ...]
    created_ms: int
    changed_ms: int


class PictureModelsAnswer(msgspec.Struct, frozen=True):
    """Trained models, newest first."""

    models: tuple[PictureModelView, ...]


class PictureModelDetail(PictureModelView, frozen=True, kw_only=True):
    """A trained model with metrics, confusion, curves and its worst mistakes."""

    results: dict[str, Any]
    examples: tuple[TrainingExample, ...]
    classes: tuple[str, ...]


class PictureModelChanges(Document, frozen=True):
    """Changes to a trained model; what is left out stays."""

    status: ModelStatus | None = None
    project: Id | UnsetType | None = UNSET  # null: none


class PictureModelsQuery(Document, frozen=True):
    """Trained models of one data set, one task or one project."""

    dataset: Text | None = None
    task: Text | None = None
    project: Id | None = None
    status: ModelStatus | None = None


class PictureDeployBody(Document, frozen=True):
    """The name under which a trained model is served; none: its own."""

    name: DeploymentName | None = None


class PictureProjectView(msgspec.Struct, frozen=True, kw_only=True):
    """A project."""

    id: int
    name: str
    description: str
    enforce: bool  # only production models are deployed
    auto_deploy: bool  # the newest model is served
    datasets: tuple[str, ...]
    models: int
    user: str
    mine: bool
    created_ms: int
    changed_ms: int


class PictureProjectsAnswer(msgspec.Struct, frozen=True):
    """Projects by name."""

    projects: tuple[PictureProjectView, ...]


class NewPictureProject(Document, frozen=True):
    """A project to make."""

    name: PictureProjectName
    description: Annotated[str, Meta(max_length=10_000)] = ""
    enforce: bool = False
    auto_deploy: bool = False
    datasets: Annotated[tuple[Text, ...], Meta(max_length=1000)] = ()


class PictureProjectChanges(Document, frozen=True):
    """Changes to a project; what is left out stays."""

    name: PictureProjectName | None = None
    description: Annotated[str, Meta(max_length=10_000)] | None = None
    enforce: bool | None = None
    auto_deploy: bool | None = None
    datasets: Annotated[tuple[Text, ...], Meta(max_length=1000)] | None = None


class PredictQuery(Document, frozen=True):
    """The least confidence of an answer, the number of classes that are told, and the class of a heat map."""

    confidence: Confidence = 0.25
    top: Annotated[int, Meta(ge=1, le=1000)] = 5
    collect: Annotated[str, Meta(max_length=64)] = ""  # a data set that takes pictures the model is unsure of
    below: Confidence = 0.6  # the confidence under which it is
    heat: Annotated[str, Meta(max_length=200)] = ""  # true: of the most probable class; or a label


class PredictedClass(msgspec.Struct, frozen=True):
    """A class that a picture may be of."""

    label: str
    confidence: float


class PredictedBox(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object that was found, in pixels of the upright picture."""

    label: str
    confidence: float
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    polygons: tuple[tuple[tuple[float, float], ...], ...] = ()


class PredictAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of a served model to a picture."""

    classified: tuple[PredictedClass, ...] | None = None
    detections: tuple[PredictedBox, ...] | None = None
    heatmap: str | None = (
        None  # PNG as a data URL, over the whole picture, clear where the class was not seen
    )
    outputs: Any = None  # of models of another kind
    collected: str | None = None  # id of the file, where the picture was taken into a data set


class AutolabelBody(Document, frozen=True):
    """An automatic labelling to begin."""

    model: Text  # NAME or NAME@VERSION of a trained model
    confidence: Confidence = 0.5
    files: Annotated[
        tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=100_000)
    ] = ()  # none: unlabelled
    workers: Annotated[int, Meta(ge=1, le=1000)] = 1
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    cpus: Annotated[float, Meta(ge=0, le=65_536)] = 1.0


class AutolabelAnswer(msgspec.Struct, frozen=True):
    """The job that labels, and the number of pictures."""

    job: JobView
    pictures: int
