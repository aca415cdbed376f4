"""Parity of a file with the model it was made from: comparing two sets of outputs, and what is near enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import ModelError, ParityError

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

NUMBERS = "fiub"  # kinds of arrays that differ by an amount; others are equal or not


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The bounds of an accepted difference.

    With rtol and atol, each number must be: |file - source| <= atol + rtol * |source|. Without them, as for fp16 and
    int8, the answer as a whole must be: `agreement` bounds the share of rows with the same top-1 class where there are
    classes, `error` the length of the difference over that of the source's answer. `both` asks for both of a
    classifier, otherwise its classes alone are compared.
    """

    rtol: float | None = 1e-3
    atol: float | None = 1e-4
    agreement: float = 0.9
    error: float = 0.2
    both: bool = False


LOOSER = "where that is near enough, say so with --rtol and --atol"
CALIBRATE = "calibrate on more samples like those the model will see"
GATES = {
    "fp32": Gate(),
    "fp16": Gate(rtol=None, atol=None, agreement=0.95, error=0.02, both=True),
    "int8": Gate(rtol=None, atol=None),
}


def gate_for(precision: str, rtol: float | None, atol: float | None) -> Gate:
    """The usual gate of a precision, or one with the tolerances that were asked for."""
    usual = GATES[precision]
    if rtol is None and atol is None:
        return usual
    return Gate(rtol=rtol or 0.0, atol=atol or 0.0)


@dataclass(frozen=True)
class Difference:
    """The place of an answer where file and source differ most."""

    output: str
    batch: int  # rows that were asked at once
    index: tuple[int, ...]
    source: Any
    file: Any

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        return f"{self.output}[{place}] in a batch of {self.batch}: {self.source} in the model, {self.file} in the file"


@dataclass(frozen=True)
class Comparison:
    """Some batches, compared."""

    largest: float = 0.0
    worst: Difference | None = None
    beyond: Difference | None = None  # the first found that a gate does not let pass
    same_top: int = 0
    rows: int = 0  # those with a top-1 class
    squares: float = 0.0  # of the differences, summed
    squares_source: float = 0.0

    @property
    def agreement(self) -> float | None:
        return self.same_top / self.rows if self.rows else None

    @property
    def error(self) -> float:
        return float(np.sqrt(self.squares / self.squares_source)) if self.squares_source else self.largest

    def __add__(self, other: Comparison) -> Comparison:
        larger = other if other.largest > self.largest else self
        return Comparison(
            larger.largest,
            larger.worst or self.worst or other.worst,
            self.beyond or other.beyond,
            self.same_top + other.same_top,
            self.rows + other.rows,
            self.squares + other.squares,
            self.squares_source + other.squares_source,
        )


def compare(source: Arrays, file: Arrays, batch: int, gate: Gate, *, classes: bool) -> Comparison:
    """One batch. With `classes`, rows are also compared by their top-1 class."""
    total = Comparison()
    for name, expected in source.items():
        got = file[name]
        if expected.shape != got.shape:
            raise ParityError(
                f"the file must answer as the model, got {name} of shape {list(got.shape)} in place of "
                f"{list(expected.shape)} in a batch of {batch}"
            )
        total += _compare(name, expected, got, batch, gate)
    scores = scores_of(source) if classes else None
    if scores is not None:
        same = source[scores].argmax(-1) == file[scores].argmax(-1)
        total += Comparison(same_top=int(same.sum()), rows=int(same.size))
    return total


def _compare(name: str, source: Array, file: Array, batch: int, gate: Gate) -> Comparison:
    if source.size == 0:
        return Comparison()
    if source.dtype.kind not in NUMBERS:
        apart = np.asarray(source != file)
        if not apart.any():
            return Comparison()
        place = _place(apart)
        found = Difference(name, batch, place, source[place], file[place])
        return Comparison(worst=found, beyond=found if gate.rtol is not None else None)
    a, b = source.astype(np.float64), file.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(a - b)
        # A number that is the same infinity, or no number, in both is no difference; in one of them it is a great one.
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)
        apart = np.where(np.isnan(apart), np.inf, apart)
        allowed = np.abs(a) * (gate.rtol or 0.0) + (gate.atol or 0.0)
        allowed = np.where(np.isfinite(allowed), allowed, 0.0)
    place = _place(apart)
    worst = Difference(name, batch, place, source[place].item(), file[place].item())
    beyond = None
    if gate.rtol is not None and (apart > allowed).any():
        place = _place(apart - allowed)
        beyond = Difference(name, batch, place, source[place].item(), file[place].item())
    with np.errstate(over="ignore"):
        squares, squares_source = float((apart**2).sum()), float(np.nansum(a**2))
    return Comparison(float(apart.max()), worst, beyond, 0, 0, squares, squares_source)


def check(found: Comparison, gate: Gate, precision: str) -> None:
    """Raise what tells where the file differs, if it differs too much."""
    if found.beyond is not None:
        raise ParityError(
            f"the {precision} file must answer as the model within rtol {gate.rtol}, atol {gate.atol}, "
            f"got {found.beyond}; {LOOSER}"
        )
    if gate.rtol is not None:
        return
    if not np.isfinite(found.largest):
        raise ParityError(f"the {precision} file must answer numbers where the model does, got {found.worst}")
    advice = CALIBRATE if precision == "int8" else LOOSER
    if found.agreement is not None and found.agreement < gate.agreement:
        raise ParityError(
            f"the {precision} file must give {gate.agreement:.0%} of the rows the class that the model gives them, "
            f"got {found.agreement:.1%}; largest difference: {found.worst}; {advice}"
        )
    if (found.agreement is None or gate.both) and not found.error <= gate.error:
        raise ParityError(
            f"the answers of the {precision} file must be within {gate.error:.0%} of the model's, got "
            f"{found.error:.1%}; largest difference: {found.worst}; {advice}"
        )


def scores_of(outputs: Arrays) -> str | None:
    """The output that has a number for each class: rows by classes, floating."""
    return "probabilities" if "probabilities" in outputs else next(iter(scores_in(outputs)), None)


def scores_in(outputs: Arrays) -> dict[str, Array]:
    """The outputs that may have a number for each class."""
    return {
        name: array
        for name, array in outputs.items()
        if array.ndim == 2 and array.dtype.kind == "f" and array.shape[1] > 1
    }


def accuracy(outputs: Arrays, truth: Array) -> float:
    """The share of rows whose top-1 class is the true one."""
    scores = scores_of(outputs)
    if scores is None:
        raise ModelError(
            "accuracy must be of a model that has a number for each class; leave the true classes out"
        )
    return float((outputs[scores].argmax(-1) == truth).mean())


def _place(array: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(array.argmax()), array.shape))
