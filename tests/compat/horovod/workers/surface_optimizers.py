# mypy: ignore-errors
"""Optimizers of `horovod.torch`: what is reduced, when, and what a single process would have learned."""

import copy
import sys
import warnings
from pathlib import Path

import horovod.torch as hvd
import torch
from checks import check, mine, raises, same
from torch import nn

SCRATCH = Path(sys.argv[1])

R, N = hvd.rank(), hvd.size()


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
