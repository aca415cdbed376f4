"""A whole script under a budget; callbacks for trainers, which stand here as what they call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from testing.families import GptBlock, Transformer
from testing.forking.server import ForkServer
from torch import nn

from weft import lms
from weft.errors import UsageError
from weft.lms.autoload import check_limit, disable, enable, enable_from_env
from weft.lms.device.simulated import SimulatedTransfer


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Transformer(3, lambda: GptBlock(32, 4), 32)


@pytest.fixture(autouse=True)
def off_afterwards() -> Iterator[None]:
    yield
    disable()


X = torch.randn(4, 64, 32)


def train(model: nn.Module, steps: int = 5) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()


def test_a_script_that_knows_nothing_of_it(model: nn.Module) -> None:
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), X)
    enable("1200KB", transfer=transfer)
    train(model)
    disable()
    stats = lms.stats()
    assert stats["steps"] == 5
    assert stats["planning_ms"] > 0
    assert not lms.plan().keeps_all
    assert stats["over"] == 0


def test_tensors_on_no_device_are_passed_over(model: nn.Module) -> None:
    enable_from_env({})
    enable_from_env({"WEFT_LMS": "20GB"})
    try:
        train(model, steps=2)
    finally:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def test_the_command_tells_the_workers(tmp_path: Path, forks: ForkServer) -> None:
    script = tmp_path / "train.py"
    script.write_text("import os, torch; print(os.environ['WEFT_LMS'])")
    weft = [forks.weft, "run", "-n", "1"]
    done = subprocess.run(
        [*weft, "--lms", "20GB", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "20GB" in done.stdout
    done = subprocess.run(
        [*weft, "--lms", "plenty", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--lms must be a number of bytes" in done.stderr


def test_the_flag_is_checked_where_it_is_given() -> None:
    assert check_limit("20GB") == "20GB"
    with pytest.raises(UsageError, match="limit must be a number of bytes"):
        check_limit("plenty")


class Base:
    """What the callbacks derive from."""


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, attribute: str) -> None:
    module: Any = ModuleType(name)
    setattr(module, attribute, Base)
    for parent in (name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)):
        monkeypatch.setitem(sys.modules, parent, ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)


def test_lightning(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "lightning.pytorch.callbacks", "Callback")
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), X)
    callback = lms.lightning_callback("1200KB", transfer=transfer)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    callback.on_train_start(None, model)
    for index in range(5):
        callback.on_train_batch_start(None, model, X, index)
        optimizer.zero_grad()
        model(X).square().mean().backward()
        callback.on_before_optimizer_step(None, model, optimizer)
        optimizer.step()
        callback.on_train_batch_end(None, model, None, X, index)
    assert lms.stats()["steps"] == 5
    assert "blocks.0" in lms.plan().explain()


def test_hugging_face(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "transformers", "TrainerCallback")
    transfer = SimulatedTransfer()
    transfer.adopt(*model.parameters(), X)
    callback = lms.trainer_callback("1200KB", transfer=transfer)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    callback.on_train_begin(None, None, None, model=model)
    for _ in range(3):
        callback.on_step_begin(None, None, None)
        optimizer.zero_grad()
        model(X).square().mean().backward()
        callback.on_substep_end(None, None, None)
        model(X).square().mean().backward()
        callback.on_pre_optimizer_step(None, None, None)
        optimizer.step()
        callback.on_step_end(None, None, None)
    callback.on_train_end(None, None, None)
    assert lms.stats()["steps"] == 6


def test_a_trainer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match="transformers must be installed"):
        lms.trainer_callback("1GB")


def test_auto_is_most_of_what_is_free(model: nn.Module) -> None:
    transfer = SimulatedTransfer(limit=1_000_000)
    with lms.fit("auto", transfer=transfer) as session:
        pass
    assert session.limit == 950_000
