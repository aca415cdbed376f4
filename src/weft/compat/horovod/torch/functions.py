"""Broadcasts of parameters, of optimizers' state and of any object; gathering of objects."""

from __future__ import annotations

import io
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.torch import ops, submission


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Give everyone the parameters of one rank: a `state_dict()`, or a list of tensors or of pairs with names."""
    named: Iterable[tuple[str | None, Any]]
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, list):
        named = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(
            f"params must be a dict or a list, got {type(params).__name__}; use model.state_dict()"
        )
    tensors = [(name, tensor) for name, tensor in named if isinstance(tensor, Tensor)]
    _broadcast_all(tensors, root_rank, process_set)


def _broadcast_all(
    named: Iterable[tuple[str | None, Tensor]], root_rank: int, process_set: ProcessSet
) -> None:
    """Broadcast tensors in place, all at once; those that are not contiguous by way of a copy."""
    started = []
    for name, tensor in named:
        values = tensor if tensor.is_contiguous() else tensor.contiguous()
        started.append((tensor, values, ops.broadcast_async_(values, root_rank, name, process_set)))
    for tensor, values, handle in started:
        ops.synchronize(handle)
        if values is not tensor:
            with torch.no_grad():
                tensor.copy_(values)


# -- objects ------------------------------------------------------------------------------------------


def dump(value: Any) -> Tensor:
    """Return an object as bytes; functions and classes of the script's too, where cloudpickle is installed."""
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    buffer = io.BytesIO()
    pickler.dump(value, buffer)
    return torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)


def load(data: Tensor) -> Any:
    return pickle.loads(data.cpu().numpy().tobytes())


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of one rank, on every rank."""
    ranks = submission.members_of(process_set)
    if root_rank not in ranks:
        raise ValueError(f"root_rank must be in the process set, got {root_rank} for {list(ranks)}")
    ours = world.engine.rank == root_rank
    # A gathering to which one rank brings everything: the others need not know the size before.
    data = dump(obj) if ours else torch.empty(0, dtype=torch.uint8)
    op = submission.allgather(
        [data], name, process_set, finish=lambda done: done.outputs, word="broadcast_object", hurry=True
    )
    gathered = ops.wait_for(op)[0]
    return obj if ours else load(gathered)


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return a function that broadcasts objects from one rank."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the objects of all ranks of a set, in the order of their ranks."""
    op = submission.allgather(
        [dump(obj)], name, process_set, finish=lambda done: done, word="allgather_object", hurry=True
    )
    done = ops.wait_for(op)
    return [load(part) for part in done.outputs[0].split(list(done.extra[0]))]


# -- optimizers ---------------------------------------------------------------------------------------


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Any = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give everyone the optimizer's state and options of one rank; options keep their types.

    An optimizer that has made no step gets its state first, as if it had made one with zero gradients that changed
    nothing.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "the state of LBFGS cannot be broadcast, got one; start with the same state on all ranks"
        )
    if not optimizer.state:
        _make_state(optimizer, _sparse_parameters(model))
    ours = world.engine.rank == root_rank
    tensors: list[Tensor] = []
    whole = optimizer.state_dict()
    skeleton = broadcast_object(_take_out(whole, tensors) if ours else None, root_rank, None, process_set)
    if not ours:
        tensors = []
        whole = _put_in(skeleton, tensors)
    named = [(f"optimizer_state.{index}", tensor) for index, tensor in enumerate(tensors)]
    _broadcast_all(named, root_rank, process_set)
    if not ours:
        optimizer.load_state_dict(whole)


class _Slot:
    """A tensor that is left out of a structure: its shape, its type and its kind of device."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device.type


def _take_out(value: Any, tensors: list[Tensor]) -> Any:
    """Return a structure with slots for its tensors, which are collected."""
    if isinstance(value, Tensor) and value.layout is torch.strided:  # others go with the structure
        tensors.append(value.detach())
        return _Slot(value)
    if isinstance(value, dict):
        return {key: _take_out(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_take_out(each, tensors) for each in value])
    return value


def _put_in(value: Any, tensors: list[Tensor]) -> Any:
    """Return a structure with new tensors for its slots, which are collected in the same order."""
    if isinstance(value, _Slot):
        tensors.append(torch.empty(value.shape, dtype=value.dtype, device=value.device))
        return tensors[-1]
    if isinstance(value, dict):
        return {key: _put_in(each, tensors) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_put_in(each, tensors) for each in value])
    return value


def _sparse_parameters(model: Any) -> set[int]:
    """Return the identities of a model's parameters whose gradients are sparse."""
    if model is None:
        return set()
    modules = (module for module in model.modules() if getattr(module, "sparse", False) is True)
    return {id(p) for module in modules for p in module.parameters(recurse=False)}


def _make_state(optimizer: torch.optim.Optimizer, sparse: Collection[int] = ()) -> None:
    """Make an optimizer's state by a step that changes neither parameters nor what the state counts."""
    only_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        if p.requires_grad:
            zeros = torch.zeros_like(p)
            p.grad = zeros.to_sparse(1) if only_sparse else zeros  # a momentum of sparse gradients is dense
    step = getattr(optimizer, "step_locally", optimizer.step)
    with _without_decay(optimizer):
        step()
    with torch.no_grad():
        for p, values in zip(parameters, before, strict=True):
            p.copy_(values)
            if id(p) in sparse and p.grad is not None and not p.grad.is_sparse:
                p.grad = p.grad.to_sparse(1)
        for state in optimizer.state.values():
            if isinstance(state.get("step"), Tensor):
                state["step"].zero_()
            elif "step" in state:
                state["step"] = 0


@contextmanager
def _without_decay(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Switch off weight decay, which would leave its mark on the state."""
    kept = [group.get("weight_decay") for group in optimizer.param_groups]
    for group, decay in zip(optimizer.param_groups, kept, strict=True):
        if decay:
            group["weight_decay"] = 0.0
    try:
        yield
    finally:
        for group, decay in zip(optimizer.param_groups, kept, strict=True):
            if decay:
                group["weight_decay"] = decay
