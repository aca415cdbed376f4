"""Operations on data sets of pictures, their files, labels, versions and background work, under /vision."""

from __future__ import annotations

from weft.jobs.api.operations.model import (
    ApiOperation,
    delete_operation,
    get_operation,
    patch_operation,
    post_operation,
)
from weft.jobs.api.types import vision
from weft.vision import views

_SETS = "/vision/datasets"
_SET = "/vision/datasets/{dataset}"
_FILE = "/vision/files/{file}"
_BYTES = "application/octet-stream"

VISION_DATA = (
    get_operation("list_vision_datasets", _SETS, "Data sets of pictures.", vision.VisionDatasets),
    post_operation("add_vision_dataset", _SETS, "Make a data set.", views.VisionDataset, vision.NewVisionDataset,
                   audit="add data set"),
    get_operation("show_vision_dataset", _SET, "One data set.", views.VisionDataset),
    patch_operation("change_vision_dataset", _SET, "Rename, describe or share a data set.", views.VisionDataset,
                    vision.VisionDatasetChanges, audit="change data set"),
    delete_operation("remove_vision_dataset", _SET, "Remove a data set with its files.", audit="remove data set"),
    post_operation("upload_vision_file", f"{_SET}/upload", "Send a picture, a film or a zip.",
                   vision.VisionUploadAnswer, bytes, query=vision.VisionUploadQuery, body_media_type=_BYTES),
    post_operation("import_vision_urls", f"{_SET}/import", "Import pictures at addresses.", views.VisionTask,
                   vision.VisionImportBody, status=202),
    get_operation("list_vision_files", f"{_SET}/files", "One page of files.", views.VisionFiles,
                  query=vision.VisionFilesQuery),
    post_operation("change_vision_files", f"{_SET}/change", "Copy, move, remove, categorise or accept files.",
                   vision.VisionChangeAnswer, vision.VisionChange, status=200),
    get_operation("list_vision_labels", f"{_SET}/labels", "Labels and categories.", views.VisionDataset),
    ApiOperation(name="change_vision_labels", method="put", path=f"{_SET}/labels", access="write",
                 summary="Order, colour, rename, add or remove labels and categories.",
                 answer=views.VisionDataset, body=vision.VisionLabelsChange),
    get_operation("list_vision_versions", f"{_SET}/versions", "Versions, newest first.", vision.VisionVersions),
    post_operation("add_vision_version", f"{_SET}/versions", "Freeze a version.", views.VisionVersion,
                   vision.NewVisionVersion),
    get_operation("show_vision_health", f"{_SET}/health", "Balance, sizes, duplicates and doubtful labels.",
                  views.VisionHealth, query=vision.VisionHealthQuery),
    post_operation("augment_vision_dataset", f"{_SET}/augment", "Make a data set of changed pictures.",
                   views.VisionTask, vision.VisionAugmentBody, status=202),
    post_operation("clone_vision_dataset", f"{_SET}/clone", "Copy a data set.", views.VisionTask,
                   vision.VisionCloneBody, status=202),
    get_operation("export_vision_dataset", f"{_SET}/export", "A data set as a zip.", bytes,
                  query=vision.VisionExportQuery, media_type="application/zip"),
    get_operation("show_vision_file", _FILE, "One file with its labels.", views.VisionFileDetail),
    delete_operation("remove_vision_file", _FILE, "Remove a file.", audit="remove file"),
    patch_operation("change_vision_metadata", f"{_FILE}/metadata", "Give a file keys and values.",
                    views.VisionFileDetail, vision.VisionMetadataBody),
    ApiOperation(name="save_vision_labels", method="put", path=f"{_FILE}/labels", access="write",
                 summary="Save the labels of a file; 409 where another revision is there already.",
                 answer=views.VisionFileDetail, body=vision.VisionLabelsBody),
    get_operation("read_vision_picture", f"{_FILE}/picture", "A picture as it was imported.", bytes,
                  media_type="image/*"),
    get_operation("read_vision_thumbnail", f"{_FILE}/thumbnail", "A small picture.", bytes,
                  query=vision.VisionThumbnailQuery, media_type="image/jpeg"),
    get_operation("read_vision_film", f"{_FILE}/film", "A film, or a range of it.", bytes, media_type="video/*"),
    post_operation("capture_vision_frames", f"{_FILE}/frames", "Capture frames of a film.", views.VisionTask,
                   vision.VisionFramesBody, status=202),
    post_operation("interpolate_vision_track", f"{_FILE}/tracks", "Put a track's boxes into the frames between.",
                   vision.VisionChangeAnswer, vision.VisionTrackBody, status=200),
    post_operation("assist_vision_labels", f"{_FILE}/assist", "Find the outline of an object.",
                   vision.VisionAssistAnswer, vision.VisionAssistBody, access="read", status=200),
    get_operation("list_vision_tasks", "/vision/tasks", "Background work.", vision.VisionTasks,
                  query=vision.VisionTasksQuery),
    get_operation("show_vision_task", "/vision/tasks/{task}", "One piece of background work.", views.VisionTask),
    delete_operation("stop_vision_task", "/vision/tasks/{task}", "Stop a piece of background work."),
)  # fmt: skip
