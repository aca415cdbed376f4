"""The state of a run: the objects registered with it, as one row of tensors and a small rest.

Anything with `state_dict` and `load_state_dict` can be registered. Its tensors are not copied; they are handed out as
memory, to be sent in slices or written to disk, and put in place by `load_state_dict`.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.errors import UsageError


@dataclass(frozen=True)
class StateImage:
    """The state at one moment: its tensors, and all else as bytes that refer to them by number."""

    rest: bytes
    tensors: tuple[Tensor, ...]
    names: tuple[str, ...] = ()  # of the tensors: "model.0.weight"

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    def table(self) -> list[tuple[list[int], str]]:
        """Shapes and types, for one who is to receive the tensors."""
        return [(list(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for tensor in self.tensors]


def check(objects: Mapping[str, Any]) -> None:
    """Refuse what has no state to keep."""
    for name, value in objects.items():
        lacking = [
            method
            for method in ("state_dict", "load_state_dict")
            if not callable(getattr(value, method, None))
        ]
        if lacking:
            raise UsageError(
                f"what is registered must have state_dict and load_state_dict, got {name} of type "
                f"{type(value).__name__} without {' and '.join(lacking)}; wrap it in an object that has them"
            )


def image_of(
    objects: Mapping[str, Any], extra: Any = None, *, on_host: bool = True, settled: bool = False
) -> StateImage:
    """The state as it is now. Tensors on the CPU are the live ones: they must not change while the image is used.

    Others are copied to the host, or stay where they are. With `settled`, gradients may be computed meanwhile, which
    changes buffers, say: all but what optimizers alone change is copied.
    """
    states = {name: value.state_dict() for name, value in objects.items()}
    known = {id(tensor): name for name, tensor in _named((), {**states, "run": extra})}
    tensors: list[Tensor] = []
    names: list[str] = []
    buffer = io.BytesIO()
    live = _changed_by_optimizers(objects.values()) if settled else None
    _Pickler(buffer, tensors, names, known, on_host=on_host, live=live).dump((states, extra))
    return StateImage(buffer.getvalue(), tuple(tensors), tuple(_unique(names)))


def _changed_by_optimizers(objects: Iterable[Any]) -> set[int]:
    """Return the tensors that only optimizers change: parameters, and the state of optimizers."""
    places: set[int] = set()
    for value in objects:
        if isinstance(value, torch.nn.Module):
            places.update(parameter.data_ptr() for parameter in value.parameters())
        elif isinstance(value, torch.optim.Optimizer):
            places.update(tensor.data_ptr() for _, tensor in _named((), value.state_dict()["state"]))
    return places


def _named(path: tuple[str, ...], value: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested dictionaries and lists, by the names torch.distributed.checkpoint gives them."""
    if isinstance(value, Tensor):
        yield ".".join(path), value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _named((*path, str(key)), inner)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _named((*path, str(index)), inner)


def _unique(names: Iterable[str]) -> Iterator[str]:
    """The same tensor may be met twice, and what is inside other objects has no name."""
    taken: set[str] = set()
    for number, name in enumerate(names):
        unique = name if name and name not in taken else f"{name or 'run'}.{number}"
        taken.add(unique)
        yield unique


def load(image: StateImage, objects: Mapping[str, Any]) -> Any:
    """Put an image in place; gives the extra that came with it."""
    states, extra = _Unpickler(io.BytesIO(image.rest), image.tensors).load()
    if states.keys() != objects.keys():
        raise UsageError(
            f"the state must be that of the same script, got {', '.join(sorted(states))} for "
            f"{', '.join(sorted(objects))}; register the same objects under the same names"
        )
    for name, state in states.items():
        objects[name].load_state_dict(state)
    return extra


def empty_like(table: Sequence[tuple[Sequence[int], str]]) -> tuple[Tensor, ...]:
    """Return memory for the tensors of an image."""
    return tuple(torch.empty(tuple(shape), dtype=getattr(torch, name)) for shape, name in table)


def schema(objects: Mapping[str, Any]) -> int:
    """Return a checksum over names and shapes of what is registered, the same for the same model."""
    words = []
    for name in sorted(objects):
        words.append(f"{name}:{type(objects[name]).__name__}")
        if isinstance(objects[name], torch.nn.Module):
            words += [f"{key}{tuple(value.shape)}" for key, value in objects[name].state_dict().items()]
    return zlib.crc32(";".join(words).encode())


class _Pickler(pickle.Pickler):
    """Puts tensors aside and refers to them by number."""

    def __init__(
        self,
        file: Any,
        tensors: list[Tensor],
        names: list[str],
        known: Mapping[int, str],
        *,
        on_host: bool,
        live: set[int] | None,
    ) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._tensors, self._names, self._known = tensors, names, known
        self._on_host, self._live = on_host, live

    def persistent_id(self, value: Any) -> tuple[int, bool, str] | None:
        if not isinstance(value, Tensor):
            return None
        plain = value.detach().to_dense() if value.is_sparse else value.detach()
        image = (plain.cpu() if self._on_host else plain).contiguous()
        place = image.data_ptr()
        copies = self._live is not None and place == value.data_ptr() and place not in self._live
        self._tensors.append(image.clone() if copies else image)
        self._names.append(self._known.get(id(value), ""))
        return len(self._tensors) - 1, isinstance(value, torch.nn.Parameter), value.device.type


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, reference: tuple[int, bool, str]) -> Tensor:
        number, is_parameter, _ = reference  # load_state_dict moves it to where it belongs
        tensor = self._tensors[number]
        return torch.nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor
