"""The accelerators of this machine, asked of `nvidia-smi` so that no CUDA context is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from weft.topology.host import Accelerator

QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,memory.total,pci.bus_id,uuid",
    "--format=csv,noheader,nounits",
)
TIMEOUT_S = 30  # without persistence mode the driver wakes each device first, which takes seconds


def run_query(command: Sequence[str]) -> str:
    """Return what the command prints; nothing where it is missing, fails or hangs."""
    import subprocess

    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, stdin=subprocess.DEVNULL
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def accelerators(
    root: Path = Path("/"), run: Callable[[Sequence[str]], str] = run_query
) -> tuple[Accelerator, ...]:
    """The accelerators a CUDA program started here would see, in its order; `index` is the machine's own."""
    found = parse_query(run(QUERY), lambda bus_id: _numa(root, bus_id))
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def parse_query(text: str, numa_of: Callable[[str], int | None]) -> dict[str, Accelerator]:
    """The accelerators by UUID. Lines of another form, such as warnings of the driver, are passed over."""
    found: dict[str, Accelerator] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not fields[0].isdecimal():
            continue
        index, model, mebibytes, bus_id, uuid = fields
        bus_id = _sysfs_bus_id(bus_id)
        found[uuid] = Accelerator(
            index=int(index),
            model=model,
            # "[N/A]" where the device shares the memory of the host
            memory_bytes=int(mebibytes) * 2**20 if mebibytes.isdecimal() else 0,
            numa=numa_of(bus_id),
            bus_id=bus_id,
        )
    return found


def visible(found: Mapping[str, Accelerator], setting: str | None) -> tuple[Accelerator, ...]:
    """Apply CUDA_VISIBLE_DEVICES as CUDA does: in its order, up to the first entry that names no device."""
    if setting is None:
        return tuple(found.values())
    chosen: list[Accelerator] = []
    for entry in map(str.strip, setting.split(",")):
        named = [item for uuid, item in found.items() if _names(entry, uuid, item)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return tuple(chosen)


def _names(entry: str, uuid: str, accelerator: Accelerator) -> bool:
    if entry.isdecimal():
        return int(entry) == accelerator.index
    return entry.startswith("GPU-") and uuid.startswith(entry)  # a UUID may be cut short


def _sysfs_bus_id(bus_id: str) -> str:
    """`00000000:0F:00.0` as the kernel writes it, `0000:0f:00.0`."""
    domain, colon, rest = bus_id.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}{colon}{rest}"
    except ValueError:
        return bus_id.lower()


def _numa(root: Path, bus_id: str) -> int | None:
    try:
        numa = int((root / "sys/bus/pci/devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return numa if numa >= 0 else None  # -1: the machine has one domain, or the firmware does not say
