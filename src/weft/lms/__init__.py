"""Large model support: train to a byte budget.

    from weft import lms

    with lms.fit(limit="20GB"):
        loss = model(batch).sum()
        loss.backward()

The walk of a saved tensor: autograd calls the session's hook (`activations/session.py`), which looks the step's plan up
(`planning/learned.py`) or records the step (`activations/recorder.py`); the engine (`activations/engine.py`) keeps the
tensor, drops it with a recipe to make it again (`activations/recipes.py`, `replay.py`), or has it copied (`mover.py`)
over the link (`device/cuda.py`) to pinned memory (`device/host_memory.py`), and back before the backward pass wants it.

    planning/      decides what to keep, rebuild or swap of a recorded step, by playing it; pure
    activations/   records steps and carries plans out, in autograd's hooks
    paging/        keeps parameters, gradients and optimizer state on the host (`lms.wrap`)
    device/        memory in use and copies: CUDA, a simulated device, host memory, private names of torch
    budget.py      the bytes that all of these share, and who uses them
    tuning.py      every number that was chosen, with its reason

torch is loaded when the first name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "enable": "weft.lms.autoload",
    "estimate": "weft.lms.estimator",
    "fit": "weft.lms.api",
    "forget": "weft.lms.api",
    "lightning_callback": "weft.lms.callbacks",
    "plan": "weft.lms.api",
    "stats": "weft.lms.api",
    "trainer_callback": "weft.lms.callbacks",
    "wrap": "weft.lms.wrapper",
}

__all__ = [
    "enable",
    "estimate",
    "fit",
    "forget",
    "lightning_callback",
    "plan",
    "stats",
    "trainer_callback",
    "wrap",
]

if TYPE_CHECKING:
    from weft.lms.api import fit, forget, plan, stats
    from weft.lms.autoload import enable
    from weft.lms.callbacks import lightning_callback, trainer_callback
    from weft.lms.estimator import estimate
    from weft.lms.wrapper import wrap


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.lms' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
