# mypy: ignore-errors
"""More of what scripts of `horovod.torch` rely on, on any number of ranks; each check is a world of its own."""

import json
import os
import sys
from pathlib import Path

import horovod.torch as hvd
import torch
from checks import CHECKS, check, raises, same
from horovod.common.elastic import ObjectState
from horovod.common.exceptions import HostsUpdatedInterrupt
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry
from torch import nn

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
SCRATCH = Path(sys.argv[1])


@check
def pictures_with_channels_side_by_side():
    """Their values count and not where they lie: one rank may have them in rows."""
    total = N * (N + 1) // 2
    plain = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    picture = (plain * (R + 1)).contiguous(memory_format=torch.channels_last)
    given = picture if R % 2 == 0 else picture.contiguous()
    same(hvd.allreduce(given, op=hvd.Sum), plain * total)
    same(hvd.allgather(given), torch.cat([plain * (rank + 1) for rank in range(N)]))
    same(hvd.broadcast(given, N - 1), plain * N)
    own = given.clone(memory_format=torch.preserve_format)
    made = hvd.allreduce_(own, name="picture", op=hvd.Sum)
    assert made is own
    assert own.is_contiguous(memory_format=torch.channels_last) == (R % 2 == 0)
    same(own, plain * total)
    hvd.broadcast_(own, 0)
    same(own, plain * total)
    several = [given.clone(memory_format=torch.preserve_format) for _ in range(2)]
    hvd.grouped_allreduce_(several, op=hvd.Sum)
    same(several[1], plain * total)
    wants = given.clone(memory_format=torch.preserve_format).requires_grad_(True)
    hvd.allreduce(wants, op=hvd.Sum).sum().backward()
    same(wants.grad, torch.full_like(wants, float(N)))
    raises(ValueError, lambda: hvd.allreduce(torch.ones(4, 4).t()[:2]), "contiguous")
    raises(ValueError, lambda: hvd.allreduce_(plain.transpose(0, 1)), "contiguous")


@check
def a_timeline_may_be_looked_at_while_it_is_taken():
    hvd.shutdown()
    path = SCRATCH / f"growing-{N}.json"
    os.environ["HOROVOD_TIMELINE"] = str(path)
    hvd.init()
    hvd.allreduce(torch.ones(3), name="early")
    if R == 0:
        text = path.read_text()
        assert "allreduce.early" in text
        assert "NEGOTIATE_ALLREDUCE" in text
        assert json.loads(text + "]")
    hvd.shutdown()
    if R == 0:
        assert json.loads(path.read_text())
    del os.environ["HOROVOD_TIMELINE"]
    hvd.init()


@check
def sets_are_made_of_ranks():
    raises(ValueError, lambda: hvd.ProcessSet(object()))
    raises(ValueError, lambda: hvd.ProcessSet(["a"]))
    assert hvd.ProcessSet(range(2)).ranks == [0, 1]
    if N > 1:
        made = hvd.add_process_set(range(0, N, 2))
        assert made.included() == (R % 2 == 0)
        assert hvd.remove_process_set(made)


@check
def states_hear_of_other_drivers():
    state = ObjectState(hvd.broadcast_object, hvd.rank, step=R)
    state.commit()
    assert state._host_messages.empty()
    for kind, skips in ((HostUpdateResult.added, False), (HostUpdateResult.removed, True)):
        if R == 0:
            state.on_hosts_updated(1.0 + kind, kind)
            assert not state._host_messages.empty()
        error = raises(HostsUpdatedInterrupt, state.check_host_updates)
        assert error.skip_sync is skips
        state.on_reset()
        state.commit()


@check
def states_handle_schedulers_and_kinds_of_the_users_own():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    for _ in range(2 if R == 0 else 5):
        optimizer.step()
        scheduler.step()
    state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler, epoch=R)
    state.sync()
    assert (state.scheduler.last_epoch, state.epoch) == (2, 0)
    assert state.scheduler is scheduler
    assert scheduler.optimizer is optimizer
    assert optimizer.param_groups[0]["lr"] == 0.25
    optimizer.step()
    scheduler.step()
    state.restore()
    assert (scheduler.last_epoch, optimizer.param_groups[0]["lr"]) == (2, 0.25)

    class Counter:
        def __init__(self):
            self.count = R

    class CounterHandler(StateHandler):
        def save(self):
            self.kept = self.value.count

        def restore(self):
            self.value.count = self.kept

        def sync(self):
            self.value.count = hvd.broadcast_object(self.value.count)
            self.save()

    before = get_handler_registry()
    set_handler_registry([*before, (Counter, CounterHandler)])
    counter = Counter()
    own = hvd.elastic.TorchState(counter=counter)
    own.sync()
    assert counter.count == 0
    counter.count = 7
    own.restore()
    assert counter.count == 0
    set_handler_registry(before)


@check
def sparse_gradients_as_dense_ones_for_an_optimizer_of_sparse_ones():
    model = nn.Embedding(N + 1, 2, sparse=True)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, sparse_as_dense=True)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([R])).sum().backward()
        optimizer.step()
    everyone = hvd.allgather_object(model.weight.detach())
    assert all(torch.equal(each, everyone[0]) for each in everyone)


@check
def a_rank_without_a_sparse_gradient_gathers_none():
    model = nn.Embedding(3, 2, sparse=True)
    nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    for step in range(2):
        optimizer.zero_grad()
        if step == 0 or R == 0:
            model(torch.tensor([1])).sum().backward()
        optimizer.step()
    same(model.weight.detach(), [[0.0, 0.0], [-1 - 1 / N] * 2, [0.0, 0.0]])


@check
def names_of_optimizers_and_operations():
    from horovod.torch import mpi_ops
    from horovod.torch.optimizer import _DistributedOptimizer

    wrapped = hvd.DistributedOptimizer(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0))
    assert isinstance(wrapped, _DistributedOptimizer)
    assert isinstance(wrapped, torch.optim.SGD)
    assert mpi_ops.handle_average_backwards_compatibility(None, None) == hvd.Average
    assert mpi_ops.handle_average_backwards_compatibility(hvd.Sum, None) == hvd.Sum
    raises(ValueError, lambda: mpi_ops.handle_average_backwards_compatibility(hvd.Sum, True))


if __name__ == "__main__":
    for each in CHECKS:
        hvd.init()
        R, N = hvd.rank(), hvd.size()
        try:
            each()
        except BaseException:
            print(f"rank {R}: {each.__name__} failed", flush=True)
            raise
        hvd.barrier()
        hvd.shutdown()
    print(f"rank {R} of {N}: {len(CHECKS)} more checks passed", flush=True)
