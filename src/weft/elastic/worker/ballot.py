"""The ballot of a reduction: one row of numbers that all members add up, beside the gradients of a step.

From the sum each member learns the same: who computed which micro-batch, whether all are at the same place, whether a
newer view is known, what savers want, whether the run is to pause, how much was left out, and which parameters have
gradients.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.elastic.membership.view import View

_NEWER, _SAVE, _CANNOT_SAVE, _PAUSE, _SKIPPED, _USED = range(6)
_FACTS = 6


@dataclass(frozen=True)
class Place:
    """The place of a member in the run: the step's position, and the backward pass of the turn."""

    epoch: int
    start: int
    backward: int

    def __str__(self) -> str:
        return f"epoch {self.epoch}, sample {self.start}, backward pass {self.backward + 1}"


@dataclass(frozen=True)
class Ballot:
    """The numbers, before and after they are added up: facts, places by rank, micro-batches, parameters."""

    numbers: Tensor
    size: int  # members
    micros: int  # of the step
    most_micros: int  # of any step, so that members that are at different steps can find out

    @classmethod
    def filled(
        cls,
        place: Place,
        *,
        rank: int,
        size: int,
        held: Collection[int],
        micros: int,
        most_micros: int,
        touched: Tensor,
        saving: tuple[float, float],
        pausing: bool,
        newer: bool,
        skipped: float,
        used: bool,
    ) -> Ballot:
        """Fill in the ballot of one member."""
        ballot = cls(
            torch.zeros(_FACTS + 3 * size + most_micros + len(touched), dtype=torch.float64),
            size,
            micros,
            most_micros,
        )
        facts = torch.tensor(
            [float(newer), *saving, float(pausing), skipped, float(used)], dtype=torch.float64
        )
        ballot.numbers[:_FACTS] = facts
        ballot._places[rank] = torch.tensor([place.epoch, place.start, place.backward], dtype=torch.float64)
        ballot._micros[[*held]] = 1.0
        ballot._parameters[:] = touched
        return ballot

    @property
    def _places(self) -> Tensor:
        return self.numbers[_FACTS : _FACTS + 3 * self.size].view(self.size, 3)

    @property
    def _micros(self) -> Tensor:
        start = _FACTS + 3 * self.size
        return self.numbers[start : start + self.most_micros]

    @property
    def _parameters(self) -> Tensor:
        return self.numbers[_FACTS + 3 * self.size + self.most_micros :]

    # -- once the ballots of all members are added up ----------------------------------------------

    def differing(self, view: View) -> str | None:
        """Say which members are at different places, if they are: a script left its loop early on some of them."""
        places = [Place(*map(int, row)) for row in self._places.tolist()]
        other = next((rank for rank, place in enumerate(places) if place != places[0]), None)
        if other is None:
            return None
        names = view.members[0].worker, view.members[other].worker
        return (
            f"all workers must be at the same step, got {names[0]} at {places[0]} and {names[1]} at {places[other]}; "
            "what decides on `break` or on another backward pass must have the same value on all workers"
        )

    @property
    def held(self) -> list[float]:
        """Return how many members hold each micro-batch of the step."""
        return self._micros[: self.micros].tolist()

    @property
    def change_due(self) -> bool:
        return bool(self.numbers[_NEWER])

    @property
    def saving(self) -> tuple[float, float]:
        """Return how many members want the step saved, and how many cannot save it."""
        return float(self.numbers[_SAVE]), float(self.numbers[_CANNOT_SAVE])

    @property
    def pausing(self) -> bool:
        """Return whether a member knows that the run is to pause."""
        return bool(self.numbers[_PAUSE])

    @property
    def used(self) -> float:
        """Return how many members have come here from a backward pass, and so will apply the step."""
        return float(self.numbers[_USED])

    @property
    def scale(self) -> float:
        """Factor that makes the mean of what was computed from a sum that lacks what was left out."""
        skipped = float(self.numbers[_SKIPPED])
        return 1.0 / (1.0 - skipped) if 0.0 < skipped < 1.0 - 1e-9 else 1.0

    @property
    def touched(self) -> list[float]:
        """Return how many members have gradients for each parameter."""
        return self._parameters.tolist()
