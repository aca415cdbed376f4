"""The plan that `weft run --plan` hands to its workers, and what of it needs no code in a script.

torch calls `autoload` itself when it is imported (the entry point `torch.backends`). The wire is the launcher's to set;
here DDP gets the planned size of its buckets where the script gives none, and steps are compared with the prediction.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

from weft.launch.environment import PLAN_VARIABLE
from weft.parallel.planning.plan_file import ParallelPlan, plan_from


def plan_from_env(environ: Mapping[str, str]) -> ParallelPlan | None:
    """Return the plan of this run, if its launcher gave one."""
    packed = environ.get(PLAN_VARIABLE)
    if not packed:
        return None
    text = zlib.decompress(base64.b64decode(packed)).decode()
    return plan_from(json.loads(text), Path("the run's plan"))


def autoload() -> None:
    """Use the plan of this run in scripts with plain DDP; torch calls this when it is imported."""
    plan = plan_from_env(os.environ) if PLAN_VARIABLE in os.environ else None
    if plan is None:
        return
    if plan.way.kind == "ddp":
        use_buckets(plan.way.bucket_bytes)
    else:
        tell_of_plain_ddp(plan.way.kind)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from weft.parallel.applying.comparing import StepTimer

    timer = StepTimer(plan)
    register_optimizer_step_post_hook(timer.stepped)


def use_buckets(nbytes: int) -> None:
    """Give DDP buckets of this size where a script gives none; harmless if it is done twice."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.__init__
    if hasattr(original, "__wrapped__"):
        return

    @wraps(original)
    def planned(self: Any, *args: Any, **given: Any) -> None:
        if len(args) <= _BUCKET_POSITION:
            given.setdefault("bucket_cap_mb", max(1, nbytes >> 20))
        original(self, *args, **given)

    DistributedDataParallel.__init__ = planned  # type: ignore[method-assign]


def tell_of_plain_ddp(kind: str) -> None:
    """Say once that a script which wraps its model in DDP by itself does not carry out a plan of another kind."""
    from torch.nn.parallel import DistributedDataParallel

    original = DistributedDataParallel.__init__
    if hasattr(original, "__wrapped__"):
        return
    told = os.environ.get("RANK", "0") != "0"

    @wraps(original)
    def telling(self: Any, *args: Any, **given: Any) -> None:
        nonlocal told
        if not told and not _by_a_plan.get():
            told = True
            print(
                f"weft: the plan of this run is {kind}, which needs weft.parallel.apply in the script; it wraps its "
                "model in DDP by itself, and steps are compared with what was predicted of the plan",
                file=sys.stderr,
                flush=True,
            )
        original(self, *args, **given)

    DistributedDataParallel.__init__ = telling  # type: ignore[method-assign]


@contextmanager
def by_a_plan() -> Iterator[None]:
    """Let DDP be made as a plan has it."""
    before = _by_a_plan.set(True)
    try:
        yield
    finally:
        _by_a_plan.reset(before)


_by_a_plan: ContextVar[bool] = ContextVar("weft_by_a_plan", default=False)
_BUCKET_POSITION = 6  # of bucket_cap_mb among the arguments of DDP
