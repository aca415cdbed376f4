"""Steps at the peak that checkpointing each block by hand takes, where sizes follow the data or no recipe is known: no
slower than that, and never over it, on a simulated device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise

import pytest
import torch
from testing.families import GptBlock
from testing.tuned_families import GraphBlock
from tests.lms.activations.test_tuned_families import checkpointed
from tests.lms.stage import assert_equal, back
from torch import Tensor, nn

from weft import lms
from weft.errors import BudgetError
from weft.lms.activations.engine import ActivationEngine
from weft.lms.activations.tape import Tape
from weft.lms.blocks.calling import RepeatedBlocks
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.planning.learned import Planning
from weft.lms.planning.playback import play
from weft.lms.planning.recording import Rates, Recording, SavedSite
from weft.lms.planning.search import PlanSoFar, kept

MB = 10**6
Step = Callable[[], Tensor]
Family = tuple["Blocks", Callable[["Blocks", int], Tensor]]


class Blocks(nn.Module):
    """A layer, blocks that are all given the same things, and a loss."""

    def __init__(self, make: Callable[[], nn.Module], layers: int, inside: int, width: int) -> None:
        super().__init__()
        self.inside = nn.Linear(inside, width)
        self.blocks = nn.ModuleList(make() for _ in range(layers))

    def forward(self, x: Tensor, *given: object) -> Tensor:
        x = self.inside(x)
        for block in self.blocks:
            x = block(x, *given)
        return x.square().mean()


class PackedBlock(GptBlock):
    """Attention within each of the sequences that are packed into one row."""

    def forward(self, x: Tensor, ends: list[int]) -> Tensor:  # type: ignore[override]
        parts = [self.attend(self.norm1(x[:, begin:end])) for begin, end in pairwise([0, *ends])]
        x = x + torch.cat(parts, 1)
        return x + self.feed(self.norm2(x))


def graph() -> Family:
    """Edges are computed in the step, and no operation that keeps them tells what they were."""
    x = torch.randn(128, 16)

    def loss(model: Blocks, step: int) -> Tensor:
        ends = torch.arange(512)
        edges = torch.stack((ends % 128, (ends * 7 + 3) % 128))
        result: Tensor = model(x, edges)
        return result

    return Blocks(lambda: GraphBlock(32), 5, 16, 32), loss


def graphs() -> Family:
    """The numbers of nodes and edges are others in each step."""

    def loss(model: Blocks, step: int) -> Tensor:
        drawn = torch.Generator().manual_seed(step)
        nodes = 100 + 7 * (step % 5)
        edges = torch.randint(nodes, (2, 4 * nodes + step), generator=drawn)
        result: Tensor = model(torch.randn(nodes, 16, generator=drawn), edges)
        return result

    return Blocks(lambda: GraphBlock(32), 5, 16, 32), loss


def packed() -> Family:
    """The number of sequences and their lengths are others in each step."""

    def loss(model: Blocks, step: int) -> Tensor:
        drawn = torch.Generator().manual_seed(step)
        lengths = torch.randint(8, 40, (2 + step % 3,), generator=drawn).tolist()
        ends = [end for end in accumulate(lengths) if end < 100] + [128]
        result: Tensor = model(torch.randn(1, 128, 16, generator=drawn), ends)
        return result

    return Blocks(lambda: PackedBlock(32, 4), 5, 16, 32), loss


def device(model: nn.Module) -> SimulatedTransfer:
    transfer = SimulatedTransfer(link=1e9)
    transfer.adopt(*model.parameters())
    return transfer


def by_hand(model: Blocks, loss: Step) -> tuple[float, int]:
    """Return the seconds and the peak of a step with checkpoints."""
    transfer = device(model)
    with checkpointed(model.blocks), transfer.watching():
        transfer.reset_peak()
        back(loss())
    model.zero_grad(set_to_none=True)
    return transfer.clock, transfer.peak()


# Plans of sizes never seen are made for the largest size of a range, an eighth wide.
@pytest.mark.parametrize(("family", "most"), [(graph, 1.03), (graphs, 1.125), (packed, 1.03)])
def test_no_step_is_slower_than_with_checkpoints_by_hand(family: Callable[[], Family], most: float) -> None:
    steps = 10
    torch.manual_seed(0)
    model, loss = family()
    hand = [by_hand(model, partial(loss, model, step)) for step in range(steps)]
    ratios = compared(model, loss, hand, max(peak for _, peak in hand))
    assert max(ratios[-2:]) <= most


def compared(
    model: Blocks, loss: Callable[[Blocks, int], Tensor], hand: list[tuple[float, int]], limit: int
) -> list[float]:
    """Return the seconds of steps within a budget, each over those with checkpoints by hand."""
    transfer, ratios = device(model), []
    for step, (seconds, _) in enumerate(hand):
        model.zero_grad(set_to_none=True)
        back(loss(model, step))
        expected = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        began = transfer.clock
        with lms.fit(limit, transfer=transfer) as session:
            back(loss(model, step))
        ratios.append((transfer.clock - began) / seconds)
        assert_equal(model, expected, f"step {step}")
        del expected
        if step == 2:
            before = session.over  # nothing is known of the first steps
    model.zero_grad(set_to_none=True)
    assert session.over == before
    return ratios


def test_what_comes_back_early_leaves_room_for_what_is_made_again_before_its_use() -> None:
    """The first storage is wanted last. Before that another one is made again: there is no room for both."""
    first = SavedSite(op="first", module="", bytes=4 * MB, pack=0, uses=(5,), held=1)
    source = SavedSite(op="source", module="", bytes=MB, pack=1, uses=(4,), held=2)
    second = replace(source, op="second", bytes=4 * MB, pack=2, uses=(3,), held=3, recipe_s=1e-3, needs=(1,))
    recording = Recording(
        sites=(first, source, second), seconds=(0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.0), other=(MB,) * 7
    )
    timeline = play(recording, ["swap", "keep", "recipe"], Rates(out=1e9, back=1e9), 7 * MB)
    assert timeline.peak <= 7 * MB
    assert [event for event, sites in timeline.fetches.items() if 0 in sites] == [4]


def test_a_tensor_that_a_backward_operation_works_on_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left where it is, and has to move while autograd asks for what the same operation wants next."""
    transfer = SimulatedTransfer(link=1e9)
    engine = ActivationEngine(transfer, 1)
    sites = tuple(SavedSite(op="Mul", module="", bytes=64, pack=n, uses=(3 - n,)) for n in range(2))
    recording = Recording(sites=sites, seconds=(0.0,) * 5, other=(0,) * 5)
    x = torch.randn(16, requires_grad=True)
    with transfer.watching():
        engine.start(1 << 20, kept(recording, 1 << 20), None)
        saved = [x * 2.0, x * 3.0]
        packed = [engine.pack(tensor) for tensor in saved]
        del saved
        monkeypatch.setattr("weft.lms.activations.engine.backward_id", lambda: 1)
        wanted = engine.unpack(packed[1])
        engine.make_room(1 << 30)
        assert torch.equal(wanted, x.detach() * 3.0)


def test_a_tape_that_stopped_holds_nothing() -> None:
    tape, x = Tape(), torch.randn(4)
    tape.clear(frozenset({1}))
    tape.run(torch.ops.aten.sin.default, (x,), {})
    tape.stop()
    y = tape.run(torch.ops.aten.cos.default, (x,), {})
    assert tape.state(y) is None
    tape.clear()
    assert tape.state(tape.run(torch.ops.aten.cos.default, (x,), {})) is not None


def test_a_small_tensor_that_is_larger_than_planned_asks_for_little_room() -> None:
    engine = ActivationEngine(SimulatedTransfer(link=1e9), 1)
    site = SavedSite(op="Mul", module="", bytes=64, pack=0, uses=(1,))
    recording = Recording(sites=(site,), seconds=(0.0,) * 3, other=(MB,) * 3)
    engine.start(10 * MB, kept(recording, 10 * MB), None, varied=True)
    engine._note_size(0, 10 * 64)
    assert MB < engine._spare() < 1.3 * MB


def test_an_error_of_the_user_is_told_where_no_plan_fits_without_calling_modules_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_plan(*_: object, **__: object) -> PlanSoFar:
        raise BudgetError("no plan fits")

    monkeypatch.setattr(Planning, "_planned_with_margin", no_plan)
    torch.manual_seed(0)
    model, loss = graph()
    _, limit = by_hand(model, partial(loss, model, 0))
    transfer = device(model)
    with lms.fit(limit, transfer=transfer) as session:
        back(loss(model, 0))
    assert all(shape.without for shape in session.planning.shapes.known.values())
    for step in range(1, 3):  # in one of these, modules are tried
        with pytest.raises(ZeroDivisionError), lms.fit(limit, transfer=transfer):
            loss(model, step) / (1 // 0)

    def run() -> None:
        with lms.fit(limit, transfer=transfer):
            back(loss(model, 3))

    run()  # recorded anew
    monkeypatch.setattr(RepeatedBlocks, "may_repeat", lambda *_: False)
    with pytest.raises(BudgetError, match="no plan fits"):
        run()
