"""Steps recorded from models and scripts, and links that were measured."""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from weft.errors import UsageError
from weft.launch.preflight.speeds import MeasuredLink
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.recording import sources
from weft.parallel.recording.launching import record_script, recording_launch, step_text
from weft.parallel.recording.layers import layers_of, own_parameters
from weft.parallel.recording.recorder import PassClock, record_step, watched


class Waiting(nn.Module):
    """A layer that takes a known time, forward and backward."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear, self.seconds = nn.Linear(16, 16), seconds

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        result: torch.Tensor = self.linear(rows)
        result.register_hook(lambda gradient: time.sleep(2 * self.seconds))  # type: ignore[no-untyped-call]
        return result * 1


class Net(nn.Module):
    """An embedding, blocks and a head, as transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.blocks = nn.ModuleList(Waiting(0.02 * (number + 1)) for number in range(3))
        self.head = nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = self.embedding(tokens)
        for block in self.blocks:
            rows = block(rows)
        result: torch.Tensor = self.head(rows) * self.scale
        return result


def test_blocks_are_layers() -> None:
    net = Net()
    layers = layers_of(net)
    assert list(layers) == ["embedding", "blocks.0", "blocks.1", "blocks.2", "head"]
    owned = own_parameters(net, layers)
    assert sum(len(each) for each in owned.values()) == len(list(net.parameters()))
    assert owned["model"] == [net.scale]
    assert list(layers_of(nn.Linear(2, 2))) == ["model"]


def test_parameters_that_two_layers_share_count_once() -> None:
    net = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    net["b"].weight = net["a"].weight
    owned = own_parameters(net, layers_of(net))
    assert [len(each) for each in owned.values()] == [2, 1]


def test_a_step_is_recorded_layer_by_layer() -> None:
    record = record_step(Net(), [torch.zeros(8, dtype=torch.int64)], passes=2, repeats=2)
    times = {layer.name: layer for layer in record.layers}
    assert record.passes == 2
    assert record.samples == 8
    assert record.timed
    for number in range(3):
        layer = times[f"blocks.{number}"]
        assert layer.forward_s >= 0.02 * (number + 1)
        assert layer.backward_s >= 0.04 * (number + 1)
        assert layer.parameter_bytes == layer.gradient_bytes == (16 * 16 + 16) * 4
        assert layer.activation_bytes >= 8 * 16 * 4
    assert times["blocks.2"].forward_s > times["blocks.0"].forward_s
    assert record.parameter_bytes == sum(one.nbytes for one in Net().parameters())
    assert record.optimizer_bytes == 2 * record.gradient_bytes


def test_shapes_alone_give_operations() -> None:
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 32))
        rows = torch.zeros(16, 64)
    record = record_step(net, [rows], flops=1e6, device="h100")
    first, second = record.layers
    assert not record.timed
    assert first.forward_s == pytest.approx(2 * 16 * 64 * 128 / 1e6)
    assert second.forward_s == pytest.approx(2 * 16 * 128 * 32 / 1e6)
    assert second.backward_s == pytest.approx(2 * second.forward_s)


class Rectified(nn.Module):
    """A block that must be computed again as a whole for its backward part."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(rows))


class Odd(nn.Module):
    """A trunk that is not trained, blocks that are computed again in the backward pass, and two losses."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.trunk = nn.Linear(16, 16).requires_grad_(False)
        self.blocks = nn.ModuleList(Rectified() for _ in range(2))
        self.first, self.second = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            rows = self.trunk(rows)
        rows.requires_grad_()
        for block in self.blocks:
            rows = checkpoint(block, rows, use_reentrant=self.reentrant)
        return self.first(rows), self.second(rows)


@pytest.mark.parametrize("reentrant", [False, True])
def test_each_layer_has_what_it_computes_in_the_backward_pass(reentrant: bool) -> None:
    with torch.device("meta"):
        net, rows = Odd(reentrant=reentrant), torch.zeros(8, 16)
    record = record_step(net, [rows], flops=1.0, device="h100")
    layers = {layer.name: layer for layer in record.layers}
    once = 2.0 * 8 * 16 * 16
    assert (layers["trunk"].forward_s, layers["trunk"].backward_s) == (once, 0.0)
    for number in range(2):
        block = layers[f"blocks.{number}"]
        assert (block.forward_s, block.backward_s) == (once, 3 * once)  # forward again, and both gradients
    assert record.forward_s == 3 * once + 2 * once / 4
    assert record.activation_bytes <= 6 * rows.nbytes


def test_a_pass_may_have_several_backward_parts() -> None:
    layers = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
    ticks, rows = itertools.count(), torch.zeros(2, 4)
    clock = PassClock(nn.ModuleDict(layers), lambda: float(next(ticks)))
    with watched(dict(layers), lambda: clock):
        for loss in [layer(rows).sum() for layer in layers.values()]:
            loss.backward()
        spent = clock.spent()
        with torch.no_grad():
            layers["a"](rows)  # an evaluation after the pass
    assert min(spent[name, forward] for name in layers for forward in (True, False)) > 0
    assert clock.spent() == spent


def test_optimizer_state_is_counted_by_class() -> None:
    net = nn.Linear(8, 8)
    record = record_step(
        net, [torch.zeros(2, 8)], optimizer=torch.optim.SGD(net.parameters(), 0.1), repeats=1
    )
    assert record.optimizer_bytes == 0
    assert all(one.grad is None for one in net.parameters())


def test_models_that_do_not_run_are_refused() -> None:
    with pytest.raises(UsageError, match="must run forward and backward"):
        record_step(nn.Linear(8, 8), [torch.zeros(2, 7)])
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(UsageError, match="gradient"):
        record_step(frozen, [torch.zeros(2, 2)])


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
for step in range({steps}):
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
print("the end")
"""


def test_a_script_is_recorded_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT.format(steps=1_000_000))
    record = record_script("train.py")
    assert (record.name, record.passes, len(record.layers)) == ("train", 2, 2)
    assert record.optimizer_bytes >= 2 * record.gradient_bytes
    Path("step.json").write_text(step_text(record))
    assert sources.read_step(Path("step.json")) == record
    Path("short.py").write_text(SCRIPT.format(steps=1))
    with pytest.raises(UsageError, match="must train for two steps"):
        record_script("short.py")


APPLYING = """
import torch, weft, weft.parallel
weft.init()
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
rows = torch.randn(4, 8)
model, optimizer = weft.parallel.apply(model, optimizer, plan={plan}, batch=[rows], passes=2)
while True:
    for number in range(2):
        with weft.parallel.micro_batch(model, last=number == 1):
            model(rows).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("plan", ["'auto'", pytest.param("'not-there-yet.json'", marks=pytest.mark.long)])
def test_a_script_that_applies_its_plan_is_recorded_without_one(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(APPLYING.format(plan=plan))
    record = record_script("train.py")
    assert (record.name, record.passes, len(record.layers)) == ("train", 2, 2)


SHARING = """
import os, torch, weft
weft.init()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
batch = weft.size() * 10 + len(os.sched_getaffinity(0))
while True:
    model(torch.randn(batch, 4)).sum().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_a_worker_is_recorded_on_its_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SHARING)
    cores = len(os.sched_getaffinity(0))
    assert record_script("train.py", workers=2).samples == 10 + max(1, cores // 2)


def test_a_script_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="must be a file"):
        recording_launch("nowhere.py", (), None)


def links(*pairs: tuple[str, str, float]) -> dict[tuple[str, str], MeasuredLink]:
    return {(a, b): MeasuredLink(source=a, target=b, mbps=mbps, rtt_ms=0.1) for a, b, mbps in pairs}


def test_the_slowest_link_counts() -> None:
    found = sources.measured_cluster(("a", "b"), 2, links(("a", "b", 940.0), ("b", "a", 800.0)))
    assert found.card_bps == 1e8
    assert found.world == 4


def test_links_never_measured_are_refused() -> None:
    with pytest.raises(UsageError, match="none from b to a; run weft check -H a,b"):
        sources.measured_cluster(("a", "b"), 1, links(("a", "b", 940.0)))
    failed = {("a", "b"): MeasuredLink(source="a", target="b", error="timed out")}
    with pytest.raises(UsageError, match="got timed out from a to b; run weft check -H a,b and mend"):
        sources.measured_cluster(("a", "b"), 1, failed)


def test_a_table_of_the_collectives_is_fitted(tmp_path: Path) -> None:
    cluster = ClusterFacts(hosts=("a", "b"), workers_per_host=1, card_bps=1e8)
    rows = [
        {"operation": "all_reduce", "backend": "weft", "size": size, "time_s": 0.002 + size / 5e7}
        for size in (1 << 10, 1 << 20, 1 << 24)
    ]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"hosts": 2, "world": 2, "rows": rows}))
    speed = sources.with_bench(cluster, path).measured["all_reduce"]
    assert speed.fixed_s == pytest.approx(0.002, rel=0.01)
    assert speed.card_bps == pytest.approx(5e7, rel=0.01)
    path.write_text(json.dumps({"hosts": 4, "world": 8, "rows": rows}))
    with pytest.raises(UsageError, match="measured on the hosts of the plan"):
        sources.with_bench(cluster, path)


def test_factories_and_batches_are_checked(tmp_path: Path) -> None:
    nets = tmp_path / "nets.py"
    nets.write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 4)\ndef wrong():\n    return 3\n"
        "def raising():\n    raise ValueError('one\\ntwo')\n"
    )
    record = sources.record_factory(f"{nets}:make", "2x4", flops=1e9)
    assert record.parameter_bytes == 80
    for factory, batch, says in (
        (f"{nets}:wrong", "2x4", "must give a torch.nn.Module"),
        (f"{nets}:missing", "2x4", "must have a function"),
        (f"{nets}:raising", "2x4", "got ValueError: one; mend it"),
        (f"{tmp_path}/none.py:make", "2x4", "not there"),
        ("nets", "2x4", "module:factory"),
        (f"{nets}:make", "2x5", "must run forward and backward"),
        (f"{nets}:make", "2xx", "must be shapes"),
        (f"{nets}:make", "2x4:complicated", "must name a type"),
    ):
        with pytest.raises(UsageError, match=says):
            sources.record_factory(factory, batch, flops=1e9)


BROUGHT = """
import time, torch
from torch import nn
body, head = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), nn.Linear(8, 2)
model = nn.Sequential(body, head)
optimizers = [torch.optim.AdamW(body.parameters()), torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)]
def loss_of(rows):
    time.sleep(0.01)
    return model(rows).square().mean()
while True:
    time.sleep(0.05)
    anchor, other = torch.randn(4, 8), torch.randn(4, 8)
    loss = (loss_of(anchor) - loss_of(other)).abs() + loss_of(anchor)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.long
def test_one_loss_of_several_forward_parts_is_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("siamese.py").write_text(BROUGHT)
    record = record_script("siamese.py")
    assert record.passes == 1
    body, head = 2 * (8 * 8 + 8) * 4, (8 * 2 + 2) * 4
    assert record.optimizer_bytes == pytest.approx(
        2 * body + head, abs=64
    )  # of both; and Adam's counts of steps
    assert record.other_s >= 0.05
    assert record.forward_s < 0.05


class Named(nn.Module):
    """A model whose inputs have names, and which gives its loss if it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, *, ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        scores = self.head(self.embedding(ids))
        if labels is None:
            return {"scores": scores}
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), "scores": scores}


def test_a_batch_may_have_names_or_be_a_tensor(tmp_path: Path) -> None:
    ids = torch.zeros(4, 6, dtype=torch.int64)
    seen: list[torch.Tensor] = []

    def loss(output: dict[str, torch.Tensor]) -> torch.Tensor:
        seen.append(output["loss"])
        return output["loss"]

    record = record_step(Named(), {"ids": ids, "labels": ids}, loss=loss, repeats=1)
    assert record.samples == 4
    assert seen
    assert record_step(nn.Linear(4, 2), torch.zeros(3, 4), repeats=1).samples == 3
    nets = tmp_path / "nets.py"
    nets.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Embedding(9, 4)\n    def forward(self, scale, *, ids):\n"
        "        return self.a(ids) * scale\n"
    )
    made = sources.record_factory(f"{nets}:Net", "ids=5x6:int64,scale=1", flops=1e9)
    assert made.parameter_bytes == 9 * 4 * 4
    for batch in ("ids=5x6:int64,1", "ids=5x6,ids=5x6"):
        with pytest.raises(UsageError, match="must name all inputs, each once, or none"):
            sources.record_factory(f"{nets}:Net", batch, flops=1e9)


ADVERSARIES = """
import torch
from torch import nn
from torch.nn.parallel import DataParallel
maker = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
judge = DataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
teacher = nn.Linear(4, 4)
makers, judges = torch.optim.Adam(maker.parameters()), torch.optim.SGD(judge.parameters(), 0.1)
while True:
    with torch.no_grad():
        teacher(torch.randn(2, 4))
    made = maker(torch.randn(2, 4))
    judges.zero_grad()
    (judge(made.detach()).mean() - judge(torch.randn(2, 4)).mean()).backward()
    judges.step()
    makers.zero_grad()
    judge(made).mean().backward()
    makers.step()
"""

PARTS = """
import torch
from torch import nn
model = nn.ModuleDict({"encoder": nn.Linear(4, 8), "decoder": nn.Linear(8, 4)})
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=3)
rows = torch.randn(16, 4)
def closure():
    optimizer.zero_grad()
    loss = (model["decoder"](model["encoder"](rows)) - rows).square().mean()
    loss.backward()
    return loss
while True:
    optimizer.step(closure)
"""


@pytest.mark.long
def test_all_models_that_a_script_calls_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("adversaries.py").write_text(ADVERSARIES)
    record = record_script("adversaries.py")
    maker, judge = 4 * (4 * 8 + 8 + 8 * 4 + 4), 4 * (4 * 8 + 8 + 8 + 1)
    assert record.parameter_bytes == maker + judge
    assert record.passes == 2
    assert record.optimizer_bytes == pytest.approx(2 * maker, abs=64)
    assert all(layer.backward_s > 0 for layer in record.layers if layer.parameter_bytes)
    Path("parts.py").write_text(PARTS)
    record = record_script("parts.py")
    assert record.parameter_bytes == 4 * (4 * 8 + 8 + 8 * 4 + 4)
    assert record.passes >= 3
    assert record.optimizer_s < 0.9 * record.compute_s


class Shell(nn.Module):
    """A model that only holds another one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def test_what_wraps_a_model_is_no_layer() -> None:
    assert list(layers_of(Shell(Net()))) == [f"inner.{name}" for name in layers_of(Net())]
    assert list(layers_of(Shell(nn.MultiheadAttention(4, 2)))) == ["inner"]


def test_a_model_is_left_as_it_was() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    torch.manual_seed(1)
    before = [one.clone() for one in net.state_dict().values()]
    record_step(net, [torch.randn(8, 4, generator=torch.Generator().manual_seed(0))], repeats=1)
    after = list(net.state_dict().values())
    assert all(torch.equal(one, was) for one, was in zip(after, before, strict=True))
    drawn = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(1), drawn)
