"""Our data sets, files, trainings, models and deployments in the words of these clients. Pure: views in, JSON out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.jobs.data.deployment_records import Deployment
from weft.jobs.doors.powerai.identities import library_id, named_id, numbered_id
from weft.jobs.store.jobs import StoredJob
from weft.jobs.vision.models import PictureModel
from weft.jobs.vision.projects import PictureProject
from weft.vision.views import ShapeView, VisionDataset, VisionFile, VisionFileDetail, VisionTask

USAGES = {
    "classification": "cic",
    "detection": "cod",
    "segmentation": "cod",
    "anomaly": "anomaly",
    "action": "act",
}
_STATES = {
    "held": "waiting",
    "queued": "waiting",
    "staging": "preparing",
    "starting": "preparing",
    "running": "training",
    "storing": "training",
    "paused": "paused",
    "completed": "trained",
    "failed": "failed",
    "stopped": "aborted",
}
_WEB_STATES = {"running": "ready", "starting": "starting", "failed": "failed", "stopped": "stopped"}
_TASK_STATES = {
    "waiting": "waiting",
    "running": "working",
    "done": "success",
    "failed": "failed",
    "stopped": "aborted",
}
_TASK_KINDS = {
    "import": "import_dataset",
    "frames": "auto_capture",
    "autolabel": "auto_label",
    "augment": "augment_dataset",
    "clone": "clone_dataset",
}


def dataset_json(found: VisionDataset, project: str | None = None) -> dict[str, Any]:
    """Return a data set."""
    return {
        "_id": library_id(found.id),
        "name": found.name,
        "description": found.description,
        "usage": "generic",
        "type": 0,
        "owner": found.owner,
        "locked": 0,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
        "project_group_id": project,
        "total_file_count": found.counts.pictures + found.counts.films,
        "labeled_file_count": found.counts.labelled,
        "unlabeled_file_count": found.counts.unlabelled,
    }


def file_json(found: VisionFile, owner: str) -> dict[str, Any]:
    """Return a picture or a film; its owner is that of its data set."""
    home = library_id(found.dataset)
    kind = "video" if found.kind == "film" else "image"
    name = f"{library_id(found.id)}.{found.name.rpartition('.')[2] or 'jpg'}"
    tags = [
        {"tag_id": named_id("tag", found.dataset, label), "tag_name": label, "tag_count": count}
        for label, count in found.labels.items()
    ]
    category = found.category
    answer: dict[str, Any] = {
        "_id": library_id(found.id),
        "dataset_id": home,
        "owner": owner,
        "file_type": kind,
        "file_name": name,
        "original_file_name": found.name,
        "size": found.bytes,
        "meta_data": {"width": found.width, "height": found.height},
        "upload_type": "capture" if found.kind == "frame" else "file_upload",
        "label_type": {"labelled": "manual", "auto": "auto"}.get(found.state, "unlabeled"),
        "generate_type": "auto" if found.state == "auto" else "manual",
        "tag_list": tags,
        "category_id": named_id("category", found.dataset, category)
        if category is not None
        else "uncategorized",
        "category_name": category or "",
        "parent_id": library_id(found.parent) if found.parent is not None else None,
        "created_at": found.added_ms,
        "updated_at": found.updated_ms,
        "thumbnail_path": f"/uploads/{owner or '-'}/datasets/{home}/thumbnails/{name}",
    }
    if kind == "video":
        answer |= {"fps": found.frames_per_s, "duration": found.duration_s}
    return answer


def label_json(file: VisionFileDetail, shape: ShapeView, place: int) -> dict[str, Any]:
    """Return one labelled object; one without an id of its own is known by its place."""
    xmin, ymin, xmax, ymax = shape.box
    return {
        "_id": library_id(shape.id) if shape.id else named_id("label", file.id, place),
        "dataset_id": library_id(file.dataset),
        "file_id": library_id(file.id),
        "tag_id": named_id("tag", file.dataset, shape.label),
        "name": shape.label,
        "generate_type": "auto" if shape.confidence is not None else "manual",
        "bndbox": {"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax},
        "segment_polygons": [[[x, y] for x, y in ring] for ring in shape.polygons],
        "confidence": shape.confidence if shape.confidence is not None else 1.0,
        "model_id": shape.model,
    }


def class_json(found: VisionDataset, kind: str, name: str, pictures: int) -> dict[str, Any]:
    """Return a category, or a tag of objects."""
    return {
        "_id": named_id(kind, found.id, name),
        "dataset_id": library_id(found.id),
        "name": name,
        f"total_{'file' if kind == 'category' else 'tag'}_count": pictures,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
    }


def training_json(
    job: StoredJob,
    kept: Mapping[str, Any],
    model: PictureModel | None,
    points: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return a training; `points` are its newest metrics."""
    number, group = numbered_id("dltask", job.id), job.tags.get("vision_project", "")
    return {
        "_id": number,
        "task_id": number,
        "name": job.name,
        "dataset_id": library_id(job.tags.get("dataset", "")),
        "dataset_name": job.tags.get("dataset_name", ""),
        "status": _STATES.get(job.state, job.state),
        "status_msg": job.message or "",
        "usage": kept.get("usage") or USAGES.get(job.tags.get("task", ""), "cic"),
        "nn_arch": kept.get("nn_arch") or job.tags.get("network", ""),
        "strategy": kept.get("strategy", {}),
        "method": "FineTuning",
        "owner": job.user_name,
        "created_at": job.created_ms,
        "updated_at": job.ended_ms or job.started_ms or job.created_ms,
        "percent_complete": round(100 * (job.progress or 0.0)),
        "project_group_id": numbered_id("project", int(group)) if group.isdecimal() else None,
        "trained_model_id": model_id(model) if model is not None else None,
        "status_data": list(points),
    }


def model_id(found: PictureModel) -> str:
    return named_id("model", found.reference)


def model_json(found: PictureModel, results: Mapping[str, Any], deployed: Sequence[str]) -> dict[str, Any]:
    """Return a trained model."""
    classes = [str(one) for one in results.get("classes", ())]
    return {
        "_id": model_id(found),
        "name": found.model,
        "version": found.version,
        "usage": USAGES.get(found.task, "cic"),
        "nn_arch": found.network,
        "owner": found.user_name,
        "accuracy": f"{found.score:g}" if found.score is not None else "",
        "categories": [{"_id": named_id("class", name), "name": name} for name in classes],
        "dataset_id": library_id(found.dataset),
        "dataset_name": found.dataset_name,
        "dataset_version": found.dataset_version,
        "dltask_id": numbered_id("dltask", found.job_id) if found.job_id is not None else None,
        "eval_data": results.get("metrics", {}),
        "production_status": found.status,
        "project_group_id": numbered_id("project", found.project_id)
        if found.project_id is not None
        else None,
        "deployed": len(deployed),
        "assets": ["onnx"],
        "created_at": found.created_ms,
        "updated_at": found.changed_ms,
    }


def deployment_json(found: Deployment, model: PictureModel | None, url: str) -> dict[str, Any]:
    """Return a deployed model."""
    number = numbered_id("webapi", found.id)
    return {
        "_id": number,
        "name": found.name,
        "status": _WEB_STATES.get(found.state, found.state),
        "status_msg": found.message or "",
        "usage": USAGES.get(model.task, "cic") if model is not None else "",
        "nn_arch": model.network if model is not None else "",
        "trained_model_id": model_id(model) if model is not None else None,
        "dataset_id": library_id(model.dataset) if model is not None else None,
        "accel_type": "CPU",
        "replicas": 1,
        "owner": found.user_name,
        "webapi_url": f"{url}/api/dlapis/{number}",
        "created_at": found.created_ms,
        "updated_at": found.changed_ms,
    }


def project_json(found: PictureProject) -> dict[str, Any]:
    """Return a project."""
    number = numbered_id("project", found.id)
    return {
        "_id": number,
        "project_group_id": number,
        "name": found.name,
        "description": found.description,
        "owner": found.user_name,
        "enforce_pwf": found.enforce,
        "auto_deploy": found.auto_deploy,
        "created_at": found.created_ms,
        "updated_at": found.changed_ms,
    }


def task_json(found: VisionTask) -> dict[str, Any]:
    """Return background work on a data set."""
    return {
        "_id": library_id(found.id),
        "dataset_id": library_id(found.dataset),
        "status": _TASK_STATES.get(found.state, found.state),
        "event_type": _TASK_KINDS.get(found.kind, found.kind),
        "percent_complete": round(100 * found.done / found.total) if found.total else 0,
        "total_item_count": found.total,
        "completed_items": found.done,
        "message": found.message,
        "problems": list(found.problems),
        "owner": found.owner,
        "created_at": found.created_ms,
        "updated_at": found.updated_ms,
    }


def job_task_json(job: StoredJob) -> dict[str, Any]:
    """Return an automatic labelling, which is a job, as background work."""
    total = int(job.tags.get("pictures", "0") or 0)
    done = round(total * (job.progress or 0.0))
    states = {"completed": "success", "failed": "failed", "stopped": "aborted", "running": "working"}
    return {
        "_id": numbered_id("dltask", job.id),
        "dataset_id": library_id(job.tags.get("dataset", "")),
        "status": states.get(job.state, "waiting"),
        "event_type": "auto_label",
        "percent_complete": round(100 * (job.progress or 0.0)),
        "total_item_count": total,
        "completed_items": done,
        "message": job.message or "",
        "owner": job.user_name,
        "created_at": job.created_ms,
        "updated_at": job.ended_ms or job.started_ms or job.created_ms,
    }


def film_json(job: StoredJob) -> dict[str, Any]:
    """Return an inference on a film, which is a job."""
    states = {"completed": "success", "failed": "failed", "stopped": "aborted", "running": "working"}
    identity = numbered_id("dltask", job.id)
    done = job.state == "completed"
    return {
        "_id": identity,
        "status": states.get(job.state, "waiting"),
        "percent_complete": 100 if done else round(100 * (job.progress or 0.0)),
        "name": job.tags.get("film_name", ""),
        "model": job.tags.get("model", ""),
        "dataset_id": library_id(job.tags.get("dataset", "")),
        "file_id": library_id(job.tags.get("film", "")),
        "video_out": f"/api/inferences/{identity}/video" if done else None,
        "message": job.message or "",
        "owner": job.user_name,
        "created_at": job.created_ms,
        "updated_at": job.ended_ms or job.started_ms or job.created_ms,
    }


def inference_json(
    answer: Mapping[str, Any], deployment: str, *, md5: str, image: str, heatmap: bool, polygons: bool = False
) -> dict[str, Any]:
    """Return a prediction: boxes or classes in `classified`, as both kinds of deployment have it."""
    found = answer.get("detections")
    left_out = () if polygons else ("polygons",)
    classified = (
        [{key: one[key] for key in one if key not in left_out} | {"attr": [{}]} for one in found]
        if found is not None
        else list(answer.get("classified") or ())
    )
    shown = {
        "webAPIId": deployment,
        "imageUrl": image,
        "imageMd5": md5,
        "classified": classified,
        "result": "success",
    }
    if heatmap and answer.get("heatmap"):
        shown["heatmap"] = answer["heatmap"]
    return shown
