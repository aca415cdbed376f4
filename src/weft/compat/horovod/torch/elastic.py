"""`hvd.elastic` of `horovod.torch`: the loop, the sampler, and a state that knows models, optimizers and samplers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from weft.compat.horovod.elastic.loop import reset, run, run_fn
from weft.compat.horovod.elastic.sampler import ElasticSampler
from weft.compat.horovod.elastic.state import ObjectState, State
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "reset", "run", "run_fn"]


class StateHandler:
    """Saves, restores and broadcasts one object of a state, by its `state_dict`."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._saved: Any = None
        self.save()

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Take over the object of rank 0."""
        raise NotImplementedError


class ModelStateHandler(StateHandler):
    """Handles a module."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    """Handles an optimizer. One that has made no step on rank 0 has no state to take over, only options."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SchedulerStateHandler(StateHandler):
    """Handles a scheduler of learning rates, which keeps its optimizer."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0))
        self.save()


class SamplerStateHandler(StateHandler):
    """Handles an ElasticSampler."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0))
        self.save()


HandlerRegistry = list[tuple[type[Any], Callable[[Any], StateHandler]]]


class HandledKinds:
    """The kinds of objects that states handle by themselves."""

    def __init__(self) -> None:
        self.registry: HandlerRegistry = [
            (torch.nn.Module, ModelStateHandler),
            (torch.optim.Optimizer, OptimizerStateHandler),
            (torch.optim.lr_scheduler.LRScheduler, SchedulerStateHandler),
            (ElasticSampler, SamplerStateHandler),
        ]


_kinds = HandledKinds()


def get_handler_registry() -> HandlerRegistry:
    """Return the kinds of objects that states handle by themselves, and what handles them; the first kind wins."""
    return _kinds.registry


def set_handler_registry(registry: HandlerRegistry) -> None:
    """Have states handle other kinds of objects."""
    _kinds.registry = registry


def _handler(value: Any) -> StateHandler | None:
    makers = (make for kind, make in get_handler_registry() if isinstance(value, kind))
    maker = next(makers, None)
    return maker(value) if maker is not None else None


class TorchState(ObjectState):
    """A state of modules, optimizers and samplers, each handled by its kind, and of other objects."""

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        given = {**kwargs, "model": model, "optimizer": optimizer}
        found = {name: _handler(value) for name, value in given.items()}
        self._handlers = {name: handler for name, handler in found.items() if handler is not None}
        plain = {
            name: value for name, value in given.items() if name not in self._handlers and value is not None
        }
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        super().__init__(broadcast_object, lambda: world.place.rank, **plain)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        """Deal the rest of the epoch anew; reductions of the old world are forgotten with it."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        object.__setattr__(self, name, value)
