"""Predictions of a served model of pictures: the server's answer in one shape for classes and for boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from weft.errors import UsageError
from weft.jobs.data.deployment_records import Deployment
from weft.jobs.data.deployments import Deployments

WAIT_S = 60.0  # for a picture that is large, or a model that is slow


class PredictionError(UsageError):
    """A picture that a served model did not take, or a server that does not answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


async def predict(
    deployments: Deployments,
    known: Deployment,
    picture: bytes,
    *,
    confidence: float = 0.25,
    top: int = 5,
    heat: str = "",
) -> dict[str, Any]:
    """Return what a served model sees in a picture: `classified`, or `detections`.

    `heat` is `true` or a label: a classifier then also tells where it saw the class, as `heatmap`.
    """
    path = f"/v2/models/{known.model}/picture?confidence={confidence:g}&top={top}"
    path += f"&heat={quote(heat, safe='')}" if heat else ""
    answer = await deployments.forward(known, "POST", path, picture, kind="application/octet-stream")
    if answer is None:
        raise PredictionError(
            503, f"{known.name} must be running to answer, got one that is {known.state}; try again"
        )
    status, body = answer
    if status != 200:
        reason = _reason(body)
        raise PredictionError(
            422 if status < 500 else 503, f"{known.name} did not take the picture: {reason}"
        )
    return shaped(msgspec.json.decode(body))


def shaped(answer: Any) -> dict[str, Any]:
    """Return a server's answer as `classified`, `detections`, or `outputs` of other models."""
    if isinstance(answer, list) and all(isinstance(one, Mapping) and "label" in one for one in answer):
        boxes = bool(answer) and all("xmin" in one for one in answer)
        return {"detections": answer} if boxes or not answer else {"classified": answer}
    if isinstance(answer, Mapping):
        for name in ("classified", "detections", "classes"):
            if isinstance(answer.get(name), list):
                return {"classified" if name == "classes" else name: answer[name], **_others(answer, name)}
    return {"outputs": answer}


def with_run_lengths(answer: Mapping[str, Any], picture: bytes) -> dict[str, Any]:
    """Return an answer whose outlined objects also have their mask in run lengths, as COCO packs them. Blocks."""
    from weft.vision.geometry import encode_mask, pack_counts, rasterise
    from weft.vision.pictures import read_header

    found = answer.get("detections")
    if not found:
        return dict(answer)
    header = read_header(picture)
    size = (header.width, header.height)

    def shown(one: Mapping[str, Any]) -> dict[str, Any]:
        rings = one.get("polygons")
        if not rings:
            return dict(one)
        mask = encode_mask(rasterise(rings, *size))
        return {**one, "rle": {"size": [size[1], size[0]], "counts": pack_counts(mask.counts)}}

    return {**answer, "detections": [shown(one) for one in found]}


def _others(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != name}


def _reason(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
        return str(found["error"])[:500]
    except (msgspec.MsgspecError, KeyError, TypeError):
        return body[:500].decode(errors="replace")
