"""Elastic training: `hvd.elastic.run` and states."""

from weft.compat.horovod.torch.elastic import (
    ElasticSampler,
    ObjectState,
    State,
    TorchState,
    reset,
    run,
    run_fn,
)

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "reset", "run", "run_fn"]
