"""Spans of modules: which modules run in a recorded step, what they are given, and what autograd saves meanwhile.

The modules that run are read off the Python frames of the calls under way whenever autograd saves a tensor. A module
that is called again holds its arguments until then, so these are noted, too: as sites, where autograd saves them
anyway, or as bytes that nobody would hold otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import torch

from weft.lms.activations.saved import SavedStorage
from weft.lms.blocks.state import tensors_of
from weft.lms.device.storages import WeakStorage
from weft.lms.device.torch_private import MODULE_CALL_CODE, NO_BACKWARD, backward_id
from weft.lms.planning.blocks import ModuleSpan


@dataclass(frozen=True)
class _Argument:
    """The storage of a tensor that a module is given. While this exists, no other storage has its key."""

    weak: WeakStorage
    bytes: int


class ModuleSpans:
    """The modules that run in one step, and what they are given."""

    def __init__(self, number: Callable[[torch.nn.Module], int], device: torch.device) -> None:
        self._number, self._device = number, device
        self._spans: dict[int, ModuleSpan] = {}  # by the module's number
        self._last: set[int] = set()  # the modules that ran at the last event that was noted
        self._parted: set[int] = set()  # modules that ran more than once
        self._given: dict[int, list[_Argument]] = {}  # by the module's number
        self._sites: dict[int, tuple[WeakStorage, int]] = {}  # of saved storages, by their keys
        self.first: frozenset[int] = frozenset()  # modules that ran when a step saved its first tensor

    def clear(self) -> list[torch.Tensor]:
        """Begin to note modules. Some run already: they began before their step was known. Return the first tensor that
        each of these was given.
        """
        self._forget()
        calls = list(_running())
        running = {self._number(module) for module, _ in calls}
        self._last, self.first = running, self.first | running
        first_tensors = (next(tensors_of(given), None) for _, given in calls)
        return [tensor for tensor in first_tensors if tensor is not None]

    def _forget(self) -> None:
        for noted in (self._spans, self._parted, self._given, self._sites):
            noted.clear()

    def note(self, event: int, operations: int, storage: SavedStorage) -> None:
        """Note the modules that run while a storage is saved, after so many operations."""
        if backward_id() != NO_BACKWARD:
            return
        self._sites[storage.weak.key] = storage.weak, storage.site
        calls = list(_running())
        running = {self._number(module): (module, given) for module, given in reversed(calls)}
        for depth, (number, (module, given)) in enumerate(running.items()):
            before = self._spans.get(number)
            if before is not None and number not in self._last:
                self._parted.add(number)
            if before is None:
                self._given[number] = list(self._arguments(given))
                kind = type(module).__qualname__
                before = ModuleSpan(
                    module=number, kind=kind, depth=depth, first=event, last=event, began=operations
                )
            self._spans[number] = replace(
                before, depth=depth, last=event, operations=operations - before.began
            )
        self._last = set(running)

    def _arguments(self, given: Any) -> Iterator[_Argument]:
        for tensor in tensors_of(given):
            plain = tensor.device == self._device and tensor.layout == torch.strided
            if plain and not isinstance(tensor, torch.nn.Parameter):
                storage = tensor.untyped_storage()
                yield _Argument(WeakStorage(storage), storage.nbytes())

    def end(self) -> tuple[ModuleSpan, ...]:
        """Return the parts of the step, which ends here, in which modules ran that were called once."""
        numbers = (number for number in self._spans if number not in self._parted)
        found = tuple(self._with_arguments(number) for number in numbers)
        self._forget()
        return found

    def _with_arguments(self, number: int) -> ModuleSpan:
        given, unsaved = set[int](), dict[int, int]()
        for argument in self._given[number]:
            key = argument.weak.key
            if key in self._sites:
                given.add(self._sites[key][1])
            elif argument.weak.dead:  # else somebody holds it all the while
                unsaved[key] = argument.bytes
        return replace(self._spans[number], given=frozenset(given), unsaved=tuple(unsaved.items()))


def _running() -> Iterator[tuple[torch.nn.Module, Iterable[Any]]]:
    """Yield the modules whose forward passes run on this thread, the innermost first, and what each is given."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is MODULE_CALL_CODE:
            values = frame.f_locals
            yield values["self"], (values["args"], values["kwargs"])
        frame = frame.f_back
