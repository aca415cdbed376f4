"""Answers of the made-up service about pictures and their labels."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from testing.console import vision_world as made
from testing.console.world import World, now_ms

from weft.jobs.api.types import vision as types
from weft.vision import views


def _pictures(world: World) -> made.VisionWorld:
    found: made.VisionWorld = world.vision
    return found


async def _body(request: Request, kind: Any) -> Any:
    return msgspec.json.decode(await request.body(), type=kind)


def _file(world: World, request: Request) -> dict[str, Any]:
    found = _pictures(world).files.get(request.path_params["file"])
    if found is None:
        raise HTTPException(404, "there is no such file")
    return found


def _state(file: dict[str, Any]) -> views.LabelState:
    if any(shape.get("confidence") is not None for shape in file["shapes"]):
        return "auto"
    return "labelled" if file["shapes"] or file["category"] else "unlabelled"


def _row(file: dict[str, Any]) -> dict[str, Any]:
    shapes = file["shapes"]
    labels = [shape["label"] for shape in shapes]
    sure = [shape["confidence"] for shape in shapes if shape.get("confidence") is not None]
    kept = {key: value for key, value in file.items() if key not in ("shapes", "number", "metadata")}
    return kept | {
        "state": _state(file), "labels": {label: labels.count(label) for label in labels},
        "confidence": min(sure, default=None), "sha256": "4be1f0" * 10 + "77aa", "split": "train",
        "frames_per_s": 25.0 if file["kind"] == "film" else None, "frames": 0, "added_ms": now_ms() - 9_000_000,
        "updated_ms": now_ms() - 60_000,
    }  # fmt: skip


def _detail(file: dict[str, Any]) -> views.VisionFileDetail:
    shapes = msgspec.convert(file["shapes"], tuple[views.ShapeView, ...])
    return views.VisionFileDetail(
        **_row(file), shapes=shapes, metadata=file["metadata"], previous=None, next=None, updated_by="ines"
    )


def _dataset(world: World, name: str) -> views.VisionDataset:
    found = _pictures(world).datasets.get(name)
    if found is None:
        raise HTTPException(404, "there is no such data set")
    files = [file for file in _pictures(world).files.values() if file["dataset"] == name]
    rows = [_row(file) for file in files if file["kind"] != "film"]
    states = [row["state"] for row in rows]
    counts = views.DatasetCounts(
        pictures=len(rows), films=len(files) - len(rows), labelled=states.count("labelled"),
        unlabelled=states.count("unlabelled"), auto=states.count("auto"), review=0,
    )  # fmt: skip
    labels = tuple(
        views.LabelView(**label, pictures=sum(label["name"] in row["labels"] for row in rows))
        for label in found["labels"]
    )
    categories = tuple(
        views.LabelView(**label, pictures=sum(label["name"] == row["category"] for row in rows))
        for label in found["categories"]
    )
    return views.VisionDataset(
        id=name, name=name, description=found["description"], owner="mara", mine=True, shares=(), counts=counts,
        labels=labels, categories=categories, cover=rows[0]["id"] if rows else None,
        created_ms=now_ms() - 90_000_000, updated_ms=now_ms() - 3_600_000, newest_version=2 if rows else 0,
    )  # fmt: skip


def list_vision_datasets(world: World, request: Request) -> types.VisionDatasets:
    return types.VisionDatasets(tuple(_dataset(world, name) for name in _pictures(world).datasets))


async def add_vision_dataset(world: World, request: Request) -> views.VisionDataset:
    body = await _body(request, types.NewVisionDataset)
    made.add_dataset(_pictures(world), body.name, body.description)
    return _dataset(world, body.name)


def show_vision_dataset(world: World, request: Request) -> views.VisionDataset:
    return _dataset(world, request.path_params["dataset"])


def list_vision_files(world: World, request: Request) -> views.VisionFiles:
    query = request.query_params
    all_files = _pictures(world).files.values()
    rows = [_row(file) for file in all_files if file["dataset"] == request.path_params["dataset"]]
    state = query.get("state", "all")
    if state == "review":
        rows = [row for row in rows if row["review"] == "review"]
    elif state != "all":
        rows = [row for row in rows if row["state"] == state]
    if label := query.get("label"):
        rows = [row for row in rows if label in row["labels"]]
    if kind := query.get("kind"):
        rows = [row for row in rows if row["kind"] == kind]
    if parent := query.get("parent"):
        rows = [row for row in rows if row["parent"] == parent]
    if query.get("sort") == "-added":
        rows.reverse()
    start, limit = int(query.get("after") or 0), int(query.get("limit", 100))
    after = str(start + limit) if start + limit < len(rows) else None
    files = tuple(views.VisionFile(**row) for row in rows[start : start + limit])
    return views.VisionFiles(files=files, total=len(rows), next=after)


async def change_vision_files(world: World, request: Request) -> types.VisionChangeAnswer:
    body = await _body(request, types.VisionChange)
    for key in body.files:
        file = _pictures(world).files[key]
        if body.action == "delete":
            del _pictures(world).files[key]
        elif body.action == "accept":
            file["shapes"] = [shape | {"confidence": None} for shape in file["shapes"]]
        elif body.action == "categorise":
            file["category"] = body.category
    return types.VisionChangeAnswer(changed=len(body.files), left=0)


async def change_vision_labels(world: World, request: Request) -> views.VisionDataset:
    body = await _body(request, types.VisionLabelsChange)
    found = _pictures(world).datasets[request.path_params["dataset"]]
    for key in ("labels", "categories"):
        entries = getattr(body, key)
        if entries is not None:
            found[key] = [{"name": one.name, "colour": one.colour or "#9be15d"} for one in entries]
    return _dataset(world, request.path_params["dataset"])


def list_vision_versions(world: World, request: Request) -> types.VisionVersions:
    name = request.path_params["dataset"]
    number = _dataset(world, name).newest_version
    versions = tuple(
        views.VisionVersion(
            dataset=name, name=name, number=one, digest="9c41aa" * 10, note="checked" if one > 1 else "",
            pictures=300 * one, shapes=2100 * one,
            splits={"train": 210 * one, "validation": 45 * one, "test": 45 * one},
            labels=tuple(label for label, _ in made.LABELS), categories=(), created_ms=now_ms() - 7_000_000 // one,
            user="mara",
        )
        for one in range(number, 0, -1)
    )  # fmt: skip
    return types.VisionVersions(versions)


def show_vision_health(world: World, request: Request) -> views.VisionHealth:
    found = _dataset(world, request.path_params["dataset"])
    splits = {"train": 700, "validation": 150, "test": 150}
    labels = tuple(
        views.ClassHealth(name=name, pictures=count, shapes=count * 3, splits=splits, median_area=0.02)
        for name, count in (("RBC", 640), ("WBC", 210), ("Platelets", 34))
    )
    files = tuple(file["id"] for file in list(_pictures(world).files.values())[2:40:3])
    issues = (
        views.HealthIssue(kind="imbalance", level="warning", count=34, files=(),
                          text="Platelets has 19 times fewer pictures than RBC; add some, or augment"),
        views.HealthIssue(kind="duplicates", level="problem", count=2, files=files[:2],
                          text="2 pictures have the same content; remove one of each"),
        views.HealthIssue(kind="unlabelled", level="info", count=333, files=files, text="333 pictures have no labels"),
    )  # fmt: skip
    sizes = (views.SizeBin(width=640, height=480, count=1000),)
    return views.VisionHealth(
        counts=found.counts, labels=labels, categories=(), splits=splits, sizes=sizes, issues=issues
    )


async def upload_vision_file(world: World, request: Request) -> types.VisionUploadAnswer:
    name, data = request.query_params["name"], await request.body()
    if not data.startswith((b"\xff\xd8", b"\x89PNG")):
        raise HTTPException(422, f"{name} must be a picture, a film or a zip, got something else")
    pictures = _pictures(world)
    file = made.add_picture(pictures, request.path_params["dataset"], name, 3 * len(pictures.files) + 2)
    return types.VisionUploadAnswer(file=views.VisionFile(**_row(file)))


def show_vision_file(world: World, request: Request) -> views.VisionFileDetail:
    return _detail(_file(world, request))


def read_vision_picture(world: World, request: Request) -> Response:
    side = request.query_params.get("side")
    data = made.picture(_file(world, request)["number"], int(side) if side else None)
    return Response(data, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


read_vision_thumbnail = read_vision_picture


async def save_vision_labels(world: World, request: Request) -> Any:
    file, body = _file(world, request), await _body(request, types.VisionLabelsBody)
    if body.revision != file["revision"]:
        raise HTTPException(409, "labels must be changed from their newest revision, got an older one")
    plain = msgspec.to_builtins(body)
    file.update({key: plain[key] for key in ("category", "category_confidence", "shapes")})
    file["review"] = file["review"] if body.review is None else body.review
    file["revision"] += 1
    return _detail(file)


async def assist_vision_labels(world: World, request: Request) -> types.VisionAssistAnswer:
    body = await _body(request, types.VisionAssistBody)
    x, y = body.point or (0.0, 0.0)
    x0, y0, x1, y1 = body.box or (x - 40, y - 40, x + 40, y + 40)
    middle = ((x0 + x1) / 2, (y0 + y1) / 2)
    ring = ((x0, middle[1]), (middle[0], y0), (x1, middle[1]), (middle[0], y1))
    return types.VisionAssistAnswer((ring,))


def list_vision_tasks(world: World, request: Request) -> types.VisionTasks:
    return types.VisionTasks(tuple(_pictures(world).tasks))


async def capture_vision_frames(world: World, request: Request) -> views.VisionTask:
    film, body = _file(world, request), await _body(request, types.VisionFramesBody)
    for time_s in body.times_s:
        number = 3 * len(_pictures(world).files) + 2
        frame = made.add_picture(_pictures(world), film["dataset"], f"{film['name']} {time_s:.2f}", number)
        frame.update(kind="frame", parent=film["id"], time_s=time_s)
    return views.VisionTask(
        id="1", dataset=film["dataset"], kind="frames", state="done", done=1, total=1, message="", problems=(),
        result={}, owner="mara", created_ms=now_ms(), updated_ms=now_ms(),
    )  # fmt: skip
