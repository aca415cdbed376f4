"""The use of NVIDIA's accelerators, asked of the driver's own library: no process is started, no context is opened."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple


class DeviceUse(NamedTuple):
    """One accelerator at this moment."""

    number: int
    busy: float  # share of the last moments in which something was computed, 0 to 1
    used_bytes: int
    total_bytes: int


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class NvidiaDevices:
    """All accelerators of this host; none where the driver is not there."""

    def __init__(self) -> None:
        self._library: Any = None
        self._handles: list[ctypes.c_void_p] | None = None  # by index; None: not asked for yet

    def use(self, visible: str | None) -> list[DeviceUse]:
        """Return the use of the devices that CUDA_VISIBLE_DEVICES shows, of all if it is not set."""
        if self._handles is None:
            self._handles = self._open()
        if not self._handles:
            return []
        chosen = _chosen(visible, len(self._handles))
        return [use for index in chosen if (use := self._ask(index)) is not None]

    def _open(self) -> list[ctypes.c_void_p]:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return []
        count = ctypes.c_uint()
        if library.nvmlInit_v2() or library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return []
        self._library = library
        handles = [ctypes.c_void_p() for _ in range(count.value)]
        for index, handle in enumerate(handles):
            if library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                return []
        return handles

    def _ask(self, index: int) -> DeviceUse | None:
        assert self._handles is not None
        handle, memory, busy = self._handles[index], _Memory(), _Utilization()
        if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
            return None
        if self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(busy)):
            return None
        return DeviceUse(index, busy.gpu / 100, int(memory.used), int(memory.total))


def _chosen(visible: str | None, count: int) -> list[int]:
    """Return the devices that are shown by their numbers; all where they are named in another way."""
    if visible is None:
        return list(range(count))
    words = [word.strip() for word in visible.split(",") if word.strip()]
    if all(word.isdigit() for word in words):
        return [int(word) for word in words if int(word) < count]
    return [] if words == ["-1"] else list(range(count))
