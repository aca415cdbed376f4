"""Published tables of scaling, and the steps they are about: what a simulation is checked against.

Published are the efficiencies, the hosts, the accelerators, the networks and the parameters. Not published, and assumed
here, are the seconds that one accelerator computes (from its usual images or operations a second) and the share of the
line rate that collectives reach: one share for each kind of network, the same in all its rows. Of its T5 runs IBM
published that 11B reached a quarter of the network's peak, before it was mended, and the batch of 11B, after; that the
quarter held afterwards and for 3B, and that 3B, half as wide, had twice the batch, is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.parallel import choose
from weft.parallel.prediction.cluster import ClusterFacts
from weft.parallel.prediction.predict import predict
from weft.parallel.prediction.step import LayerRecord, RecordedStep
from weft.parallel.prediction.way import Way

GB = 1e9


@dataclass(frozen=True, kw_only=True)
class PublishedScaling:
    """One row of a published table."""

    key: str
    name: str
    efficiency: float  # throughput of all, over that of one accelerator (or one host) times their number
    hosts: int
    workers: int
    compute_s: float  # of one worker's step
    parameters: float  # millions
    type_bytes: int = 4
    card_bps: float
    reached: float  # of the line rate
    layers: int = 50
    last_share: float = 0.0  # of the parameters in the last layers, which are ready first
    way: Way


RDMA, TCP = 0.85, 0.6  # shares of the line rate that collectives reach, assumed
IBM_TCP = 0.25  # published of T5-11B before it was mended, assumed of all its runs
RESNET50_S, RESNET101_S, VGG16_S = 32 / 219, 64 / 130, 64 / 150  # of a P100 for its batch, assumed


def _t5_s(parameters: float, batch: int) -> float:
    """Seconds of an A100 at half its peak for a batch of 512 tokens each, with activations computed again: assumed."""
    return 8 * parameters * batch * 512 / (0.5 * 312e12)


PUBLISHED = (
    PublishedScaling(
        key="ddl-256", name="DDL, ResNet-50 on 64 x 4 P100, InfiniBand EDR", efficiency=0.95,
        hosts=64, workers=4, compute_s=RESNET50_S, parameters=25.6, card_bps=12.5 * GB, reached=RDMA,
        way=Way(bucket_bytes=1 << 40, overlap=False),
    ),
    PublishedScaling(
        key="facebook-256", name="Facebook, ResNet-50 on 32 x 8 P100, 50 Gbit/s", efficiency=0.89,
        hosts=32, workers=8, compute_s=RESNET50_S, parameters=25.6, card_bps=6.25 * GB, reached=TCP,
        way=Way(bucket_bytes=16 << 20),
    ),
    PublishedScaling(
        key="horovod-resnet-512", name="Horovod, ResNet-101 on 128 x 4 P100, 25 Gbit/s RoCE", efficiency=0.90,
        hosts=128, workers=4, compute_s=RESNET101_S, parameters=44.6, card_bps=3.125 * GB, reached=RDMA,
        way=Way(bucket_bytes=64 << 20),
    ),
    PublishedScaling(
        key="horovod-vgg-512", name="Horovod, VGG-16 on 128 x 4 P100, 25 Gbit/s RoCE", efficiency=0.68,
        hosts=128, workers=4, compute_s=VGG16_S, parameters=138.4, card_bps=3.125 * GB, reached=RDMA,
        layers=16, last_share=0.89, way=Way(bucket_bytes=64 << 20),
    ),
    PublishedScaling(
        key="ibm-3b-512", name="IBM, T5-3B by FSDP on 64 x 8 A100, 120 Gbit/s TCP", efficiency=0.95,
        hosts=64, workers=8, compute_s=_t5_s(2.85e9, 100), parameters=2850, type_bytes=2, card_bps=15 * GB,
        reached=IBM_TCP, layers=48, way=Way(kind="fsdp", prefetch=2, sync_every_pass=True),
    ),
    PublishedScaling(
        key="ibm-11b-256", name="IBM, T5-11B by FSDP on 32 x 8 A100, 120 Gbit/s TCP", efficiency=0.90,
        hosts=32, workers=8, compute_s=_t5_s(11.3e9, 50), parameters=11_300, type_bytes=2, card_bps=15 * GB,
        reached=IBM_TCP, layers=48, way=Way(kind="fsdp", prefetch=2, sync_every_pass=True),
    ),
    PublishedScaling(
        key="ibm-11b-512", name="IBM, T5-11B by FSDP on 64 x 8 A100, 120 Gbit/s TCP", efficiency=0.80,
        hosts=64, workers=8, compute_s=_t5_s(11.3e9, 50), parameters=11_300, type_bytes=2, card_bps=15 * GB,
        reached=IBM_TCP, layers=48, way=Way(kind="fsdp", prefetch=2, sync_every_pass=True),
    ),
)  # fmt: skip


def efficiency(published: PublishedScaling) -> float:
    """Return the simulated efficiency beside one worker alone."""
    return predict(_step(published), _cluster(published), published.way).computing_share


def planned_efficiency(published: PublishedScaling) -> float:
    """Return the simulated efficiency by the plan that would be chosen on the same machines."""
    return choose(_step(published), _cluster(published), allow="nothing").best.computing_share


def _step(published: PublishedScaling) -> RecordedStep:
    nbytes, count = published.parameters * 1e6 * published.type_bytes, published.layers
    shares = [1 / count] * count
    if published.last_share:
        late = 3
        shares = [(1 - published.last_share) / (count - late)] * (count - late) + [
            published.last_share / late
        ] * late
    return RecordedStep(
        name=published.name,
        layers=tuple(
            LayerRecord(
                name=f"layer{number}",
                forward_s=published.compute_s / 3 / count,
                backward_s=published.compute_s * 2 / 3 / count,
                parameter_bytes=int(nbytes * share),
                gradient_bytes=int(nbytes * share),
            )
            for number, share in enumerate(shares)
        ),
    )


def _cluster(published: PublishedScaling) -> ClusterFacts:
    return ClusterFacts(
        hosts=tuple(f"host{number}" for number in range(published.hosts)),
        workers_per_host=published.workers,
        card_bps=published.card_bps,
        efficiency=published.reached,
        fixed_s=5e-5,
        hop_s=6e-6,
        memory_bps=20 * GB if published.type_bytes == 4 else 230 * GB,
        host_fixed_s=2e-5,
        jitter=0.01,
    )
