"""The state of a module that is to be called again: what it is given, what it keeps, and what it draws from.

A module may be called twice if its result follows from its parameters, its arguments and torch's random generators
alone, and if nothing is another one after it ran. Both are looked at here, as far as Python shows them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module as global_hooks

from weft.lms.activations.tape import NEVER_REPEATED, PLAIN_TYPES, RandomState
from weft.lms.device.torch_private import TorchDispatchMode, is_compiled

PLAIN_VALUES = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.layout, torch.Size)
CONTAINERS = (tuple, list, dict)
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in MODULE_HOOKS)
MOST_LOOKED_AT = 4096  # values of one module, and as deep as this:
DEEPEST_LOOKED_AT = 4


def settings(module: torch.nn.Module) -> Hashable | None:
    """Return what of a module's settings decides about its forward pass; None if others run code in it."""
    if any(getattr(global_hooks, name, None) for name in GLOBAL_HOOKS):
        return None
    found: list[bool] = []
    parts, seen = [module], {id(module)}
    for part in parts:  # which `modules()` gives in several times the time
        own = vars(part)
        if any(own[name] for name in MODULE_HOOKS) or isinstance(part, torch.jit.ScriptModule):
            return None
        found.append(part.training)
        for inner in own["_modules"].values():
            if inner is not None and id(inner) not in seen:
                seen.add(id(inner))
                parts.append(inner)
    return tuple(found)


def can_be_repeated(module: torch.nn.Module, device: torch.device) -> bool:
    """Return whether all of a module is here as plain tensors, and nothing of it is compiled."""
    tensors = (*module.parameters(), *module.buffers())
    plain = all(type(tensor) in PLAIN_TYPES and tensor.device == device for tensor in tensors)
    return plain and not any(is_compiled(part, part.forward) for part in module.modules())


def is_plain(value: Any) -> bool:
    """Return whether a value is a tensor, a number, a name, or a plain container of such."""
    if type(value) in CONTAINERS:
        return all(map(is_plain, value.values() if isinstance(value, dict) else value))
    return type(value) in PLAIN_TYPES or isinstance(value, PLAIN_VALUES)


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a plain value."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, CONTAINERS):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(each)


@dataclass(frozen=True)
class ModuleState:
    """All that a module holds: versions of tensors, contents of buffers, and Python's values."""

    values: Hashable
    held: list[Any]  # the objects in `values`, which knows them by their ids
    buffers: tuple[torch.Tensor, ...]  # copies: some operations change them without saying so

    @classmethod
    def of(cls, module: torch.nn.Module, trained: bool = True) -> ModuleState:
        """Return the state of a module; changes of `trained` parameters are left out where an optimizer may step."""
        look, values = _Look(trained), list[Hashable]()
        for part in module.modules():
            own = vars(part).items()
            values += [
                id(part),
                *(look.at(value) for name, value in own if name not in ("_modules", "forward")),
            ]
        copies = tuple(buffer.detach().clone() for buffer in module.buffers())
        return cls(tuple(values), look.held, copies)

    def is_same(self, other: ModuleState) -> bool:
        return self.values == other.values and have_same_bits(self.buffers, other.buffers)


def looked_at(value: Any) -> Hashable:
    """Return a key of a value that is there all the while: another one if it changed."""
    return _Look().at(value)


class _Look:
    """One look at values and what they hold, each object once."""

    def __init__(self, trained: bool = True) -> None:
        self._trained = trained
        self._seen: set[int] = set()
        self.held: list[Any] = []
        self._left = MOST_LOOKED_AT

    def at(self, value: Any, depth: int = DEEPEST_LOOKED_AT) -> Hashable:
        """Return a key that is another one if the value changed."""
        if isinstance(value, PLAIN_VALUES):
            return repr(value) if isinstance(value, float) else (type(value), value)
        self.held.append(value)
        if isinstance(value, torch.Tensor):
            if type(value) not in PLAIN_TYPES or value.is_inference():
                return id(value)
            counted = self._trained or not (value.requires_grad and isinstance(value, torch.nn.Parameter))
            return id(value), value._version if counted else 0, value.data_ptr()
        self._left -= 1
        if id(value) in self._seen or not depth or self._left < 0:
            return id(value)
        self._seen.add(id(value))
        if isinstance(value, dict):
            items = list(value.items())[: max(0, self._left)]
            inside = [(id(name), self.at(each, depth - 1)) for name, each in items]
            return id(value), len(value), tuple(inside)
        if isinstance(value, (list, tuple, set, frozenset)):
            return (
                id(value),
                len(value),
                tuple(self.at(each, depth - 1) for each in list(value)[: self._left]),
            )
        if isinstance(value, (type, torch.nn.Module)) or not hasattr(value, "__dict__"):
            return id(value)
        return id(value), self.at(vars(value), depth - 1)


def have_same_bits(first: Any, second: Any) -> bool:
    """Return whether two plain values are equal, and their tensors bit by bit."""
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        alike = first.shape == second.shape and first.dtype == second.dtype and first.device == second.device
        return alike and torch.equal(_bits(first), _bits(second))
    if type(first) is not type(second):
        return False
    if isinstance(first, CONTAINERS):
        if len(first) != len(second) or (isinstance(first, dict) and list(first) != list(second)):
            return False
        pairs = zip(
            *(each.values() if isinstance(each, dict) else each for each in (first, second)), strict=True
        )
        return all(have_same_bits(one, two) for one, two in pairs)
    return bool(first == second or repr(first) == repr(second))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def drawn_elsewhere() -> Hashable:
    """Return the states of random generators that are not torch's."""
    numpy: Any = sys.modules.get("numpy")
    of_numpy: Any = () if numpy is None else numpy.random.get_state()
    return random.getstate(), tuple(getattr(part, "tobytes", lambda part=part: part)() for part in of_numpy)


def random_states(device: torch.device) -> list[RandomState]:
    """Return the states of torch's own generators, of the host and of a device."""
    found = [RandomState(torch.default_generator)]
    if device.type == "cuda":
        cuda: Any = torch.cuda
        index = cuda.current_device() if device.index is None else device.index
        found.append(RandomState(cuda.default_generators[index]))
    return found


class RepeatableOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees whether operations can be repeated: none is collective, none draws from a user's generator."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.all = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        drawn = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
        if drawn or getattr(func, "namespace", "") in NEVER_REPEATED:
            self.all = False
        return func(*args, **kwargs)
