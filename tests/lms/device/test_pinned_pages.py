"""Host memory that the device is told of, and told of again before it goes. The device's part is played here."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch

from weft.errors import BudgetError
from weft.lms.device import host_memory
from weft.lms.tuning import DEFAULTS


class Runtime:
    """What torch gives of CUDA's, as far as it is called."""

    def __init__(self, takes: bool = True) -> None:
        self.takes = takes
        self.known: dict[int, int] = {}
        self.gone: list[int] = []

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:  # noqa: N802
        if self.takes:
            self.known[address] = size
        return 0 if self.takes else 801

    def cudaHostUnregister(self, address: int) -> int:  # noqa: N802
        self.gone.append(address)
        return 0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    found = Runtime()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: found)
    monkeypatch.setattr(host_memory, "DEFAULTS", replace(DEFAULTS, registered_bytes=1 << 16))
    return found


def test_pages_are_there_all_of_them_and_go_with_their_last_view(runtime: Runtime) -> None:
    size = (1 << 20) + 4096
    flat = host_memory.pinned(size)
    assert flat.numel() == size
    assert not flat.any()
    assert runtime.known == {flat.data_ptr(): size}
    flat[-1] = 7
    view = flat[-2:]
    address = flat.data_ptr()
    del flat
    gc.collect()
    assert runtime.gone == []
    assert view.tolist() == [0, 7]
    del view
    gc.collect()
    assert runtime.gone == [address]


def test_every_byte_is_written_whatever_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "DEFAULTS", replace(DEFAULTS, fill_piece_bytes=1000))
    flat = torch.full((10_500,), 255, dtype=torch.uint8)
    host_memory.fill(flat.data_ptr(), 10_001, 3)
    assert not flat[:10_001].any()
    assert bool((flat[10_001:] == 255).all())


def test_where_the_device_refuses_torch_pins(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.takes = False
    asked: list[tuple[int, bool]] = []
    empty = torch.empty

    def noted(size: int, *, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        asked.append((size, pin_memory))
        return empty(size, dtype=dtype)

    monkeypatch.setattr(torch, "empty", noted)
    assert host_memory.pinned(1 << 20).numel() == 1 << 20
    assert asked == [(1 << 20, True)]
    assert runtime.gone == []


def test_too_little_host_memory_is_said_to_be_that(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(host_memory, "RegisteredPages", refused)
    with pytest.raises(
        BudgetError, match=r"host memory must be free for 1\.0 MiB of pinned pages.*Cannot allocate"
    ):
        host_memory.pinned(1 << 20)
