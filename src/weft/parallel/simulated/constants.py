"""Published constants: accelerators, and what collectives reach of a network's rate. Pure.

Peaks are the vendors' for dense matrices in the type that training uses; the share of it that training reaches is what
published runs report for models of billions of parameters (an MFU).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from weft.errors import UsageError
from weft.parallel.prediction.cluster import ClusterFacts

GB = 10**9


@dataclass(frozen=True)
class AcceleratorKind:
    """One kind of accelerator."""

    peak_flops: float  # a second
    reached: float  # share of the peak in training
    memory_bytes: int
    memory_bps: float  # between the accelerators of a host, each way
    copy_bps: float  # to main memory, each way

    @property
    def flops(self) -> float:
        return self.peak_flops * self.reached


ACCELERATORS = {
    "p100": AcceleratorKind(10.6e12, 0.45, 16 * GB, 20e9, 10e9),
    "v100": AcceleratorKind(125e12, 0.35, 32 * GB, 60e9, 11e9),
    "a100": AcceleratorKind(312e12, 0.50, 80 * GB, 230e9, 22e9),
    "h100": AcceleratorKind(989e12, 0.42, 80 * GB, 350e9, 45e9),
    "h200": AcceleratorKind(989e12, 0.42, 141 * GB, 350e9, 45e9),
    "b200": AcceleratorKind(2250e12, 0.38, 180 * GB, 700e9, 50e9),
    "l4": AcceleratorKind(121e12, 0.30, 24 * GB, 10e9, 11e9),
    "l40s": AcceleratorKind(362e12, 0.35, 48 * GB, 20e9, 22e9),
    "rtx3090": AcceleratorKind(71e12, 0.45, 24 * GB, 10e9, 11e9),
    "rtx4090": AcceleratorKind(165e12, 0.45, 24 * GB, 10e9, 22e9),
    "rtx5090": AcceleratorKind(210e12, 0.45, 32 * GB, 20e9, 45e9),
}
TCP_EFFICIENCY = 0.85  # of the line rate, by collectives over TCP with large messages
NCCL_FIXED_S = 5e-5  # of one collective
NCCL_HOP_S = 6e-6  # for each host more
JITTER = 0.01  # of compute times among workers of a shared cluster
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([GM])(?:b|bit)(?:/s|ps)?", re.IGNORECASE | re.ASCII)
_SHAPE = re.compile(r"(\d{1,5})x(\d{1,3})", re.ASCII)
MOST_HOSTS = 65536


def accelerator(name: str) -> AcceleratorKind:
    """Return an accelerator by its name."""
    if name.lower() not in ACCELERATORS:
        near = get_close_matches(name.lower(), ACCELERATORS, n=1)
        advice = f"did you mean {near[0]}?" if near else "write the one whose speed is nearest"
        raise UsageError(f"--gpu must be one of {', '.join(ACCELERATORS)}, got {name!r}; {advice}")
    return ACCELERATORS[name.lower()]


def parse_rate(text: str) -> float:
    """Return bytes a second of a network's rate: `100Gb`, `2.5Gbit/s`, `100Mb`."""
    found = _RATE.fullmatch(text.strip())
    if not found or not 0 < float(found[1]) <= 1e6:
        raise UsageError(f"--link must be a rate of bits, got {text[:40]!r}; write --link 100Gb")
    return float(found[1]) * (1e9 if found[2].upper() == "G" else 1e6) / 8


def parse_hosts_by_workers(text: str) -> tuple[int, int]:
    """Return hosts and workers on each: `64x8`."""
    found = _SHAPE.fullmatch(text.strip())
    if not found or not 0 < int(found[1]) <= MOST_HOSTS or not int(found[2]):
        raise UsageError(f"--simulate must be HOSTSxWORKERS, got {text[:40]!r}; write --simulate 64x8")
    return int(found[1]), int(found[2])


def simulated_cluster(hosts: int, workers: int, gpu: str, card_bps: float, *, racks: int = 1) -> ClusterFacts:
    """Return a cluster of hosts that are not there."""
    kind = accelerator(gpu)
    return ClusterFacts(
        hosts=tuple(f"host{number}" for number in range(hosts)),
        workers_per_host=workers,
        card_bps=card_bps,
        efficiency=TCP_EFFICIENCY,
        fixed_s=NCCL_FIXED_S,
        hop_s=NCCL_HOP_S,
        memory_bps=kind.memory_bps,
        host_fixed_s=2e-5,
        copy_bps=kind.copy_bps,
        device_bytes=int(kind.memory_bytes * 0.92),  # the rest is the driver's, and lost between blocks
        racks=racks,
        jitter=JITTER,
        source=f"published constants of {gpu}",
    )
