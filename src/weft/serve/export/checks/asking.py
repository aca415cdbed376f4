"""Asking a model and the file made of it the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from weft.errors import ModelError, ParityError
from weft.serve.card import Card, Parity
from weft.serve.export.checks.parity import Array, Comparison, Gate, accuracy, check, compare, scores_in
from weft.serve.export.checks.runtime import ModelSession
from weft.serve.export.sources.axes import Axes, smaller
from weft.serve.export.sources.samples import Samples
from weft.serve.onnx_file import size_with_weights

AT_ONCE = 32  # rows, when all samples are asked
LATENCY_RUNS = 10


class ExportSource(Protocol):
    """A model that can be exported: `torch_source.py`, `learn_source.py`. Used between the ends of `ready()`."""

    kind: str
    versions: dict[str, str]

    @property
    def takes_missing(self) -> bool:
        """Return whether NaN in a row stands for a value that is missing."""
        ...

    @property
    def bytes(self) -> int: ...
    def ready(self) -> Any: ...
    def name_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...
    def answer(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...
    def write(
        self, path: Path, inputs: Mapping[str, Array], axes: Axes, opset: int, *, external: bool
    ) -> None: ...
    def explain(self, file: Path, inputs: Mapping[str, Array], answer: Mapping[str, Array]) -> str: ...


@dataclass(frozen=True)
class PrecisionStep:
    """The model in one precision, as it was found."""

    precision: str
    size: int
    latency_ms: float  # median of one row, all cores
    parity: Parity


@dataclass(frozen=True)
class Question:
    """Rows, and what the model answers to them."""

    inputs: Mapping[str, Array]
    answer: Mapping[str, Array]
    batch: int
    truth: Array | None = None


def questions_for(source: ExportSource, rows: Samples, axes: Axes, batches: Sequence[int]) -> list[Question]:
    """Each batch size, another size of the open axes, and every sample once."""
    asked: list[Question] = []
    start = 0
    for batch in batches:
        asked.append(_question(source, rows.rows(batch, start), batch))
        start += batch
    again = source.answer(asked[-1].inputs)
    found = compare(asked[-1].answer, again, batches[-1], Gate(rtol=0.0, atol=1e-5), classes=False)
    if found.beyond is not None:
        raise ParityError(
            "the model must give the same answer to the same rows, got two: "
            f"{found.worst}; take the randomness or the state out of it".replace(
                "in the file", "the next time"
            )
        )
    other = smaller(rows.rows(2), axes)
    if other is not None:
        asked.append(_question(source, other, 2))
    for start in range(0, rows.count, AT_ONCE):
        count = min(AT_ONCE, rows.count - start)
        inputs = rows.rows(count, start)
        truth = rows.truth[start : start + count] if rows.truth is not None else None
        asked.append(_question(source, inputs, count, truth))
    return asked


def _question(
    source: ExportSource, inputs: Mapping[str, Array], batch: int, truth: Array | None = None
) -> Question:
    """Ask the model. An answer that is no number equals every other such answer, so nothing could be compared."""
    answer = source.answer(inputs)
    for name, array in answer.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            place = [int(i) for i in np.argwhere(np.isnan(array))[0]]
            raise ParityError(
                f"the model must answer numbers, got nan in {name}{place} in a batch of {batch}; look at its weights"
            )
    return Question(inputs, answer, batch, truth)


def check_labels(card: Card, answer: Mapping[str, Array]) -> None:
    """Count the labels of a classifier against the classes that the model answers scores of."""
    if card.task != "classify" or not card.labels:
        return
    classes = [array.shape[1] for array in scores_in(answer).values()]
    if classes and len(card.labels) not in classes:
        raise ModelError(
            f"labels must be as many as the model has classes, {classes[0]}, got {len(card.labels)}; "
            "give one label a class, in the order of the classes"
        )


def step_of(
    file: Path,
    precision: str,
    questions: Sequence[Question],
    gate: Gate,
    rows: Samples,
    batches: Sequence[int],
    source: ExportSource,
    *,
    classes: bool,
) -> PrecisionStep:
    """Ask the file what the model was asked."""
    session = ModelSession(file)
    total, hits, of_source, known = Comparison(), 0.0, 0.0, 0
    for question in questions:
        answer = session(question.inputs)
        found = compare(question.answer, answer, question.batch, gate, classes=classes)
        if found.beyond is not None:
            try:
                check(found, gate, precision)
            except ParityError as error:
                raise ParityError(f"{error}{source.explain(file, question.inputs, answer)}") from None
        total += found
        if question.truth is not None:
            known += question.batch
            hits += accuracy(answer, question.truth) * question.batch
            of_source += accuracy(question.answer, question.truth) * question.batch
    check(total, gate, precision)
    parity = Parity(
        largest=total.largest,
        agreement=total.agreement,
        batches=tuple(batches),
        samples="random" if rows.made_up else "given",
        rtol=gate.rtol or 0.0,
        atol=gate.atol or 0.0,
        accuracy=hits / known if known else None,
        accuracy_source=of_source / known if known else None,
    )
    return PrecisionStep(
        precision, size_with_weights(file), session.latency_ms(rows.rows(1), LATENCY_RUNS), parity
    )
