# mypy: ignore-errors
"""The surface of `horovod.torch`, on any number of ranks: what scripts rely on, one check after the other."""

import copy
import io
import json
import os
import sys
import warnings
from contextlib import redirect_stderr
from pathlib import Path

import horovod
import horovod.torch as hvd
import torch
from checks import CHECKS, check, raises, same
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import get_process_set_ids_and_ranks
from torch import nn

os.environ["HOROVOD_TIMELINE"] = "DYNAMIC"
SCRATCH = Path(sys.argv[1])


def mine(*shape, dtype=torch.float32):
    return torch.full(shape, R + 1).to(dtype)


@check
def who_we_are():
    assert (int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])) == (R, N)
    assert hvd.local_rank() == R
    assert hvd.local_size() == N
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    assert hvd.is_initialized()
    assert hvd.gloo_built() is True
    raises(ValueError, hvd.mpi_threads_supported)
    hvd.init()  # again: nothing
    assert horovod.__version__


@check
def reductions_of_all_types():
    total = N * (N + 1) // 2
    for dtype in (torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16):
        same(hvd.allreduce(mine(3, dtype=dtype), op=hvd.Sum), [total] * 3)
        same(hvd.allreduce(mine(2, 2, dtype=dtype), op=hvd.Min), [[1, 1], [1, 1]])
        same(hvd.allreduce(mine(2, dtype=dtype), op=hvd.Max), [N, N])
        product = 1
        for rank in range(N):
            product *= rank + 1
        same(hvd.allreduce(mine(2, dtype=dtype), op=hvd.Product), [product] * 2)
    same(hvd.allreduce(mine(5)), [total / N] * 5)
    same(hvd.allreduce(torch.tensor(float(R))), (N - 1) / 2)
    same(hvd.allreduce(torch.empty(0, 3)), torch.empty(0, 3))
    same(hvd.allreduce(torch.full((2,), -3, dtype=torch.int64)), [-3, -3])
    uneven = torch.tensor([-3 if R == 0 else 0, 3 if R == 0 else 0, 49])
    same(hvd.allreduce(uneven), [int(-3 / N), int(3 / N), 49])
    x = mine(4)
    assert hvd.allreduce_(x, op=hvd.Sum) is x
    same(x, [total] * 4)
    for dtype in (torch.bool, torch.uint8, torch.complex64):
        raises(ValueError, lambda dtype=dtype: hvd.allreduce(torch.zeros(2, dtype=dtype)), "type")
    raises(ValueError, lambda: hvd.allreduce(torch.zeros(4, 4).t()[1:]), "contiguous")


@check
def scale_factors():
    total = N * (N + 1) // 2
    same(hvd.allreduce(mine(2), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), [2.0 * total] * 2)
    # Integers are scaled in double precision, and truncated before and after.
    before = sum(int((rank + 1) * 0.7) for rank in range(N))
    got = hvd.allreduce(mine(2, dtype=torch.int32), op=hvd.Sum, prescale_factor=0.7, postscale_factor=1.5)
    same(got, [int(before * 1.5)] * 2)
    same(hvd.allreduce(torch.full((3,), 1.5, dtype=torch.float16), prescale_factor=2.0), [3.0] * 3)


@check
def the_old_way_of_averages():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        same(hvd.allreduce(mine(1), average=False), [N * (N + 1) / 2])
        assert any("deprecated" in str(each.message) for each in told)
    raises(ValueError, lambda: hvd.allreduce(mine(1), average=True, op=hvd.Sum))


@check
def names_not_order():
    names = list(range(60))
    order = names if R == 0 else names[::-1] if R == 1 else names[30:] + names[:30]
    handles = {name: hvd.allreduce_async(torch.full((name + 1,), 1.0 + R), name=f"n{name}") for name in order}
    assert all(isinstance(handle, int) for handle in handles.values())
    for name in names:
        same(hvd.synchronize(handles[name]), [(N + 1) / 2] * (name + 1))
        assert hvd.synchronize(handles[name]) is None
        raises(ValueError, lambda name=name: hvd.poll(handles[name]))


@check
def a_barrier_passes_pending_operations():
    if R == 0:
        handle = hvd.allreduce_async(mine(2), name="late", op=hvd.Sum)
        assert N == 1 or not hvd.poll(handle)  # alone, nobody else has to come
    hvd.barrier()
    if R > 0:
        handle = hvd.allreduce_async(mine(2), name="late", op=hvd.Sum)
    same(hvd.synchronize(handle), [N * (N + 1) / 2] * 2)
    assert hvd.allreduce_async is not None


@check
def mismatches_are_survived():
    def different(make):
        handle = make()
        error = raises(HorovodInternalError, lambda: hvd.synchronize(handle), "Mismatched")
        same(hvd.allreduce(torch.ones(2), op=hvd.Sum), [N, N])
        return str(error)

    if N == 1:
        return
    assert "shapes" in different(lambda: hvd.allreduce_async(torch.ones(2 + (R == 0)), name="m.shape"))
    dtype = torch.float32 if R == 0 else torch.float64
    assert "types" in different(lambda: hvd.allreduce_async(torch.ones(2, dtype=dtype), name="m.type"))
    op = hvd.Sum if R == 0 else hvd.Max
    assert "operations" in different(lambda: hvd.allreduce_async(torch.ones(2), name="m.op", op=op))
    assert "root" in different(lambda: hvd.broadcast_async(torch.ones(2), min(R, 1), name="m.root"))
    factor = 1.0 + (R == 0)
    assert "prescale" in different(
        lambda: hvd.allreduce_async(torch.ones(2), name="m.scale", prescale_factor=factor)
    )
    assert "shapes" in different(lambda: hvd.allgather_async(torch.ones(2, 2 + (R == 0)), name="m.gather"))
    assert "shapes" in different(lambda: hvd.alltoall_async(torch.ones(2 * N, 2 + (R == 0)), name="m.all"))


@check
def wrong_calls():
    handle = hvd.allreduce_async(torch.ones(2), name="twice")
    if R == 0:
        # The others have not come to their barrier below, and so nothing was agreed on yet with them.
        second = None
        try:
            second = hvd.allreduce_async(torch.ones(2), name="held")
            raises(
                ValueError, lambda: hvd.allreduce_async(torch.ones(2), name="held"), "again"
            ) if N > 1 else None
        finally:
            hvd.barrier()
    else:
        hvd.barrier()
        second = hvd.allreduce_async(torch.ones(2), name="held")
    hvd.synchronize(handle)
    hvd.synchronize(second)
    raises(ValueError, lambda: hvd.broadcast(torch.ones(1), N), "root_rank")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(N), splits=[0] * (N + 1)), "splits")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(N), splits=[1] * (N - 1) + [2]), "splits")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(N), splits=torch.ones(N, dtype=torch.int64)), "int32")
    raises(ValueError, lambda: hvd.alltoall(torch.ones(N + 1))) if N > 1 else None
    raises(ValueError, lambda: hvd.reducescatter(torch.tensor(1.0)), "scalar")
    raises(HorovodInternalError, lambda: hvd.reducescatter(torch.ones(N), op=hvd.Max))
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0])), "registered")
    raises(HorovodInternalError, lambda: hvd.allgather(torch.tensor(1.0)), "scalar")


@check
def copies():
    gathered = hvd.allgather(torch.full((R, 2), R, dtype=torch.uint8))
    same(gathered, [[rank, rank] for rank in range(N) for _ in range(rank)] or torch.empty(0, 2))
    for dtype in (torch.bool, torch.int16, torch.float16):
        assert hvd.allgather(mine(1, dtype=dtype)).dtype == dtype
    same(hvd.broadcast(mine(2, 3), N - 1), torch.full((2, 3), float(N)))
    x = torch.tensor([R % 2 == 0])
    assert hvd.broadcast_(x, 0) is x
    assert x.item()
    rows = torch.arange(N * (R + 1)).repeat_interleave(1)
    got = hvd.alltoall(rows)
    assert len(got) == sum(rank + 1 for rank in range(N))
    splits = torch.tensor([rank + 1 for rank in range(N)], dtype=torch.int32)
    sent = torch.full((int(splits.sum()) + 2, 2), R)
    got, received = hvd.alltoall(sent, splits=splits)
    same(received, torch.full((N,), R + 1))
    same(got, [[rank, rank] for rank in range(N) for _ in range(R + 1)])
    result = hvd.synchronize(hvd.alltoall_async(torch.arange(N)))
    assert isinstance(result, tuple)
    same(result[0], [R] * N)


@check
def rows_of_a_reducescatter():
    whole = torch.arange(2.0 * N + 1).view(-1, 1) * (R + 1)
    total = N * (N + 1) / 2
    got = hvd.reducescatter(whole, op=hvd.Sum)
    first = 2 * R + min(R, 1)
    count = 2 + (R < 1)
    same(got, torch.arange(first, first + count, dtype=torch.float32).view(-1, 1) * total)
    averaged = hvd.reducescatter(whole, prescale_factor=2.0)
    same(averaged, got * 2 / N)
    parts = hvd.grouped_reducescatter([torch.ones(N, 2), torch.ones(N, dtype=torch.int64)], op=hvd.Sum)
    same(parts[1], [N])


@check
def groups():
    made = hvd.grouped_allreduce([mine(2), mine(3, dtype=torch.float64), mine(1)], op=hvd.Sum)
    assert isinstance(made, list)
    assert [len(each) for each in made] == [2, 3, 1]
    same(made[1], [N * (N + 1) / 2] * 3)
    tensors = [mine(2), mine(2)]
    handle = hvd.grouped_allreduce_async_(tensors, name="group")
    result = hvd.synchronize(handle)
    assert isinstance(result, tuple)
    assert result[0] is tensors[0]
    same(tensors[1], [(N + 1) / 2] * 2)
    gathered = hvd.grouped_allgather([torch.full((R + 1,), R), torch.ones(1, 2)])
    assert gathered[0].shape == (N * (N + 1) // 2,)


@check
def gradients_of_operations():
    total = N * (N + 1) / 2
    x = torch.ones(3, requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (R + 1)).sum().backward()
    same(x.grad, [total] * 3)
    x = torch.ones(R + 1, 2, requires_grad=True)
    (hvd.allgather(x) * (R + 1)).sum().backward()
    same(x.grad, torch.full((R + 1, 2), total / N))
    x = torch.ones(2, requires_grad=True)
    (hvd.broadcast(x, 0) * (R + 1)).sum().backward()
    same(x.grad, [total / N if R == 0 else 0.0] * 2)
    x = torch.ones(N + 1, requires_grad=True)
    made, _ = hvd.alltoall(x, splits=[1] * N)
    (made * (R + 1)).sum().backward()
    same(x.grad, [rank + 1.0 for rank in range(N)] + [0.0])
    x = torch.ones(N, 2, requires_grad=True)
    (hvd.reducescatter(x, op=hvd.Sum) * (R + 1)).sum().backward()
    same(x.grad, [[N * (rank + 1.0)] * 2 for rank in range(N)])
    x = torch.ones(2, requires_grad=True)
    sum(each.sum() for each in hvd.grouped_allreduce([x, x * 2], op=hvd.Sum)).backward()
    same(x.grad, [3.0 * N] * 2)


@check
def adasum_of_pairs():
    if N & (N - 1):
        raises(NotImplementedError, lambda: hvd.allreduce(torch.ones(2), op=hvd.Adasum))
        return
    same(hvd.allreduce(torch.ones(4), op=hvd.Adasum), [1.0] * 4)  # parallel: as one of them
    one = torch.zeros(N)
    one[R] = 3.0
    same(hvd.allreduce(one, op=hvd.Adasum), [3.0] * N)  # orthogonal: their sum
    raises(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.int64), op=hvd.Adasum))


@check
def sparse_tensors():
    sparse = torch.sparse_coo_tensor(torch.tensor([[0, R + 1]]), torch.tensor([1.0, 2.0]), (N + 1,))
    made = hvd.sparse_allreduce_async(sparse, name="s", op=hvd.Sum)()
    same(made.to_dense(), [float(N)] + [2.0] * N)
    made = hvd.sparse_allreduce_async(sparse)()
    same(made.to_dense(), [1.0] + [2.0 / N] * N)


@check
def compressions():
    same(hvd.allreduce(mine(3), compression=hvd.Compression.fp16, op=hvd.Sum), [N * (N + 1) / 2] * 3)
    packed, ctx = hvd.Compression.fp16.compress(torch.ones(2, dtype=torch.int64))
    assert packed.dtype == torch.int64
    assert hvd.Compression.fp16.decompress(packed, ctx).dtype == torch.int64


@check
def objects():
    assert hvd.broadcast_object({"rank": R} if R == 0 else None) == {"rank": 0}
    assert hvd.broadcast_object(lambda: R, root_rank=N - 1)() in range(N)
    assert hvd.allgather_object([R] * R) == [[rank] * rank for rank in range(N)]


@check
def tensors_of_inference_mode():
    """Whoever waits may carry out the work of others: its mode must not matter, nor where a tensor was made."""
    with torch.inference_mode():
        ours = [mine(count) for count in (3, 2000)]
    theirs = [mine(count) for count in (3, 2000)]
    total = N * (N + 1) // 2
    for _ in range(2):  # anew, and as it was before
        for tensor in theirs:
            tensor.fill_(R + 1)
        handles = [
            hvd.allreduce_async_(tensor, name=f"mode.{index}", op=hvd.Sum)
            for index, tensor in enumerate((*ours, *theirs))
        ]
        with torch.inference_mode():
            for handle in handles:
                hvd.synchronize(handle)
            made = hvd.allreduce(mine(2), name="mode.made", op=hvd.Sum)
        same(theirs[1][:2], [total, total])
        same(made, [total, total])
        assert not theirs[0].is_inference()
        theirs[0].add_(1.0)
    same(ours[1][:2], [total * N, total * N])


@check
def joining():
    if N == 1:
        assert hvd.join() == 0
        return
    # Rank 0 has fewer batches than the others.
    for _ in range(1 + 2 * (R > 0)):
        same(hvd.allreduce(torch.ones(2), name="batch", op=hvd.Sum)[:0], [])
    if R == 0:
        last = hvd.join()
    else:
        got = hvd.allreduce(torch.ones(2), name="after", op=hvd.Average)
        same(got, [(N - 1) / N] * 2)
        for unnamed in (None, "no"):  # an unnamed one, of which rank 0 knows nothing, too
            raises(
                HorovodInternalError,
                lambda unnamed=unnamed: hvd.allgather(torch.ones(1), name=unnamed),
                "not supported with Join",
            )
        last = hvd.join()
    assert last in range(N)
    assert hvd.allgather_object(last) == [last] * N
    same(hvd.allgather(torch.ones(1)), [1.0] * N)
    same(hvd.allreduce(torch.ones(2), op=hvd.Sum), [N, N])


@check
def process_sets():
    raises(ValueError, lambda: hvd.add_process_set([0]), "HOROVOD_DYNAMIC_PROCESS_SETS")
    assert hvd.global_process_set.size() == N
    assert hvd.global_process_set.rank() == R
    assert get_process_set_ids_and_ranks()[0] == list(range(N))


@check
def sets_of_a_new_world():
    hvd.shutdown()
    raises(ValueError, hvd.rank, "use hvd.init()")
    raises(HorovodInternalError, lambda: hvd.allreduce(torch.ones(1)), "use hvd.init()")
    first = hvd.ProcessSet([0])
    assert first.process_set_id is None
    assert first.size() is None
    raises(ValueError, lambda: hvd.init(process_sets=[[0], hvd.ProcessSet([0])]))
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    if N == 1:
        hvd.init()
        return
    others = hvd.ProcessSet(range(1, N))
    hvd.init(process_sets=[first, others])
    assert (first.process_set_id, others.process_set_id) == (1, 2)
    assert others.size() == N - 1
    assert others.included() == (R > 0)
    if R > 0:
        same(hvd.allreduce(torch.tensor([float(R)]), op=hvd.Sum, process_set=others), [sum(range(N))])
        same(hvd.broadcast(mine(1), 1, process_set=others), [2.0])
        assert others.rank() == R - 1
        raises(ValueError, lambda: hvd.broadcast(mine(1), 0, process_set=others))
    else:
        raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=others), "must be in")
        same(hvd.allgather(torch.ones(2), process_set=first), [1.0, 1.0])
    # Sets do different numbers of unnamed operations, and the world goes on.
    same(hvd.allreduce(torch.ones(1), op=hvd.Sum), [N])
    raises(ValueError, lambda: hvd.add_process_set([0]), "there already")
    raises(ValueError, lambda: hvd.add_process_set(range(N)), "there already")
    assert hvd.remove_process_set(first) is True
    ranks = [0] if N == 2 else [0, 1]
    both = hvd.add_process_set(ranks)
    assert both.process_set_id == 3
    if both.included():
        same(hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=both), [len(ranks)])
    assert hvd.remove_process_set(both) is True
    assert both.process_set_id is None
    assert hvd.remove_process_set(both) is False
    raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=both))
    hvd.barrier()


@check
def many_worlds():
    for number in range(4):
        hvd.shutdown()
        hvd.shutdown()
        hvd.init()
        same(hvd.allreduce(torch.tensor([float(number)])), [float(number)])


@check
def timelines():
    path = SCRATCH / f"timeline-{R}.json"
    hvd.start_timeline(str(path), mark_cycles=True)
    hvd.barrier()
    hvd.allreduce(torch.ones(2), name="timed")
    hvd.stop_timeline()
    if R == 0:
        events = json.loads(path.read_text())
        rows = {event["args"]["name"] for event in events if event.get("name") == "process_name"}
        assert "allreduce.timed" in rows
        names = [event.get("name") for event in events]
        assert "NEGOTIATE_ALLREDUCE" in names
        assert "ALLREDUCE" in names
        assert "CYCLE_START" in names
        assert {str(rank) for rank in range(N)} <= set(names)


@check
def parameters_and_optimizer_states():
    torch.manual_seed(R)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    for name in ("list", "dict", "pairs"):
        params = model.state_dict()
        given = {"list": list(params.values()), "dict": params, "pairs": list(params.items())}[name]
        hvd.broadcast_parameters(given, root_rank=0)
    everyone = hvd.allgather_object([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for other in everyone for a, b in zip(everyone[0], other, strict=True))
    raises(ValueError, lambda: hvd.broadcast_parameters(model.parameters(), 0))
    makers = [
        lambda p: torch.optim.SGD(p, lr=0.1 * (R + 1), momentum=0.9, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, lr=0.1 * (R + 1), betas=(0.5 + 0.1 * R, 0.9), weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ]
    for make in makers:
        optimizer = make(model.parameters())
        before = [p.detach().clone() for p in model.parameters()]
        if R == 0:
            model(torch.ones(8, 4)).sum().backward()
            optimizer.step()
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert optimizer.param_groups[0]["lr"] == 0.1
        assert type(optimizer.param_groups[0].get("betas", ())) is tuple
        states = hvd.allgather_object(optimizer.state_dict()["state"])
        assert all(str(state) == str(states[0]) for state in states)
        fresh = make(model.parameters())
        kept = [p.detach().clone() for p in model.parameters()]
        hvd.broadcast_optimizer_state(fresh, root_rank=0)
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), kept, strict=True))
        assert all(p.grad is not None for p in model.parameters())
        assert len(before) == len(kept)
    lbfgs = torch.optim.LBFGS(model.parameters())
    raises(ValueError, lambda: hvd.broadcast_optimizer_state(lbfgs, 0))


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def batches():
    draw = torch.Generator().manual_seed(7)
    whole = torch.randn(4, 6 * N, 6, generator=draw)
    return [(each, each[R * 6 : (R + 1) * 6]) for each in whole]


def reference(make, batches_):
    """One process with the whole batch."""
    model = make_model()
    optimizer = make(model.parameters())
    for whole, _ in batches_:
        optimizer.zero_grad()
        model(whole).pow(2).mean().backward()
        optimizer.step()
    return model


def assert_alike(model, expected):
    for p, q in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@check
def the_optimizer_trains_as_one_process():
    def adam(params):
        return torch.optim.Adam(params, lr=0.01)

    expected = reference(adam, batches())
    variants = [
        {},
        {"groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.none, "named": False},
    ]
    for options in variants:
        model = make_model()
        named = model.named_parameters() if options.pop("named", True) else None
        if options.get("groups") == 2:
            options = {"groups": [list(model[0].parameters())]} if N == 2 else options
        optimizer = hvd.DistributedOptimizer(adam(model.parameters()), named_parameters=named, **options)
        assert isinstance(optimizer, torch.optim.Adam)
        assert type(optimizer).__name__ == "Adam"
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100)
        for _, part in batches():
            optimizer.zero_grad(set_to_none=True)
            model(part).pow(2).mean().backward()
            optimizer.step()
            scheduler.step()
        assert_alike(model, expected)
    assert optimizer.defaults["lr"] == 0.01


@check
def large_gradients_are_reduced_like_small_ones():
    torch.manual_seed(9)
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(4)))
    hvd.broadcast_parameters(model.state_dict(), 0)
    plain = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    alone = torch.optim.SGD(plain.parameters(), lr=0.1)
    for step in range(4):
        whole = torch.randn(2 * N, 300, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        alone.zero_grad()
        model(whole[2 * R : 2 * R + 2]).pow(2).mean().backward()
        plain(whole).pow(2).mean().backward()
        optimizer.synchronize()
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
        with optimizer.skip_synchronize():
            optimizer.step()
        alone.step()
    assert_alike(model, plain)


@check
def the_optimizer_keeps_state_and_gives_its_errors():
    model = make_model()
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(2, 6)).sum().backward()
    plain.step()
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    assert len(optimizer.state) == 4
    optimizer.zero_grad()
    model(torch.ones(2, 6)).sum().backward()
    if N > 1:
        raises(AssertionError, optimizer.zero_grad, "zero_grad")
        raises(AssertionError, lambda: model(torch.ones(2, 6)).sum().backward(), "backward_passes_per_step")
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    model(torch.ones(2, 6)).sum().backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(each.message) for each in told)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    named = list(model.named_parameters())
    wrong = [
        {"named_parameters": [p for _, p in named]},
        {"named_parameters": named[:-1]},
        {"named_parameters": [("same", p) for _, p in named]},
        {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
        {"backward_passes_per_step": 0},
        {"groups": 0},
        {"groups": [model]},
        {"groups": [[named[0][1]], [named[0][1]]]},
    ]
    for options in wrong:
        raises(ValueError, lambda options=options: hvd.DistributedOptimizer(sgd, **options))


@check
def passes_are_summed_and_unused_parameters_are_zeros():
    model = nn.ModuleList([nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)])
    for p in model.parameters():
        nn.init.ones_(p)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), backward_passes_per_step=2
    )
    for _ in range(2):
        model[0](torch.ones(1, 2)).sum().backward()
    if R == 0:  # the others have no gradient of it
        for _ in range(2):
            model[1](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    same(model[0].weight.detach(), [[-1.0, -1.0]])
    same(model[1].weight.detach(), [[1 - 2 / N] * 2])
    model[1].weight.requires_grad_(False)
    optimizer.set_backward_passes_per_step(1)
    optimizer.zero_grad()
    model[0](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    same(model[1].weight.detach(), [[1 - 2 / N] * 2])
    model[1].weight.requires_grad_(True)
    optimizer.zero_grad()
    model[1](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    same(model[1].weight.detach(), [[-2 / N] * 2])
    loss = optimizer.step(lambda: closing(model, optimizer))
    assert loss is not None


def closing(model, optimizer):
    optimizer.zero_grad()
    loss = model[0](torch.ones(1, 2)).sum()
    loss.backward()
    return loss


@check
def sparse_gradients():
    for dense in (False, True):
        model = nn.Embedding(N + 1, 2, sparse=True)
        nn.init.zeros_(model.weight)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), sparse_as_dense=dense
        )
        model(torch.tensor([0, R + 1])).sum().backward()
        optimizer.step()
        same(model.weight.detach(), [[-1.0] * 2] + [[-1.0 / N] * 2] * N)


@check
def state_of_sparse_gradients_and_integers():
    makers = [
        lambda params: torch.optim.SparseAdam(list(params), lr=0.1),
        lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    ]
    for make in makers:
        model = nn.Embedding(N + 1, 2, sparse=True)
        optimizer = hvd.DistributedOptimizer(make(model.parameters()))
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for _ in range(2):  # new, and then with a state
            hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
            optimizer.zero_grad()
            model(torch.tensor([0, R + 1])).sum().backward()
            optimizer.step()
        everyone = hvd.allgather_object(model.weight.detach())
        assert all(torch.equal(each, everyone[0]) for each in everyone)
    model = nn.Module()
    model.table = nn.Parameter(torch.tensor([1, 3], dtype=torch.int32), requires_grad=False)
    model.weight = nn.Parameter(torch.ones(4))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model.table.grad is None
    optimizer.zero_grad()
    (model.weight * (R + 1)).sum().backward()
    optimizer.step()
    same(model.weight.detach(), [1 - 0.1 * (N + 1) / 2] * 4)


@check
def unnamed_parameters_and_unnamed_operations():
    """A metric may be averaged while gradients are under way, and neither has a name."""
    hvd.shutdown()
    hvd.init()  # both count from the beginning
    model = nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2 * len(list(model.parameters()))):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        same(hvd.allreduce(mine(3), op=hvd.Sum), [N * (N + 1) / 2] * 3)
        optimizer.step()
    names = set(optimizer._parameter_names.values())
    assert len(names) == 2
    assert hvd.allgather_object(names) == [names] * N


@check
def the_adasum_optimizer():
    if N & (N - 1):
        return
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Adasum
    )
    for _, part in batches():
        optimizer.zero_grad()
        model(part).pow(2).mean().backward()
        optimizer.step()
    everyone = hvd.allgather_object([p.detach() for p in model.parameters()])
    assert all(torch.equal(a, b) for other in everyone for a, b in zip(everyone[0], other, strict=True))
    if N > 1:
        raises(AssertionError, optimizer.skip_synchronize)


@check
def synchronized_batch_norm():
    torch.manual_seed(5)
    whole = torch.randn(3 * N + N * (N - 1) // 2, 4, 2)
    first = sum(3 + rank for rank in range(R))
    mine_ = slice(first, first + 3 + R)  # of different sizes
    ours, plain = hvd.SyncBatchNorm(4), nn.BatchNorm1d(4)
    part = whole[mine_].clone().requires_grad_(True)
    expected_in = whole.clone().requires_grad_(True)
    made, expected = ours(part), plain(expected_in)
    torch.testing.assert_close(made, expected[mine_], rtol=1e-4, atol=1e-5)
    weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(1))
    (made * weights[mine_]).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(part.grad, expected_in.grad[mine_], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours.running_mean, plain.running_mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.running_var, plain.running_var, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        hvd.allreduce(ours.weight.grad, op=hvd.Sum), plain.weight.grad, rtol=1e-3, atol=1e-4
    )
    ours.eval()
    assert ours(part).shape == part.shape


@check
def who_is_missing_is_named():
    if N == 1:
        return
    hvd.shutdown()
    os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "0.2"
    hvd.init()
    told = io.StringIO()
    with redirect_stderr(told):
        import logging

        handler = logging.StreamHandler(told)
        logging.getLogger("horovod").addHandler(handler)
        if R == 0:
            handle = hvd.allreduce_async(torch.ones(1), name="waited.for")
            while "waited.for" not in told.getvalue():
                hvd.poll(handle)
        hvd.barrier()
        if R > 0:
            handle = hvd.allreduce_async(torch.ones(1), name="waited.for")
        hvd.synchronize(handle)
        logging.getLogger("horovod").removeHandler(handler)
    if R == 0:
        assert "rank 1: allreduce.waited.for" in told.getvalue()
    del os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"]


@check
def a_rank_that_waits_names_who_is_missing():
    """Rank 0 waits in a synchronous call; rank 1 comes once rank 0 has told that it is missing."""
    if N == 1:
        return
    hvd.shutdown()
    os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"] = "0.2"
    hvd.init()
    import logging

    told = SCRATCH / f"told.{N}"

    class ToFile(logging.Handler):
        def emit(self, record):
            if "rank 1: allreduce.in.vain" in record.getMessage():
                told.touch()

    handler = ToFile()
    logging.getLogger("horovod").addHandler(handler)
    while R == 1 and not told.exists():
        os.sched_yield()
    same(hvd.allreduce(torch.ones(1), name="in.vain", op=hvd.Sum), [float(N)])
    logging.getLogger("horovod").removeHandler(handler)
    del os.environ["HOROVOD_STALL_CHECK_TIME_SECONDS"]


@check
def small_names_that_scripts_import():
    from horovod.common import util
    from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

    assert [util.num_rank_is_power_2(count) for count in (0, 1, 2, 3, 4)] == [False, True, True, False, True]
    assert (util.mpi_built(), util.gloo_built(), util.ddl_built(), util.ccl_built()) == (
        False,
        True,
        False,
        False,
    )
    assert util.nccl_built() == hvd.nccl_built()
    with util.env(WEFT_SURFACE="1", WEFT_OTHER=None):
        assert os.environ["WEFT_SURFACE"] == "1"
    assert "WEFT_SURFACE" not in os.environ
    assert util.is_version_greater_equal_than("2.10.1", "2.9.0")
    assert not util.is_version_greater_equal_than("2.9.0", "2.10.0")
    raises(ValueError, lambda: util.is_version_greater_equal_than("2.9.0", "2.10"))
    assert util.is_iterable("a")
    assert not util.is_iterable(1)
    error = HorovodVersionMismatchError("torch", "2", "1")
    assert str(error) == get_version_mismatch_message("torch", "2", "1")


if __name__ == "__main__":
    raises(ValueError, hvd.size, "use hvd.init()")
    hvd.init()
    R, N = hvd.rank(), hvd.size()
    for each in CHECKS:
        try:
            each()
        except BaseException:
            print(f"rank {R}: {each.__name__} failed", flush=True)
            raise
    print(f"rank {R} of {N}: {len(CHECKS)} checks passed", flush=True)
