"""The memory that one worker holds at the peak of a step, for each way. Pure.

P, G, O: bytes of parameters, gradients and optimizer state; A: activations of a pass; N: workers that share a shard.

    ddp, lms            P + G + O + A
    zero1               P + G + O / N + A
    fsdp                (P + G + O) / N + gathered layers + A;   + G where passes are not reduced
    fsdp-keep, zero2    (P + G + O) / N + P + one gradient + A;  + G where passes are not reduced
    hsdp                as fsdp, with the workers of a host for N
"""

from __future__ import annotations

from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.step import RecordedStep
from weft.parallel.prediction.way import Way


def peak_bytes(step: RecordedStep, cluster: ClusterFacts, way: Way) -> int:
    """Return the bytes that a worker holds at its peak, were there no limit."""
    parameters, gradients = step.parameter_bytes, step.gradient_bytes
    state, activations = step.optimizer_bytes, step.activation_bytes
    if way.kind in ("ddp", "lms"):
        return parameters + gradients + state + activations
    if way.kind == "zero1":
        return parameters + gradients + state // cluster.world + activations
    shards = cluster.workers_per_host if way.kind == "hsdp" else cluster.world
    gradient = max(layer.gradient_bytes for layer in step.layers)
    if step.passes > 1 and not way.sync_every_pass and way.kind != "zero2":
        gradient = gradients  # whole ones add up until the last pass
    if way.kind in ("fsdp-keep", "zero2"):
        gathered = parameters
    else:
        largest = sorted((layer.parameter_bytes for layer in step.layers), reverse=True)
        gathered = sum(largest[: way.prefetch + 1])
    # A gathered layer lies twice in memory while it is copied out, as does a gradient while it is copied in.
    copying = max(layer.parameter_bytes for layer in step.layers)
    return (parameters + gradients + state) // shards + gathered + gradient + copying + activations


def swapped_bytes(step: RecordedStep, cluster: ClusterFacts) -> tuple[int, int]:
    """Return what large model support must keep elsewhere: bytes of optimizer state, and activations of a pass."""
    excess = max(0, peak_bytes(step, cluster, Way(kind="lms")) - cluster.device_bytes)
    state = min(excess, step.optimizer_bytes)
    return state, excess - state


def fits(step: RecordedStep, cluster: ClusterFacts, way: Way) -> bool:
    """Return whether a way stays within the memory of a worker, and large model support within main memory."""
    if not cluster.device_bytes:
        return True
    if way.kind != "lms":
        return peak_bytes(step, cluster, way) <= cluster.device_bytes
    state, activations = swapped_bytes(step, cluster)
    largest = max(layer.activation_bytes for layer in step.layers)
    room = activations <= step.activation_bytes - 2 * largest if activations else True
    return room and (not cluster.host_bytes or state + activations <= cluster.host_bytes)
