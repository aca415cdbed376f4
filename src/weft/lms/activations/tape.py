"""The tape of a step: which operation made each storage, from what, and with which random numbers.

Autograd's nodes know the inputs that a derivative needs and no others, so a value behind a frozen layer, a residual sum
or a dropout cannot be made again from them. The tape sees operations where they are dispatched, below autograd and
autocast, and so knows all of them. It keeps no bytes of what a step makes: storages are known by weak references, and
operations by their arguments, in which each tensor is the state of a storage and a place in it. What no operation of
the step made (parameters, buffers, the batch) is held.

A storage has one state between two changes in place. A view is a place in a state, so views are not operations here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch

from weft.lms.activations.saved import Handle, Kept, LeafInput
from weft.lms.device.storages import WeakStorage, flat_bytes
from weft.lms.device.torch_private import NO_BACKWARD, OpOverload, TorchDispatchMode, backward_id

PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
# Their results have no content yet; who fills them may be no operation, such as a compiled kernel.
EMPTY = frozenset(
    ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
    + ("resize_", "set_", "lift_fresh")
)
# They write all of their first argument, whatever was in it.
FILLS = frozenset(
    ("bernoulli_", "normal_", "uniform_", "random_", "exponential_", "geometric_", "log_normal_", "cauchy_")
    + ("zero_", "fill_", "copy_", "randperm_")
)
# Collective operations, which all ranks must start together.
NEVER_REPEATED = ("c10d", "_c10d_functional", "c10d_functional", "fsdp", "symm_mem", "_dtensor")
# Norms that change their running statistics without saying so: (name, places of the statistics, place of `training`).
STATISTICS = {
    "native_batch_norm": ((3, 4), 5),
    "cudnn_batch_norm": ((3, 4), 5),
    "miopen_batch_norm": ((3, 4), 5),
}
# Their results share a storage and count its changes each for itself, so that no count tells what is in it.
SPLITS = frozenset(("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"))
UNTRACKED = -1  # the version of a storage whose changes nobody counts: it is split, or made in inference mode
MASKED = "native_dropout"  # its second result, the mask, depends on nothing but the shape of its input


class UnknownContentError(Exception):
    """An argument whose content the tape cannot name, so that the results of its operation are unknown, too."""


class StorageState:
    """The content of a storage between two changes: the result of an operation, something held, or unknown."""

    __slots__ = ("__weakref__", "bytes", "device", "held", "op", "output", "saved", "uses", "version", "weak")

    def __init__(
        self,
        tensor: torch.Tensor,
        op: TapedOperation | None = None,
        output: int = 0,
        held: LeafInput | None = None,
    ) -> None:
        storage = tensor.untyped_storage()
        self.weak = WeakStorage(storage)  # while it lives, no other storage has the same key
        self.bytes, self.device = storage.nbytes(), tensor.device
        self.version = version_of(tensor)
        self.op, self.output, self.held = op, output, held
        self.saved: ref[Handle | Kept] | None = None  # by autograd
        self.uses = 0  # operations that read it

    def source(self) -> Handle | Kept | LeafInput | None:
        """Return what has the content without any operation; None if nothing has."""
        found = None if self.saved is None else self.saved()
        return self.held if found is None else found


class TensorPlace:
    """A tensor as a place in a storage state."""

    __slots__ = ("dtype", "offset", "size", "state", "stride")

    def __init__(self, state: StorageState, tensor: torch.Tensor) -> None:
        self.state = state
        self.dtype, self.size, self.stride = tensor.dtype, tensor.size(), tensor.stride()
        self.offset = tensor.storage_offset()

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return this place in the storage of a tensor."""
        if tensor.dtype == self.dtype:
            return tensor.as_strided(self.size, self.stride, self.offset)
        empty = torch.empty(0, dtype=self.dtype, device=tensor.device)
        return empty.set_(tensor.untyped_storage(), self.offset, self.size, self.stride)

    @property
    def likeness(self) -> tuple[Any, ...]:
        return self.dtype, tuple(self.size), self.stride, self.offset


class TapedOperation:
    """One operation of a step, which can be done again once the states of its arguments are there."""

    __slots__ = ("_likeness", "args", "func", "kind", "kwargs", "number", "random", "states")

    def __init__(self, number: int, func: Any, kind: OperationKind) -> None:
        self.number, self.func, self.kind = number, func, kind
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.states: list[StorageState] = []  # of all arguments
        self.random: RandomState | None = None
        self._likeness: tuple[Any, ...] | None = None

    @property
    def name(self) -> str:
        return name_of(self.func)

    def leave_out(self, name: str) -> None:
        """Leave the statistics out that a norm in training would change again."""
        places, training = STATISTICS[name]
        if self.args[training]:
            for place in places:
                if self.args[place] is not None:
                    self.states.remove(self.args[place].state)
            self.args = tuple(None if place in places else arg for place, arg in enumerate(self.args))

    def likeness(self) -> tuple[Any, ...]:
        """Return a key that is equal for operations that do the same work."""
        if self._likeness is None:
            self._likeness = (self.func, *_alike(self.args), *_alike(tuple(self.kwargs.values())))
        return self._likeness


class RandomState:
    """A generator and the state that it had before an operation: a few bytes, from which all its numbers follow."""

    __slots__ = ("_generator", "_now", "_state")

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._state = _read(generator)

    def __enter__(self) -> None:
        self._now = _read(self._generator)
        _write(self._generator, self._state)

    def __exit__(self, *_: object) -> None:
        _write(self._generator, self._now)


@dataclass(frozen=True, slots=True)
class OperationKind:
    """The way in which the tape treats an operation; asked for once, since asking takes longer than some operations."""

    is_view: bool = False
    is_known: bool = False  # it can be repeated
    changes: bool = False  # it writes its first argument
    overwrites: bool = False  # all of it, whatever that was
    random: bool = False
    is_masking: bool = False  # one of its results depends on nothing but the shape of its input
    statistics: str = ""  # its name, if it changes statistics without saying so


class Tape:
    """The operations of one step, by the storages that they made."""

    def __init__(self) -> None:
        self.paused = False  # operations of our own are not the step's
        self._states: dict[int, StorageState] = {}  # the current state of each storage, by its key
        self._kinds: dict[Any, OperationKind] = {}
        self._count = 0
        self._off = False
        self._wanted: frozenset[int] | None = None  # numbers of operations that are noted; None for all

    def clear(self, wanted: frozenset[int] | None = None) -> None:
        """Forget the step. Of the next one, note the operations with the `wanted` numbers, or all."""
        self._states.clear()
        self._count, self._off, self._wanted = 0, False, wanted

    def stop(self) -> None:
        """Note no more operations of this step."""
        self._off = True

    @property
    def operations(self) -> int:
        """The number of operations that were seen so far."""
        return self._count

    def saved(self, tensor: torch.Tensor, packed: Handle | Kept) -> None:
        """Note that autograd saved a tensor: its bytes are there from now on, wherever the engine moves them."""
        key = tensor.untyped_storage()._cdata
        state = self._states.get(key)
        if state is not None and state.version == UNTRACKED:
            return
        if state is None or state.version != tensor._version:
            if isinstance(packed, Kept):
                return  # a parameter or something small: it is held if an operation reads it
            state = self._states[key] = StorageState(tensor)
        if state.saved is None or state.saved() is None:
            state.saved = ref(packed)
            state.held = None

    def state(self, tensor: torch.Tensor) -> StorageState | None:
        """Return the state that a tensor is in now; None if the tape does not know it."""
        state = self._states.get(tensor.untyped_storage()._cdata)
        return None if state is None or state.version != version_of(tensor) else state

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do an operation of the step, and note what it made."""
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = kind_of(func)
        if kind.is_view or self.paused or self._off or backward_id() != NO_BACKWARD:
            return func(*args, **kwargs)
        if not kind.is_known:
            return self._unknown(func, args, kwargs)
        number = self._count
        self._count = number + 1
        if self._wanted is not None and number not in self._wanted:
            return self._unwanted_change(func, args, kwargs) if kind.changes else func(*args, **kwargs)
        op = TapedOperation(number, func, kind)
        try:
            op.args = self._given(args, op.states, not kind.is_masking)
            if kind.statistics:
                op.leave_out(kind.statistics)
            if kwargs:
                op.kwargs = dict(zip(kwargs, self._given(tuple(kwargs.values()), op.states), strict=True))
        except (
            UnknownContentError,
            RuntimeError,
        ):  # tensors of an unusual kind, such as those of inference mode
            return self._unknown(func, args, kwargs)
        if kind.random:
            op.random = RandomState(generator_of(args, kwargs))
        if kind.changes:
            self._copy_before_change(op.args[0].state, args[0])
            result = func(*args, **kwargs)
            self._changed(op, args[0])
            return result
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            self._made(op, 0, result)
        elif isinstance(result, (list, tuple)):
            for output, tensor in enumerate(_flat(result)):
                if tensor is not None:
                    self._made(op, output, tensor)
        return result

    def _given(
        self, values: tuple[Any, ...], states: list[StorageState], holds: bool = True
    ) -> tuple[Any, ...]:
        """Return arguments with places for tensors; `holds` if tensors that nothing here made must be held."""
        found: list[Any] = []
        for value in values:
            if isinstance(value, torch.Tensor):
                place = self._place(value, holds)
                states.append(place.state)
                found.append(place)
            elif isinstance(value, torch.UntypedStorage):
                raise UnknownContentError
            elif type(value) in (list, tuple):
                found.append(list(self._given(tuple(value), states)))
            else:
                found.append(value)
        return tuple(found)

    def _place(self, tensor: torch.Tensor, holds: bool) -> TensorPlace:
        if (
            type(tensor) not in PLAIN_TYPES or tensor.dtype.is_complex
        ):  # views of complex ones may be conjugated
            raise UnknownContentError
        key = tensor.untyped_storage()._cdata
        state = self._states.get(key)
        if tensor.is_inference() or (state is not None and state.version == UNTRACKED):
            raise UnknownContentError
        if state is None:
            held = LeafInput(tensor, tensor._version) if holds else None
            state = self._states[key] = StorageState(tensor, held=held)
        elif state.version != tensor._version:  # something changed it that is no operation here
            state = self._states[key] = StorageState(tensor)
        state.uses += 1
        return TensorPlace(state, tensor)

    def _made(self, op: TapedOperation, output: int, tensor: torch.Tensor) -> None:
        key = tensor.untyped_storage()._cdata
        if key not in self._states:  # else it is a view of an argument
            known = type(tensor) is torch.Tensor and tensor.layout == torch.strided
            self._states[key] = StorageState(tensor, op if known else None, output)

    def _unwanted_change(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do a change in place that nothing is rebuilt by; what it changes may be something held."""
        tensor = args[0]
        before = self.state(tensor) if type(tensor) in PLAIN_TYPES else None
        if before is None or before.held is None:
            return func(*args, **kwargs)
        before.uses += 1
        self._copy_before_change(before, tensor)
        result = func(*args, **kwargs)
        self._states[before.weak.key] = state = StorageState(tensor)
        state.version = tensor._version + 1
        state.held = LeafInput(tensor, state.version)
        return result

    def _copy_before_change(self, before: StorageState, tensor: torch.Tensor) -> None:
        """Copy something held that is about to change, if what it was may be read again."""
        if before.held is not None and before.uses > 1:
            before.held = LeafInput(flat_bytes(tensor).clone(), 0)

    def _changed(self, op: TapedOperation, tensor: torch.Tensor) -> None:
        """Begin a new state of the storage that an operation wrote to."""
        before, state = op.args[0].state, StorageState(tensor, op)
        state.version = tensor._version + 1  # it is raised when the operation returns
        if op.kind.overwrites and tensor.nbytes == tensor.untyped_storage().nbytes():
            op.states.remove(before)
            before.held = None
        elif before.held is not None:
            state.op, state.held = None, LeafInput(tensor, state.version)
        self._states[before.weak.key] = state

    def _unknown(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do an operation that is not repeated: what it makes or changes has a content that nobody can make again."""
        self._off = getattr(func, "namespace", "") in NEVER_REPEATED
        result = func(*args, **kwargs)
        for tensor in _flat(result if isinstance(result, (list, tuple)) else (result,)):
            if tensor is not None and type(tensor) in PLAIN_TYPES:
                key = tensor.untyped_storage()._cdata
                if key not in self._states:
                    self._states[key] = StorageState(tensor)
        for tensor in _flat(written(func, args, kwargs)):
            if tensor is not None and type(tensor) in PLAIN_TYPES:
                key = tensor.untyped_storage()._cdata
                known = self._states.get(key)
                if known is None or known.version != UNTRACKED:
                    state = self._states[key] = StorageState(tensor)
                    state.version += state.version != UNTRACKED
        if getattr(func, "namespace", "") == "aten" and name_of(func) in SPLITS:
            state = self._states[args[0].untyped_storage()._cdata] = StorageState(args[0])
            state.version = UNTRACKED
        return result


class TapedStep(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that shows the operations of a planned step to a tape."""

    supports_higher_order_operators = True

    def __init__(self, tape: Tape) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = tape.run

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the wrapper that keeps the compiler out takes as long as a view

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._run(func, args, kwargs or {})


def version_of(tensor: torch.Tensor) -> int:
    """Return the number of changes that a tensor counts; UNTRACKED where it counts none."""
    return UNTRACKED if tensor.is_inference() else tensor._version


def kind_of(func: Any) -> OperationKind:
    """Return what the tape does about an operation."""
    if not isinstance(func, OpOverload) or func.namespace in NEVER_REPEATED:
        return OperationKind()
    name = name_of(func)
    if func.is_view:
        return OperationKind(is_view=True)
    if name in EMPTY or name in SPLITS:
        return OperationKind()
    random = torch.Tag.nondeterministic_seeded in func.tags
    arguments = func._schema.arguments
    writes = [
        place
        for place, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    if not writes:
        statistics = name if name in STATISTICS else ""
        return OperationKind(is_known=True, random=random, is_masking=name == MASKED, statistics=statistics)
    if writes != [0] or str(arguments[0].type) != "Tensor" or not name.endswith("_"):
        return OperationKind()
    return OperationKind(is_known=True, changes=True, overwrites=name in FILLS, random=random)


def name_of(func: Any) -> str:
    """Return the name of an operation without its library and overload."""
    name: str = func._schema.name
    return name[name.index(":") + 2 :]


def generator_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the generator that an operation draws from: the one it was given, or that of its device."""
    for value in (*kwargs.values(), *args):
        if isinstance(value, torch.Generator):
            return value
    tensor = next((value for value in args if isinstance(value, torch.Tensor)), None)
    device = torch.device(kwargs.get("device") or "cpu") if tensor is None else tensor.device
    if device.type != "cuda":
        return None if device.type == "meta" else torch.default_generator
    cuda: Any = torch.cuda
    return cuda.default_generators[cuda.current_device() if device.index is None else device.index]


def _read(generator: Any) -> Any:
    if generator is None:
        return None
    if generator.device.type == "cuda":  # its whole state is a seed and an offset
        return generator.initial_seed(), generator.get_offset()
    return generator.get_state()


def _write(generator: Any, state: Any) -> None:
    if generator is None:
        return
    if not isinstance(state, tuple):
        generator.set_state(state)
        return
    if generator.initial_seed() != state[0]:
        generator.manual_seed(state[0])
    generator.set_offset(state[1])


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments that an operation writes to."""
    found: list[Any] = []
    schema = getattr(func, "_schema", None)
    for place, argument in enumerate(() if schema is None else schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            found.append(args[place] if place < len(args) else kwargs.get(argument.name))
    return found


def _flat(values: Any) -> Iterator[torch.Tensor | None]:
    """Yield the tensors among values in order, and None for what is none."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value if isinstance(value, torch.Tensor) else None


def _alike(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, TensorPlace):
            yield value.likeness
        elif isinstance(value, (list, tuple)):
            yield tuple(_alike(value))
        else:
            yield value if isinstance(value, (int, float, str, bool, torch.dtype)) else type(value)
