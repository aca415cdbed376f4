"""`weft.log` of tensors on an accelerator: the value of the moment, read in the background."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from weft.launch.agent.nvml import NvidiaDevices
from weft.reporting.reporter import Reporter

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tensor_that_changes_is_logged_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setenv("WEFT_METRICS", f"file:{tmp_path}/metrics/rank-0.jsonl")
    reporter = Reporter()
    value = torch.zeros((), device="cuda")
    torch.cuda.synchronize()
    began = time.monotonic()
    with torch.cuda.stream(torch.cuda.Stream() if streamed else None):  # type: ignore[no-untyped-call]
        for step in range(100):
            torch.cuda._sleep(2_000_000)  # type: ignore[no-untyped-call]  # the value is not there yet when it is logged
            value.add_(1)
            reporter.log({"count": value}, step)
    called_s = time.monotonic() - began
    assert reporter.flush(60)
    assert time.monotonic() - began > called_s  # the calls did not wait for the device
    lines = [json.loads(line) for line in (tmp_path / "metrics" / "rank-0.jsonl").read_text().splitlines()]
    assert [line[2]["count"] for line in lines] == [step + 1.0 for step in range(100)]


def test_the_driver_tells_how_devices_are_used() -> None:
    held = torch.zeros(1 << 28, device="cuda")
    used = NvidiaDevices().use(None)
    assert used[0].used_bytes >= held.nbytes
    assert used[0].total_bytes > used[0].used_bytes
    assert 0 <= used[0].busy <= 1
