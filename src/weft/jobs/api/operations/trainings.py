"""Operations on trainings of pictures, trained models, projects, predictions and automatic labels, under /vision."""

from __future__ import annotations

from weft.jobs.api.operations.model import (
    ApiOperation,
    delete_operation,
    get_operation,
    patch_operation,
    post_operation,
)
from weft.jobs.api.types import data, inferences, trainings
from weft.jobs.api.types.jobs import JobView

_TRAINING = "/vision/trainings/{job:int}"
_MODEL = "/vision/models/{model}"
_INFERENCE = "/vision/inferences/{job:int}"
_PROJECT = "/vision/projects/{project:int}"
_BYTES = "application/octet-stream"

TRAININGS: tuple[ApiOperation, ...] = (
    get_operation("list_trainings", "/vision/trainings", "Trainings of pictures, newest first.",
                  trainings.TrainingsAnswer),
    post_operation("begin_training", "/vision/trainings", "Train a model on a data set of pictures.",
                   trainings.TrainingView, trainings.NewTraining, once=True),
    post_operation("begin_custom_training", "/vision/trainings/custom", "Train by a zip with train.py and deploy.py.",
                   trainings.TrainingView, bytes, query=trainings.CustomTrainingQuery, body_media_type=_BYTES,
                   audit="custom training"),
    get_operation("show_training", _TRAINING, "One training with its results.", trainings.TrainingDetail),
    post_operation("finish_training", f"{_TRAINING}/finish", "End a training now, and keep its best state.",
                   JobView, status=202, audit="finish training"),
    get_operation("read_training_example", f"{_TRAINING}/examples/{{name}}", "A picture with what the model finds.",
                  bytes, media_type="image/*"),
    get_operation("list_trained_models", "/vision/models", "Trained models, newest first.",
                  trainings.PictureModelsAnswer, query=trainings.PictureModelsQuery),
    get_operation("show_trained_model", _MODEL, "One trained model with its results.", trainings.PictureModelDetail),
    patch_operation("change_trained_model", _MODEL, "Say what a model is good for; put it into a project.",
                    trainings.PictureModelView, trainings.PictureModelChanges, audit="change model"),
    delete_operation("remove_trained_model", _MODEL, "Remove a model that nothing serves.", audit="remove model"),
    get_operation("read_model_example", f"{_MODEL}/examples/{{name}}", "A picture with what the model finds.",
                  bytes, media_type="image/*"),
    get_operation("read_model_export", f"{_MODEL}/onnx", "The model as an ONNX file.", bytes, media_type=_BYTES),
    post_operation("deploy_trained_model", f"{_MODEL}/deploy", "Serve a trained model.", data.DeploymentView,
                   trainings.PictureDeployBody),
    get_operation("list_picture_projects", "/vision/projects", "Projects of data sets and models.",
                  trainings.PictureProjectsAnswer),
    post_operation("add_picture_project", "/vision/projects", "Make a project.", trainings.PictureProjectView,
                   trainings.NewPictureProject, audit="add project"),
    get_operation("show_picture_project", _PROJECT, "One project.", trainings.PictureProjectView),
    patch_operation("change_picture_project", _PROJECT, "Change a project.", trainings.PictureProjectView,
                    trainings.PictureProjectChanges, audit="change project"),
    delete_operation("remove_picture_project", _PROJECT, "Forget a project; its models stay.",
                     audit="remove project"),
    post_operation("predict_picture", "/vision/deployments/{deployment}/predict", "Show a picture to a served model.",
                   trainings.PredictAnswer, bytes, query=trainings.PredictQuery, body_media_type=_BYTES,
                   access="read", status=200),
    post_operation("label_pictures", "/vision/datasets/{dataset}/autolabel", "Let a model label pictures, as a job.",
                   trainings.AutolabelAnswer, trainings.AutolabelBody, status=202, audit="label pictures"),
    post_operation("begin_film_inference", "/vision/files/{file}/inferences", "Let a model look at a film, as a job.",
                   inferences.FilmInference, inferences.FilmInferenceBody, status=202, audit="film inference"),
    get_operation("list_film_inferences", "/vision/inferences", "Inferences on films, newest first.",
                  inferences.FilmInferences),
    get_operation("show_film_inference", _INFERENCE, "One inference with what was found in each frame.",
                  inferences.FilmInferenceDetail),
    get_operation("read_captioned_film", f"{_INFERENCE}/film", "The film with what was found drawn in, or a range.",
                  bytes, media_type="video/mp4"),
)  # fmt: skip
