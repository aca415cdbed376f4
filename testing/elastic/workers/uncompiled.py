"""torch's optimizers import its compiler, which takes longer than torch itself, at each start of a worker.

The workers here compile nothing, and are started hundreds of times: they go without.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch


def without_compiler() -> None:
    """Stand in for the few names of torch's compiler that optimizers and groups call; any other is an error."""
    stand_in: Any = ModuleType("torch._dynamo")
    stand_in.disable = lambda function, *_, **__: function
    stand_in.graph_break = lambda: None
    stand_in.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo = stand_in
