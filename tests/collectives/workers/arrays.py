"""`weft.allreduce` and its kin, as a script calls them: on one backend, in a world of any size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import weft
from weft.errors import UsageError

weft.init(sys.argv[1])
rank, size = weft.rank(), weft.size()
everyone = range(size)

# NumPy arrays come back as such, and what was given stays as it is.
mine = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
total = weft.allreduce(mine)
assert isinstance(total, np.ndarray)
assert total.dtype == np.float32
np.testing.assert_array_equal(total, size * np.arange(6).reshape(2, 3) + sum(everyone))
np.testing.assert_array_equal(mine, np.arange(6).reshape(2, 3) + rank)
np.testing.assert_allclose(weft.allreduce(mine, "avg"), total / size)
np.testing.assert_array_equal(weft.allreduce(mine, op="max"), np.arange(6).reshape(2, 3) + size - 1)
np.testing.assert_array_equal(weft.allreduce(mine, op="min"), np.arange(6).reshape(2, 3))
assert weft.allreduce(np.float64(rank + 1), "product") == np.prod([r + 1 for r in everyone])
assert weft.allreduce(np.array(rank)).shape == ()
assert weft.allreduce(np.array([rank + 2]), "avg").tolist() == [sum(r + 2 for r in everyone) // size]

# So do tensors, strided ones and those that want gradients too.
tensor = torch.arange(6.0).view(2, 3).t()
assert torch.equal(weft.allreduce(tensor), tensor * size)
leaf = torch.ones(3, requires_grad=True)
assert not weft.allreduce(leaf).requires_grad
assert torch.equal(weft.allreduce(leaf, inplace=True), torch.full((3,), float(size)))
assert leaf.tolist() == [size] * 3
strided = np.zeros((4, 4))[::2, 1]
strided += 1
assert weft.allreduce(strided, inplace=True) is strided
assert strided.tolist() == [size] * 2
frozen = np.ones(3)
frozen.flags.writeable = False
assert weft.allreduce(frozen).tolist() == [size] * 3

mixed: list[Any] = [mine, torch.ones(2, 2), np.array([rank], dtype=np.int64)]
several = weft.allreduce_n(mixed)
assert [type(one) for one in several] == [np.ndarray, torch.Tensor, np.ndarray]
np.testing.assert_array_equal(several[0], total)
assert several[1].shape == (2, 2)
assert several[2].tolist() == [sum(everyone)]
assert weft.allreduce_n([]) == []

# In place, whatever is contiguous or not, of one type or another, small or larger than what goes at once.
grads = [torch.full((3, 2), rank + 1.0), torch.full((2, 3), rank + 1.0).t(), torch.tensor(rank + 1.0)]
grads += [torch.full((700_000,), rank + 1.0), torch.full((2,), rank + 1), torch.empty(0)]
reduced = weft.allreduce_n(grads, "avg", inplace=True)
assert all(one is grad for one, grad in zip(reduced, grads, strict=True))
for grad in grads:
    mean = sum(r + 1 for r in everyone) / size
    assert (grad == (mean if grad.is_floating_point() else int(mean))).all()

np.testing.assert_array_equal(weft.broadcast(mine, size - 1), np.arange(6).reshape(2, 3) + size - 1)

rows = weft.allgather(np.full((rank + 1, 2), rank))
np.testing.assert_array_equal(rows, np.concatenate([np.full((r + 1, 2), r) for r in everyone]))
assert weft.allgather(torch.tensor(float(rank))).tolist() == list(everyone)
assert weft.allgather(np.zeros((0, 3))).shape == (0, 3)

length = 2 * size + 1  # does not divide
part = weft.reduce_scatter(torch.arange(float(length)), "avg")
assert part.tolist() == torch.arange(float(length)).tensor_split(size)[rank].tolist()

sent = np.array([10 * rank + r for r in everyone])
assert weft.alltoall(sent).tolist() == [10 * r + rank for r in everyone]
uneven = torch.cat([torch.full((r,), float(rank)) for r in everyone])  # r values for rank r
assert weft.alltoall(uneven, list(everyone)).tolist() == [float(r) for r in everyone for _ in range(rank)]

weft.barrier()

refused: list[tuple[Callable[[], Any], str]] = [
    (lambda: weft.allreduce(mine, "median"), "op must be one of sum, avg, min, max, product, got 'median'"),
    (lambda: weft.allreduce([1, 2]), "must be a NumPy array or a torch tensor, got list"),
    (lambda: weft.allreduce(np.array(["a"])), "of a type that torch knows too, got <U1"),
    (lambda: weft.broadcast(mine, size), f"must be a rank from 0 to {size - 1}, got {size}"),
    (lambda: weft.alltoall(np.zeros(size + 1), [1] * size), "that add up to the first dimension"),
    (lambda: weft.reduce_scatter(np.array(1.0)), "a dimension to cut"),
]


def said_by(call: Callable[[], Any]) -> str:
    # Not pytest.raises: it keeps the frames, they keep the group, and Gloo cannot bear to be there at exit.
    try:
        call()
    except UsageError as error:
        return str(error)
    return "nothing"


for call, complaint in refused:
    assert complaint in said_by(call), said_by(call)

weft.shutdown()
print("as it should be\n", end="", flush=True)
