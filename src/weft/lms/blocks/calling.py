"""Blocks that are called again: modules whose forward pass makes again, in the backward pass, all that it saved.

That is checkpointing, with nothing marked by the user, so nobody has said that these modules may be called twice. It is
found out first. In the step that is recorded it is noted which modules run. In a later one the modules that a plan
would call again are tried: each is called as it is, and it is looked at what changed by that; if nothing did, it is
called a second time, to see whether it gives the same bits. When that step ends, its arguments and all that it holds
must still be the same. A module that changes anything, draws from a generator that is not torch's, has hooks, is
compiled, or was given something other than tensors and plain values is never called again.

Modules are known by weak references. Their `forward` is replaced while a step runs, and at no other time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from typing import Any
from weakref import ref

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from weft.lms.activations.tape import RandomState
from weft.lms.blocks.spans import ModuleSpans
from weft.lms.blocks.state import (
    CONTAINERS,
    ModuleState,
    RepeatableOperations,
    can_be_repeated,
    drawn_elsewhere,
    have_same_bits,
    is_plain,
    looked_at,
    random_states,
    settings,
    tensors_of,
)
from weft.lms.device.torch_private import NO_BACKWARD, backward_id

# Runs a module in the place of its `forward`: its number, the module, that `forward`, and what it is given.
Runner = Callable[[int, torch.nn.Module, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class RepeatedBlocks:
    """The modules that steps of one budget know by number, and which of them may be called again."""

    def __init__(self, device: torch.device) -> None:
        self.calls = 0  # of modules that will be called again in the backward pass, since the start
        self._device = device
        self._modules: list[ref[torch.nn.Module]] = []
        self._numbers: dict[int, int] = {}  # by the module's id
        self.noted = ModuleSpans(self.number, device)  # in the step that is recorded
        self._repeatable: dict[int, Hashable] = {}  # settings with which modules were tried, by number
        self._trials: list[_Trial] = []  # of this step
        self._refused: set[int] = set()  # in this step

    def number(self, module: torch.nn.Module) -> int:
        """Return the number of a module, which it keeps as long as it lives."""
        number = self._numbers.get(id(module))
        if number is None or self._modules[number]() is not module:
            number = self._numbers[id(module)] = len(self._modules)
            self._modules.append(ref(module))
        return number

    def kinds(self, numbers: Iterable[int]) -> list[str]:
        """Return the class names of modules."""
        found = (self._modules[number]() for number in numbers)
        return [type(module).__name__ for module in found if module is not None]

    # A step in which modules are tried.

    @contextmanager
    def trying(self, numbers: Iterable[int]) -> Iterator[None]:
        """Around a step that shows which modules may be called again; `may_repeat` tells after it."""
        self._trials.clear()
        self._refused.clear()
        with self._running_by(self._try, numbers):
            yield

    def may_repeat(self, numbers: Iterable[int]) -> bool:
        """Return whether all these modules were tried in the step that just ended, and may be called again."""
        for trial in self._trials:
            if not trial.is_still_so():
                self._refused.add(trial.number)
        for number in self._refused:
            self._repeatable.pop(number, None)
        self._trials.clear()
        return all(number in self._repeatable for number in numbers)

    def _try(
        self,
        number: int,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        if not torch.is_grad_enabled() or backward_id() != NO_BACKWARD:
            return forward(*args, **kwargs)
        trial = _Trial(number, module, args, kwargs)
        if not trial.begins(self._device):
            self._refused.add(number)
            return forward(*args, **kwargs)
        generators = random_states(self._device)
        result = trial.observe(forward)
        if trial.passed and trial.gives_same_again(forward, result, generators):
            self._repeatable[number] = trial.settings
            self._trials.append(trial)
        else:
            self._refused.add(number)
        trial.end()
        return result

    # A step in which modules are called again.

    @contextmanager
    def called_again(self, numbers: Iterable[int]) -> Iterator[None]:
        """Around a step in which these modules save their arguments alone, and run again in the backward pass."""
        with self._running_by(self._call_again, numbers):
            yield

    def _call_again(
        self,
        number: int,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        plain = torch.is_grad_enabled() and backward_id() == NO_BACKWARD and is_plain((args, kwargs))
        if not plain or settings(module) != self._repeatable.get(number, ()):
            return forward(*args, **kwargs)
        self.calls += 1
        return call_again(forward, args, kwargs)

    @contextmanager
    def asking(self, numbers: Iterable[int], tell: Callable[[Any], None]) -> Iterator[None]:
        """Around a step in which `tell` is called with the arguments of these modules before they run."""

        def run(
            number: int, module: torch.nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any
        ) -> Any:
            if not torch.is_grad_enabled() or backward_id() != NO_BACKWARD or forward in asked:
                return forward(*args, **kwargs)
            asked.append(forward)
            try:
                tell((args, kwargs))
                return module.forward(*args, **kwargs)  # which may be another one by now
            finally:
                asked.remove(forward)

        asked: list[Callable[..., Any]] = []
        with self._running_by(run, numbers):
            yield

    @contextmanager
    def _running_by(self, run: Runner, numbers: Iterable[int]) -> Iterator[None]:
        with ExitStack() as stack:
            for number in numbers:
                module = self._modules[number]()
                if module is not None and not isinstance(module, torch.jit.ScriptModule):
                    stack.callback(_replace_forward(module, partial(run, number, module, module.forward)))
            yield


class _Trial:
    """One call of a module that may be called again, if it passes."""

    def __init__(
        self, number: int, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.number, self.settings = number, settings(module)
        self.passed = False
        self._module, self._given = ref(module), (args, kwargs)
        self._state: ModuleState | None = None
        self._versions: list[tuple[torch.Tensor, int]] = []

    def begins(self, device: torch.device) -> bool:
        """Return whether the module can be tried at all."""
        module = self._module()
        here = any(tensor.device == device for tensor in tensors_of(self._given))
        if module is None or self.settings is None or not here or not is_plain(self._given):
            return False
        return can_be_repeated(module, device)

    def observe(self, forward: Callable[..., Any]) -> Any:
        """Call the module as it is, and see whether anything changed."""
        args, kwargs = self._given
        module = self._module()
        assert module is not None
        self._state, given, drawn = ModuleState.of(module), looked_at(self._given), drawn_elsewhere()
        with RepeatableOperations() as operations:
            result = forward(*args, **kwargs)
        unchanged = given == looked_at(self._given) and drawn == drawn_elsewhere()
        self.passed = operations.all and unchanged and is_plain(result) and self._is_as_before(module)
        return result

    def gives_same_again(
        self, forward: Callable[..., Any], result: Any, generators: Sequence[RandomState]
    ) -> bool:
        """Call the module a second time, with the same random numbers, and a third time with arguments as a backward
        pass has them; return whether that gives the same bits, and saves the same tensors.
        """
        given, found = looked_at(self._given), list[tuple[Any, list[Any]]]()
        for args, kwargs in (self._given, _as_saved(*self._given)):
            saved: list[Any] = []
            with ExitStack() as stack:
                for generator in generators:
                    stack.enter_context(generator)
                stack.enter_context(saved_tensors_hooks(partial(_note_saved, saved), _nothing))
                try:
                    found.append((forward(*args, **kwargs), saved))
                except Exception:  # whatever it is, it came of this call alone
                    return False
        (second, saved), (third, saved_later) = found
        same = have_same_bits(result, second) and have_same_bits(result, third) and saved == saved_later
        module = self._module()
        unchanged = given == looked_at(self._given)
        return same and unchanged and module is not None and self._is_as_before(module)

    def _is_as_before(self, module: torch.nn.Module) -> bool:
        return self._state is not None and self._state.is_same(ModuleState.of(module))

    def end(self) -> None:
        """Hold nothing any more but what tells whether something changed by the end of the step."""
        self._versions = [_version_of(tensor) for tensor in tensors_of(self._given)]
        self._given = (), {}
        module = self._module()
        self._state = None if module is None else ModuleState.of(module, trained=False)
        if self._state is not None:
            self._state = replace(self._state, buffers=())

    def is_still_so(self) -> bool:
        """Return whether nothing changed since."""
        module = self._module()
        if module is None or self._state is None:
            return False
        same = all(tensor._version == version for tensor, version in self._versions)
        return same and self._state.values == ModuleState.of(module, trained=False).values


def _note_saved(found: list[Any], tensor: torch.Tensor) -> None:
    """Note what a tensor is like, and save nothing: the later calls of a trial have no backward pass."""
    found.append((tensor.shape, tensor.dtype, tensor.device))


def _nothing(_: Any) -> Any:
    """Give nothing, for what was not saved."""


def _as_saved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return arguments with other tensors, which have the same bytes."""
    tensors, shape = _parted(args, kwargs)
    return _with_tensors(shape, [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors])


def _version_of(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return a tensor that counts the changes of another one and holds none of its bytes, and their number now."""
    if tensor.is_inference():
        return torch.empty(0), 0
    counter = tensor.detach()
    counter.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return counter, tensor._version


def call_again(forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function so that the tensors it is given are all that is saved of it; it runs again when more is wanted.

    Each tensor is given once, however often it is among the arguments: attention asks whether keys are the queries.
    """
    tensors, shape = _parted(args, kwargs)
    first = [(args, kwargs)]  # which is not held after the first call

    def run(*given: torch.Tensor) -> Any:
        args, kwargs = first.pop() if first else _with_tensors(shape, given)
        return forward(*args, **kwargs)

    return checkpoint(run, *tensors, use_reentrant=False)


def _parted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[torch.Tensor], Any]:
    """Return the tensors among arguments, each once, and the arguments with their numbers in their places."""
    tensors = {id(tensor): tensor for tensor in tensors_of((args, kwargs))}
    places = {key: place for place, key in enumerate(tensors)}
    return list(tensors.values()), _without_tensors((args, kwargs), places)


@dataclass(frozen=True)
class _Place:
    """A tensor among arguments, by its number."""

    number: int


def _without_tensors(value: Any, places: dict[int, int]) -> Any:
    if type(value) is dict:
        return {name: _without_tensors(each, places) for name, each in value.items()}
    if type(value) in CONTAINERS:
        return type(value)(_without_tensors(each, places) for each in value)
    return _Place(places[id(value)]) if isinstance(value, torch.Tensor) else value


def _with_tensors(value: Any, given: Sequence[torch.Tensor]) -> Any:
    if type(value) is dict:
        return {name: _with_tensors(each, given) for name, each in value.items()}
    if type(value) in CONTAINERS:
        return type(value)(_with_tensors(each, given) for each in value)
    return given[value.number] if isinstance(value, _Place) else value


def _replace_forward(module: torch.nn.Module, run: Callable[..., Any]) -> Callable[[], None]:
    """Have `run(args, kwargs)` called for a module's forward pass on this thread; return the way back."""
    own, original, thread = vars(module), module.forward, threading.get_ident()

    def forward(*args: Any, **kwargs: Any) -> Any:
        return run(args, kwargs) if threading.get_ident() == thread else original(*args, **kwargs)

    before = own.get("forward")
    own["forward"] = update_wrapper(forward, original)

    def restore() -> None:
        if own.get("forward") is not forward:
            return  # somebody else's by now
        if before is None:
            del own["forward"]
        else:
            own["forward"] = before

    return restore
