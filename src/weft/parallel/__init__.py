"""Share a model between hosts in the way that suits their network.

    weft plan train.py -H a,b,c,d                          predict every way, and write the best to a file

    import weft.parallel
    model, optimizer = weft.parallel.apply(model, optimizer, plan="weft-plan.json")

    prediction/    a step, a cluster and a way, and what the way would take: an event simulation; pure
    planning/      which ways there are, which is best and why, the plan file; pure
    simulated/     hosts that are not there: published constants, scaling from 1 to 512 hosts
    recording/     one worker's step: layer by layer, timed or from shapes; links that were measured
    applying/      a plan carried out by torch's own DDP and FSDP2; measured beside predicted

torch is loaded when the first name that needs it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "ClusterFacts": "weft.parallel.prediction.cluster",
    "LayerRecord": "weft.parallel.prediction.step",
    "RecordedStep": "weft.parallel.prediction.step",
    "Way": "weft.parallel.prediction.way",
    "apply": "weft.parallel.applying.apply",
    "candidates": "weft.parallel.planning.candidates",
    "choose": "weft.parallel.planning.choice",
    "micro_batch": "weft.parallel.applying.passes",
    "predict": "weft.parallel.prediction.predict",
    "read_plan": "weft.parallel.planning.plan_file",
    "record_step": "weft.parallel.recording.recorder",
}

__all__ = [
    "ClusterFacts",
    "LayerRecord",
    "RecordedStep",
    "Way",
    "apply",
    "candidates",
    "choose",
    "micro_batch",
    "predict",
    "read_plan",
    "record_step",
]

if TYPE_CHECKING:
    from weft.parallel.applying.apply import apply
    from weft.parallel.applying.passes import micro_batch
    from weft.parallel.planning.candidates import candidates
    from weft.parallel.planning.choice import choose
    from weft.parallel.planning.plan_file import read_plan
    from weft.parallel.prediction.cluster import ClusterFacts
    from weft.parallel.prediction.predict import predict
    from weft.parallel.prediction.step import LayerRecord, RecordedStep
    from weft.parallel.prediction.way import Way
    from weft.parallel.recording.recorder import record_step


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.parallel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
