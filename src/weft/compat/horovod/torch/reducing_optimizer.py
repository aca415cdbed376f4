"""The part of a `DistributedOptimizer` that reduces each gradient as soon as the backward pass has made it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.process_sets import ProcessSet
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import NOT_INITIALIZED
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.compression import Compressor
from weft.compat.horovod.torch.groups import parameter_names, reduction_groups, unnamed

TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). Increase "
    "backward_passes_per_step to accumulate gradients locally."
)
ZERO_GRAD_TOO_EARLY = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
    "optimizer.synchronize(). This is prohibited as it can cause a race condition."
)
STEP_AFTER_SYNCHRONIZE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). This can "
    "cause training slowdown. You may want to consider using optimizer.skip_synchronize() context if you use "
    "optimizer.synchronize() in your code."
)


class PendingGradient:
    """A gradient on its way: how to wait for it and where it goes; `started` is false while passes are missing."""

    __slots__ = ("finish", "started")

    def __init__(self, finish: Callable[[], None] | None) -> None:
        self.finish, self.started = finish, finish is not None


class ReducingOptimizer:
    """The part of a `DistributedOptimizer` that is added to the class of the optimizer it is given."""

    # Of the optimizer itself.
    param_groups: list[dict[str, Any]]

    def _begin(
        self,
        original: torch.optim.Optimizer,
        named_parameters: Any,
        compression: type[Compressor],
        backward_passes_per_step: int,
        op: int,
        gradient_predivide_factor: float,
        groups: Any,
        sparse_as_dense: bool,
        process_set: ProcessSet,
    ) -> None:
        self._original = original
        self._parameter_names = parameter_names(self.param_groups, named_parameters)
        self._compression, self._op = compression, op
        self._factors = (1.0, 1.0)
        if gradient_predivide_factor != 1.0:
            self._factors = 1.0 / gradient_predivide_factor, gradient_predivide_factor
        self.backward_passes_per_step = backward_passes_per_step
        self.sparse_as_dense, self.process_set = sparse_as_dense, process_set
        self._pending: dict[Tensor, PendingGradient] = {}
        self._delay: dict[Tensor, int] = {}  # backward passes until a gradient is reduced
        self._hooked: set[Tensor] = set()
        self._wanted: set[Tensor] = set()  # parameters that have wanted a gradient at some time
        self._sparse: set[Tensor] = set()  # those whose gradients travel as sparse ones
        self._should_synchronize = True
        self._synchronized = False
        ours = {id(p) for group in self.param_groups for p in group["params"]}
        wanted = [p for p in self._parameter_names if p.requires_grad and id(p) in ours]
        self._groups = {
            p: group for group in reduction_groups(groups, wanted) if len(group) > 1 for p in group
        }
        self._group_names = {
            id(group): f"group.{number}" for number, group in enumerate(_unique(self._groups.values()))
        }
        self._hook_all()

    def _hook_all(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self._hooked:
                    self._hook(p)

    def _hook(self, p: Tensor) -> None:
        """Have the gradient of a parameter reduced once it is there, also if it is not wanted yet."""
        self._parameter_names.setdefault(p, unnamed(len(self._parameter_names)))
        if not (p.is_floating_point() or p.is_complex()):  # integers never have a gradient
            return
        self._hooked.add(p)
        self._delay[p] = self.backward_passes_per_step
        wants = p.requires_grad
        if wants:
            self._wanted.add(p)
        p.requires_grad_(True)
        p.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
        p.requires_grad_(wants)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)  # type: ignore[misc]
        if "_hooked" in self.__dict__:  # not while the optimizer is being made
            self._hook_all()

    @property
    def _alone(self) -> bool:
        """Return whether there is nothing to reduce: a world of one, or a process outside of the set."""
        if not world.initialized:
            raise ValueError(NOT_INITIALIZED)
        ranks = world.engine.sets.get(self.process_set.process_set_id or 0, ())
        return len(ranks) == 1 or world.engine.rank not in ranks

    # -- gradients ------------------------------------------------------------------------------------

    def _on_gradient(self, p: Tensor) -> None:
        if self._alone:
            return
        self._wanted.add(p)
        pending = self._pending.get(p)
        if (pending is not None and pending.started) or self._delay[p] <= 0:
            raise AssertionError(TOO_MANY_PASSES)
        self._delay[p] -= 1
        self._pending[p] = PendingGradient(None)
        if not self._delay[p]:
            self._start(p)

    def _start(self, p: Tensor) -> None:
        """Start the reduction of a gradient; of a group once all its gradients are there."""
        group = self._groups.get(p)
        if group is None:
            self._pending[p] = PendingGradient(self._reduce(p))
        elif all(each in self._pending and not self._delay[each] for each in group):
            self._start_group(group)

    def _start_group(self, group: list[Tensor]) -> None:
        dense = [p for p in group if p.grad is None or not p.grad.is_sparse or self.sparse_as_dense]
        for p in group:
            if not any(p is each for each in dense):
                self._pending[p] = PendingGradient(self._reduce(p))
        prepared = [self._prepare(p) for p in dense]
        name = self._group_names[id(group)]
        handle = ops.grouped_allreduce_async_(
            [values for values, _ in prepared], None, name, self._op, *self._factors, self.process_set
        )
        finishing = _Once(lambda: ops.synchronize(handle))

        def finish_of(p: Tensor, values: Tensor, put: Callable[[Tensor], None]) -> Callable[[], None]:
            def finish() -> None:
                finishing()
                put(values)

            return finish

        for p, (values, put) in zip(dense, prepared, strict=True):
            self._pending[p] = PendingGradient(finish_of(p, values, put))

    def _reduce(self, p: Tensor) -> Callable[[], None]:
        """Start the reduction of one gradient; return what waits for it and puts it into its place."""
        name = self._parameter_names[p]
        grad = p.grad
        if grad is None and p in self._sparse:  # missing here: others gather their rows under this name
            grad = p.grad = torch.zeros_like(p).to_sparse(1)
        if grad is not None and grad.is_sparse and not self.sparse_as_dense:
            self._sparse.add(p)
            result = ops.sparse_allreduce_async(grad, name, self._op, self.process_set)

            def finish_sparse() -> None:
                p.grad = result()

            return finish_sparse
        values, put = self._prepare(p)
        op = ops.start_allreduce(
            values, None, name, self._op, *self._factors, self.process_set, in_place=True
        )

        def finish() -> None:
            ops.wait_for(op)
            put(values)

        return finish

    def _prepare(self, p: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return the values of a gradient that travel, and what puts the result into its place."""
        grad = p.grad
        if not p.requires_grad:  # frozen meanwhile: others may wait for it, but nothing comes of it here
            return torch.zeros_like(p), _ignore
        if grad is None:
            grad = p.grad = torch.zeros_like(p)
        if grad.is_sparse:
            return self._prepare_dense(p, grad)
        values, ctx = self._compression.compress(grad)
        values = values.contiguous()
        if values is grad:
            return values, _ignore

        def put(reduced: Tensor) -> None:
            with torch.no_grad():
                grad.copy_(self._compression.decompress(reduced, ctx))

        return values, put

    def _prepare_dense(self, p: Tensor, grad: Tensor) -> tuple[Tensor, Callable[[Tensor], None]]:
        """Return a sparse gradient as a dense one; it is left so but for an optimizer of sparse gradients alone."""
        values, ctx = self._compression.compress(grad.to_dense())

        def put(reduced: Tensor) -> None:
            made = self._compression.decompress(reduced, ctx)
            p.grad = made.to_sparse(grad.sparse_dim()) if isinstance(self, torch.optim.SparseAdam) else made

        return values.contiguous(), put

    # -- what scripts call ----------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all gradients are reduced; those that are missing count as zeros."""
        if self._alone:
            self._pending.clear()
            self._synchronized = True
            return
        for p in self._hooked:
            if p.requires_grad:
                self._wanted.add(p)
        for p in self._ordered(self._wanted):
            pending = self._pending.get(p)
            if pending is None or not pending.started:
                self._delay[p] = 0
                if pending is None:
                    self._pending[p] = PendingGradient(None)
        for p in self._ordered(self._wanted):
            if not self._pending[p].started:
                self._start(p)
        pending_now, self._pending = self._pending, {}
        for p in pending_now:
            self._delay[p] = self.backward_passes_per_step
        for pending in pending_now.values():
            assert pending.finish is not None
            pending.finish()
        self._synchronized = True

    def _ordered(self, parameters: set[Tensor]) -> Iterator[Tensor]:
        return (p for group in self.param_groups for p in group["params"] if p in parameters)

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Have `step` not reduce gradients, as `synchronize` has been called."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Reduce gradients after a number of backward passes, whose gradients are summed."""
        check_passes(passes)
        self.backward_passes_per_step = passes
        for p in self._delay:
            self._delay[p] = passes

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Wait for all gradients, then step as the wrapped optimizer does."""
        if closure is not None and self._should_synchronize:
            given = closure

            def closure() -> Any:
                loss = given()
                self.synchronize()
                return loss

        elif self._should_synchronize:
            if self._synchronized:
                warnings.warn(STEP_AFTER_SYNCHRONIZE, stacklevel=3)
            self.synchronize()
        result = self.step_locally(closure)
        self._synchronized = False
        self._original._opt_called = True  # type: ignore[attr-defined]  # for a scheduler that knows that one
        return result

    def step_locally(self, closure: Callable[[], Any] | None = None) -> Any:
        """Step as the wrapped optimizer does, with the gradients there are."""
        return super().step(closure) if closure is not None else super().step()  # type: ignore[misc]

    def zero_grad(self, *args: Any, **kwargs: Any) -> Any:
        if self._pending:
            raise AssertionError(ZERO_GRAD_TOO_EARLY)
        return super().zero_grad(*args, **kwargs)  # type: ignore[misc]

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state, and forget reductions that were under way: those of a world that is gone failed."""
        self._pending = {}
        self._synchronized, self._should_synchronize = False, True
        self.set_backward_passes_per_step(self.backward_passes_per_step)
        return super().load_state_dict(*args, **kwargs)  # type: ignore[misc]


def _ignore(_: Tensor) -> None:
    return None


class _Once:
    """A function that is called once, however often it is asked for."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] | None = call

    def __call__(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


def _unique(groups: Iterable[list[Tensor]]) -> list[list[Tensor]]:
    return list({id(group): group for group in groups}.values())


def check_passes(passes: int) -> None:
    """Refuse a number of backward passes that is not above 0."""
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be above 0, got {passes}")
