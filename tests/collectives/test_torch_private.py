"""The private names of torch that the collectives use are where `torch_private.py` says; and nowhere else used."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import weft.collectives
from weft.collectives import torch_private
from weft.collectives.register import NAMES, autoload

PACKAGE = Path(weft.collectives.__file__).parent


def test_no_other_file_reaches_into_torch() -> None:
    private = re.compile(r"torch\._(?!_version__)|\bdist\.Backend\._|distributed_c10d|\bc10d\._")
    found = [path.name for path in PACKAGE.rglob("*.py") if private.search(path.read_text())]
    assert found == ["torch_private.py"]


def test_the_names_are_there() -> None:
    autoload()
    assert all(torch_private.is_registered(name) for name in NAMES)
    assert not torch_private.is_registered("pigeon")
    assert torch_private.groups_of_process() == torch_private.backends_of_process() == []
    assert torch_private.backends_in("gloo") == torch_private.backends_in("cpu:gloo") == {"gloo"}
    assert torch_private.backends_in("cpu:gloo,cuda:nccl") == {"gloo", "nccl"}
    helper: Any = c10d
    given = inspect.signature(helper._new_process_group_helper).parameters
    assert {"backend", "global_ranks_in_group"} <= given.keys()
    group: Any = dist.ProcessGroup
    assert {"_device_types", "_get_backend", "monitored_barrier", "name"} <= set(dir(group))


def test_the_monitored_barrier_of_torch_is_wrapped_once() -> None:
    autoload()
    autoload()
    wrapped: Any = vars(dist)["monitored_barrier"]
    assert wrapped is vars(c10d)["monitored_barrier"]
    assert not hasattr(wrapped.__wrapped__, "__wrapped__")
