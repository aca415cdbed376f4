"""A way to share a model between workers: what is replicated, what is sharded, and how bytes travel. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from weft.errors import UsageError
from weft.text import format_size

Kind = Literal["ddp", "zero1", "zero2", "fsdp", "fsdp-keep", "hsdp", "lms"]
Change = Literal["nothing", "rounding", "more"]

KINDS: dict[Kind, str] = {
    "ddp": "DDP: a replica on every worker, gradients all-reduced",
    "zero1": "ZeRO-1: DDP with the optimizer's state sharded over all workers",
    "zero2": "ZeRO-2: FSDP2 that gathers parameters once a step and reduces gradients in every pass",
    "fsdp": "FSDP2 over all workers: parameters gathered in every forward and backward pass",
    "fsdp-keep": "FSDP2 without resharding after forward: gathered once a pass",
    "hsdp": "HSDP: sharded within a host, replicated across hosts",
    "lms": "DDP with large model support: replicas that do not fit are swapped to main memory",
}
WIRE_SHARES = {"fp32": 1.0, "bf16": 0.5, "fp16": 0.5, "int8": 0.254}  # of the bytes of a float32 sum


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run a step. Fields that a kind has no use for keep their defaults, so that equal ways are equal."""

    kind: Kind = "ddp"
    wire: str = "fp32"  # of sums between hosts
    bucket_bytes: int = 25 << 20  # of DDP
    prefetch: int = 1  # layers gathered ahead, of FSDP2
    passes: int = 0  # that a step is computed in; 0: as recorded
    sync_every_pass: bool = False  # reduce in each pass, though only the last one must
    racks: bool = False  # reduce within racks first
    local_steps: int = 1  # optimizer steps from one average to the next
    overlap: bool = True  # communication goes on while a worker computes

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"a kind must be one of {', '.join(KINDS)}, got {self.kind!r}; mend the plan")
        if self.wire not in WIRE_SHARES:
            raise UsageError(
                f"a wire must be one of {', '.join(WIRE_SHARES)}, got {self.wire!r}; mend the plan"
            )
        if self.bucket_bytes < 1 or self.prefetch < 0 or self.passes < 0 or self.local_steps < 1:
            raise UsageError(f"numbers of a way must not be negative, got {self}; mend the plan")

    @property
    def changes(self) -> Change:
        """Return what this way changes about results, beside plain training on one worker with the same batch."""
        if self.wire == "int8" or self.local_steps > 1:
            return "more"
        return "rounding" if self.wire in ("bf16", "fp16") else "nothing"

    @property
    def shards(self) -> bool:
        """Return whether parameters are sharded."""
        return self.kind in ("zero2", "fsdp", "fsdp-keep", "hsdp")

    def __str__(self) -> str:
        parts: list[str] = [self.kind]
        if self.kind in ("ddp", "zero1", "lms"):
            parts.append(f"buckets {format_size(self.bucket_bytes, trimmed=True)}")
        elif self.prefetch:
            parts.append(f"prefetch {self.prefetch}")
        if self.wire != "fp32":
            parts.append(self.wire)
        if self.passes:
            parts.append(f"{self.passes} passes" if self.passes > 1 else "1 pass")
        if self.sync_every_pass:
            parts.append("reduced in every pass")
        if self.racks:
            parts.append("racks")
        if self.local_steps > 1:
            parts.append(f"averaged every {self.local_steps} steps")
        if not self.overlap:
            parts.append("no overlap")
        return ", ".join(parts)
