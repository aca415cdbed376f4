"""A model's card: what a server must know of a model beyond its graph, and what a person wants to know.

It travels in the metadata of the ONNX file: `weft.card` holds all of it as JSON, and a few plain keys say the same
to someone who looks with another tool. Nothing here needs torch or onnx.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from weft.errors import ModelError
from weft.serve.onnx_file import read_metadata

KEY = "weft.card"
TASKS = ("classify", "detect", "regress", "embed", "tensor")
PRECISIONS = ("fp32", "fp16", "int8")
RESIZES = ("crop", "stretch", "pad")
LAYOUTS = ("NCHW", "NHWC")
COLOURS = ("RGB", "BGR", "GREY")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """The steps that turn a picture into the tensor that the model was trained on.

    resize `crop`: scaled (bilinear) until it just covers height/crop x width/crop, then the middle is cut out;
    `stretch`: scaled to height x width, whatever its sides were; `pad`: scaled until it just fits into height x width,
    put into the middle, the rest filled with grey 114. Then each pixel of 0..255 becomes (pixel * scale - mean) / std.
    """

    height: int
    width: int
    resize: str = "crop"
    crop: float = 1.0  # the share of the resized picture that is kept, a side
    scale: float = 1 / 255
    mean: tuple[float, ...] = ()  # by channel; none: 0
    std: tuple[float, ...] = ()  # by channel; none: 1
    layout: str = "NCHW"
    colours: str = "RGB"

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise ModelError(
                f"a picture must be at least 1 x 1, got {self.height} x {self.width}; set size=224, say"
            )
        _among("resize", self.resize, RESIZES)
        _among("layout", self.layout, LAYOUTS)
        _among("colours", self.colours, COLOURS)
        if not 0 < self.crop <= 1:
            raise ModelError(f"crop must be a share in (0, 1], got {self.crop}; 0.875 is usual")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ModelError(f"scale must be a positive number, got {self.scale}; 1/255 is usual")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values and len(values) != self.channels:
                raise ModelError(
                    f"{name} must have {self.channels} numbers for {self.colours}, got {len(values)}"
                )
        if any(value <= 0 for value in self.std):
            raise ModelError(f"std must be positive, got {self.std}")

    @property
    def channels(self) -> int:
        return 1 if self.colours == "GREY" else 3


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The input of a model of token numbers: at most `limit` of them, shorter rows filled with `pad`."""

    limit: int
    pad: int = 0

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ModelError(f"the token limit must be at least 1, got {self.limit}")


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The difference between the answers of a file and those of the model it was made from."""

    largest: float  # absolute difference over all outputs
    agreement: float | None = None  # share of rows with the same top-1 class; None where there are no classes
    batches: tuple[int, ...] = ()
    samples: str = "given"  # or "random": made up from the shape
    rtol: float = 0.0
    atol: float = 0.0
    accuracy: float | None = None  # of the file, where the samples came with their labels
    accuracy_source: float | None = None  # of the model it was made from, on the same


@dataclass(frozen=True, kw_only=True)
class Card:
    """The facts that travel with a model. An ONNX file that has no card gets a plain one: task `tensor`."""

    name: str = ""
    task: str = "tensor"
    labels: tuple[str, ...] = ()  # by class number
    features: tuple[str, ...] = ()  # names of the columns of a table's row
    picture: Picture | None = None
    tokens: Tokens | None = None
    overlap: float = 0.5  # of two boxes of a label, above which they are one object
    run: str = ""  # id of the training run
    precision: str = "fp32"
    parity: Parity | None = None
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)  # torch, weft, onnx, opset
    created: str = ""  # ISO 8601, UTC
    notes: str = ""

    def __post_init__(self) -> None:
        _among("task", self.task, TASKS)
        _among("precision", self.precision, PRECISIONS)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Card:
        """Names it does not know are left alone: a later weft may have written them."""
        try:
            card = _build(cls, data, "card")
        except (TypeError, ValueError) as error:
            raise ModelError(f"the model's card cannot be read: {error}; export the model again") from error
        assert isinstance(card, Card)
        return card


class HasMetadata(Protocol):
    """An `onnx.ModelProto`, as far as a card is concerned."""

    @property
    def metadata_props(self) -> Any: ...


def read_card(source: Mapping[str, str] | str | PathLike[str]) -> Card:
    """The card in an ONNX file, or in the mapping `session.get_modelmeta().custom_metadata_map`."""
    metadata = source if isinstance(source, Mapping) else read_metadata(Path(source))
    text = metadata.get(KEY)
    if text is None:
        return Card()
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ModelError(f"the model's card must be JSON: {error}; export the model again") from error
    if not isinstance(data, dict):
        raise ModelError(f"the model's card must be an object, got {type(data).__name__}")
    return Card.from_json(data)


def write_card(model: HasMetadata, card: Card) -> None:
    """Put the card into a model in memory, in place of one that it has; other metadata stays."""
    ours = card_metadata(card)
    kept = {prop.key: prop.value for prop in model.metadata_props if not prop.key.startswith("weft.")}
    del model.metadata_props[:]
    for key, value in (kept | ours).items():
        prop = model.metadata_props.add()
        prop.key, prop.value = key, value


def card_metadata(card: Card) -> dict[str, str]:
    """The keys and values a card becomes; the plain ones are for people only."""
    plain = {
        "weft.name": card.name,
        "weft.task": card.task,
        "weft.run": card.run,
        "weft.precision": card.precision,
        "weft.created": card.created,
        "weft.labels": ", ".join(card.labels),
    }
    return {KEY: json.dumps(card.to_json())} | {key: value for key, value in plain.items() if value}


def _among(name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise ModelError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def _build(kind: Any, value: Any, name: str) -> Any:
    """A value of the type `kind` from plain JSON; the annotations of the dataclasses are the schema."""
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be an object, got {type(value).__name__}")
        hints = typing.get_type_hints(kind)
        known = [spec.name for spec in fields(kind) if spec.name in value]
        return kind(**{key: _build(hints[key], value[key], f"{name}.{key}") for key in known})  # type: ignore[operator]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _build(inner[0], value, name)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError(f"{name} must be a list, got {type(value).__name__}")
        return tuple(_build(inner[0], item, name) for item in value)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be an object, got {type(value).__name__}")
        return {str(key): str(item) for key, item in value.items()}
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or isinstance(value, bool):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
    return kind(value)
