"""A replay makes a storage again by repeating operations of the step, from what autograd saved and what is held.

The tape (`tape.py`) is walked back from the operation that made the storage until every path has ended at a saved
tensor, a parameter or an input; the operations on the way are repeated in their order, below autograd, random ones
with the random numbers that they drew first. Values on the way are dropped as soon as nothing more is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from weft.lms.activations.saved import Handle, Kept, LeafInput, SavedStorage
from weft.lms.activations.tape import MASKED, StorageState, TapedOperation, TensorPlace
from weft.lms.device.storages import flat_bytes
from weft.lms.paging.page import Page

ReplaySource = Handle | Kept | LeafInput


@dataclass(frozen=True, eq=False)
class Replay:
    """Operations of the step in their order, and what they begin from. It holds no node of autograd."""

    target: StorageState
    ops: tuple[TapedOperation, ...]
    given: dict[StorageState, ReplaySource]
    shapes_alone: bool = False  # the content of tensors does not matter
    first: int = 0  # the number of its only variant; see `Recipe`

    def storages(self) -> dict[int, SavedStorage]:
        """Return the saved storages that must be on the device, by site."""
        handles = (source for source in self.given.values() if isinstance(source, Handle))
        return {handle.site: handle.storage for handle in handles if handle.storage is not None}

    def pages(self) -> list[Page]:
        """Return the pages of parameters that must be on the device: there are none, since none are taped."""
        return []

    def sources(self) -> set[int]:
        """Return the sites whose storages must be on the device."""
        return set(self.storages())

    def likeness(self) -> Hashable:
        """Return a key that is equal for replays that do the same work."""
        return tuple(op.likeness() for op in self.ops)

    def all_variants(self) -> tuple[Replay, ...]:
        return (self,)

    def bytes_on_the_way(self) -> int:
        """Return the most bytes that operations make until the result is there, and that result."""
        last = self._last_reads()
        level = most = 0
        for op, states in zip(self.ops, self._made().values(), strict=True):
            level += sum(state.bytes for state in states)
            most = max(most, level)
            gone = {state for state in op.states if last[state] == op.number and state is not self.target}
            level -= sum(state.bytes for state in gone - self.given.keys())
        return most

    def _last_reads(self) -> dict[StorageState, int]:
        """Return the number of the last operation that reads each state."""
        return {state: op.number for op in self.ops for state in op.states}

    def _made(self) -> dict[int, list[StorageState]]:
        """Return the states that each operation makes and that are read later, by its number."""
        made: dict[int, list[StorageState]] = {op.number: [] for op in self.ops}
        for state in {self.target, *self._last_reads()} - self.given.keys():
            if state.op is not None and state.op.number in made:
                made[state.op.number].append(state)
        return made

    def run(self, value: Callable[[ReplaySource], torch.Tensor]) -> torch.Tensor:
        """Repeat the operations; `value` gives the tensor behind a source, on the device."""
        # What is held may be a copy by now, made before a change in place.
        there = {state: value(state.held or source) for state, source in self.given.items()}
        last, made = self._last_reads(), self._made()
        for op in self.ops:
            if self.shapes_alone:
                there = {
                    place.state: _of_any_content(place) for place in op.args if isinstance(place, TensorPlace)
                }
            before = op.args[0].state if op.kind.changes else None
            alone = before is not None and before not in self.given and last.get(before) == op.number
            result = _repeat(op, there, alone)
            for state in made[op.number]:
                there[state] = result if isinstance(result, torch.Tensor) else _flat(result)[state.output]
            del result
            for state in op.states:
                if last[state] == op.number and state is not self.target:
                    there.pop(state, None)
        return there[self.target]


def replay(target: StorageState | None, most: int) -> Replay | None:
    """Return a replay of at most `most` operations that makes a state again; None if there is none."""
    if target is None or target.op is None:
        return None
    if target.op.name == MASKED and target.output == 1:
        return Replay(target, (target.op,), {}, shapes_alone=True)
    ops: dict[int, TapedOperation] = {}
    given: dict[StorageState, ReplaySource] = {}
    seen, walk = {target}, [target]
    while walk:
        op = walk.pop().op
        if op is None or len(ops) >= most:
            return None
        if op.number in ops:
            continue
        ops[op.number] = op
        for before in op.states:
            if before in seen:
                continue
            seen.add(before)
            source = before.source()
            if source is None:
                walk.append(before)
            else:
                given[before] = source
    return Replay(target, tuple(ops[number] for number in sorted(ops)), given)


def _of_any_content(place: TensorPlace) -> torch.Tensor:
    return torch.empty(place.state.bytes, dtype=torch.uint8, device=place.state.device)


def _repeat(op: TapedOperation, there: dict[StorageState, torch.Tensor], alone: bool) -> Any:
    kwargs = {name: _real(value, there) for name, value in op.kwargs.items()}
    if not op.kind.changes:
        args = [_real(value, there) for value in op.args]
        if op.random is None:
            return op.func(*args, **kwargs)
        with op.random:
            return op.func(*args, **kwargs)
    place: TensorPlace = op.args[0]
    if place.state not in op.states:
        whole = _of_any_content(place)
    else:
        whole = there[place.state] if alone else flat_bytes(there[place.state]).clone()
    args = [place.of(whole), *(_real(value, there) for value in op.args[1:])]
    if op.random is None:
        op.func(*args, **kwargs)
    else:
        with op.random:
            op.func(*args, **kwargs)
    return args[0]


def _real(value: Any, there: dict[StorageState, torch.Tensor]) -> Any:
    if isinstance(value, TensorPlace):
        return value.of(there[value.state])
    if isinstance(value, list):
        return [_real(each, there) for each in value]
    return value


def _flat(values: Any) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _flat(value) if isinstance(value, (list, tuple)) else [value]
    return found
