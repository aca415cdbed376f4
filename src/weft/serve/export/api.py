"""Export a model: write its graph, check the file against the model, and only then call it done.

All work happens in a folder beside the target; what is checked is moved there whole, and a failure leaves nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import ModelError
from weft.serve.card import PRECISIONS, Card, Parity
from weft.serve.export.checks.asking import ExportSource, PrecisionStep, check_labels, questions_for, step_of
from weft.serve.export.checks.parity import gate_for
from weft.serve.export.file import axes_of_inputs, finish, opset_of, require, tidy
from weft.serve.export.sources.axes import Axes, open_axes
from weft.serve.export.sources.samples import Samples, samples_from
from weft.serve.export.workplace import publish, workplace
from weft.version import __version__

OPSET = 20
BATCHES = (1, 2, 5)
LARGEST = 1_900_000_000  # bytes of weights in one file: a protobuf message ends at 2 GB


@dataclass(frozen=True)
class Exported:
    """A file that was checked, and how it was found; smaller precisions come after the fp32 they were made from."""

    path: Path
    card: Card
    steps: tuple[PrecisionStep, ...]

    @property
    def parity(self) -> Parity:
        return self.steps[-1].parity


def export(
    model: Any,
    samples: Any,
    path: str | os.PathLike[str],
    *,
    card: Card | None = None,
    dynamic: Sequence[str] | Axes = (),
    opset: int = OPSET,
    precision: str = "fp32",
    calibration: Any = None,
    truth: Any = None,
    external_data: bool = False,
    batches: Sequence[int] = BATCHES,
    rtol: float | None = None,
    atol: float | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Exported:
    """Write `model`, a torch module or a fitted estimator of weft.learn, to `path` as ONNX, checked on `samples`.

    `samples`: an array or tensor whose first axis is rows, several for several inputs, or a mapping by name.
    `dynamic`: axes that stay open beside rows: "height", "width", "length", or {input: {axis: name}}.
    `calibration`: rows that int8's ranges are measured on, in place of the samples. `truth`: class numbers of the
    samples, for accuracy. `rtol`, `atol`: in place of the precision's usual gate. `card`: what the file shall say of
    itself; versions, parity and time are filled in.
    """
    require("onnx", "onnxruntime", "onnxscript")
    target = _target(Path(path))
    _check_choices(precision, batches, opset, rtol, atol)
    source = source_of(model)
    rows, ranges = _rows(source, samples, calibration, truth, precision)
    rows.check_batches(batches)
    facts = _facts(card or Card(), source, target)
    _fits(rows, facts)
    axes = open_axes(rows.inputs, dynamic, facts.picture)
    external = external_data or source.bytes > LARGEST
    classes = facts.task == "classify"
    with source.ready(), workplace(target) as file:
        tell("asking the model")
        questions = questions_for(source, rows, axes, batches)
        check_labels(facts, questions[0].answer)
        tell("writing the graph")
        source.write(file, rows.rows(2), axes, opset, external=external)
        tidy(file)
        _check_open(file, axes)
        tell("checking fp32 against the model")
        gate = gate_for("fp32", *((rtol, atol) if precision == "fp32" else (None, None)))
        steps = [step_of(file, "fp32", questions, gate, rows, batches, source, classes=classes)]
        if precision != "fp32":
            tell(f"making {precision}")
            file = _reduced(file, precision, ranges, file.parent / precision / file.name, external=external)
            tell(f"checking {precision} against the model")
            gate = gate_for(precision, rtol, atol)
            steps.append(step_of(file, precision, questions, gate, rows, batches, source, classes=classes))
        facts = replace(
            facts,
            versions=source.versions | _versions(file),
            precision=precision,
            parity=steps[-1].parity,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        finish(file, facts)
        publish(file, target)
    return Exported(target, facts, tuple(steps))


def source_of(model: Any) -> ExportSource:
    """The source that understands the model."""
    from weft.serve.export.sources.learn_source import LearnSource, is_estimator

    if is_estimator(model):
        return LearnSource(model)
    from torch import nn

    from weft.serve.export.sources.torch_source import TorchExportSource

    if isinstance(model, nn.Module):
        return TorchExportSource(model)
    raise ModelError(
        f"a model must be a torch module or a fitted estimator of weft.learn, got {type(model).__name__}"
    )


def _check_choices(
    precision: str, batches: Sequence[int], opset: int, rtol: float | None, atol: float | None
) -> None:
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise ModelError(f"{name} must be a number of at least 0, got {value}; 1e-3 is usual")
    if precision not in PRECISIONS:
        raise ModelError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if not batches or min(batches) < 1:
        raise ModelError(f"batches must be sizes of at least 1, got {list(batches)}")
    if not 18 <= opset <= 25:
        raise ModelError(f"opset must be 18 to 25, got {opset}; {OPSET} is read by most servers")


def _target(path: Path) -> Path:
    if path.suffix != ".onnx":
        raise ModelError(f"the file must be named .onnx, got {path}")
    if not path.absolute().parent.is_dir():
        raise ModelError(f"{path} must be in a folder that exists")
    return path


def _rows(
    source: ExportSource, samples: Any, calibration: Any, truth: Any, precision: str
) -> tuple[Samples, Samples]:
    """The samples to check on, and those to measure ranges on; what was made up serves for neither if it need not."""
    ranges = samples_from(calibration) if calibration is not None else None
    given = samples_from(samples) if samples is not None else ranges
    if given is None:
        raise ModelError("a model must be exported with samples; give rows, or their shape")
    if given.made_up and ranges is not None:
        given = ranges
    if precision == "int8" and given.made_up:
        raise ModelError("int8 must be calibrated on samples like those the model will see, got random ones")
    known = np.asarray(truth) if truth is not None else given.truth
    rows = Samples(source.name_inputs(given.inputs), known, given.made_up)
    measured = Samples(source.name_inputs(ranges.inputs)) if ranges is not None else rows
    for each in (rows, measured):
        each.check_finite(missing=source.takes_missing)
    return rows, measured


def _facts(card: Card, source: ExportSource, target: Path) -> Card:
    task, labels = card.task, card.labels or getattr(source, "classes", ())
    if task == "tensor":
        task = "classify" if labels else "regress" if source.kind == "weft.learn" else task
    run = card.run or os.environ.get("WEFT_RUN_ID", "")
    features = card.features or getattr(source, "features", ())
    return replace(card, name=card.name or target.stem, task=task, labels=labels, features=features, run=run)


def _fits(rows: Samples, card: Card) -> None:
    """Samples must be what the card says the inputs are."""
    first = next(iter(rows.inputs.values()))
    if card.picture is not None:
        rules = card.picture
        sides = (rules.height, rules.width)
        wanted = (rules.channels, *sides) if rules.layout == "NCHW" else (*sides, rules.channels)
        if first.shape[1:] != wanted:
            raise ModelError(
                f"samples must be pictures as the card says, {wanted} a row, got {first.shape[1:]}"
            )
    if card.tokens is not None and first.ndim > 1 and first.shape[1] > card.tokens.limit:
        raise ModelError(f"samples must have at most {card.tokens.limit} tokens, got {first.shape[1]}")


def _versions(file: Path) -> dict[str, str]:
    import onnx
    import onnxruntime

    return {
        "weft": __version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "opset": str(opset_of(file)),
    }


def _check_open(file: Path, axes: Axes) -> None:
    found = axes_of_inputs(file)
    for name, open_ones in axes.items():
        for axis, word in open_ones.items():
            size = found[name][axis] if name in found else word
            if isinstance(size, int):
                raise ModelError(
                    f"axis {axis} ({word}) of {name} must stay open, got {size}: the model treats it as a constant; "
                    "look for shapes that become Python numbers"
                )


def _reduced(file: Path, precision: str, ranges: Samples, target: Path, *, external: bool) -> Path:
    from weft.serve.export.precision import to_fp16, to_int8

    target.parent.mkdir()
    if precision == "fp16":
        to_fp16(file, target, external=external)
    else:
        to_int8(file, target, ranges, external=external)
    return target
