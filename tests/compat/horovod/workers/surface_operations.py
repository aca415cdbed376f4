# mypy: ignore-errors
"""Operations of `horovod.torch` in one world: reductions, gathers, copies, groups, their gradients, joining."""

import os
import sys
import warnings
from pathlib import Path

import horovod
import horovod.torch as hvd
import torch
from checks import check, mine, raises, same
from horovod.common.exceptions import HorovodInternalError

SCRATCH = Path(sys.argv[1])

R, N = hvd.rank(), hvd.size()


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
