from collections.abc import Sequence
from pathlib import Path

import pytest

from weft.topology.accelerators import accelerators, parse_query, run_query, visible
from weft.topology.host import Accelerator

TWO_MODELS = """\
0, NVIDIA H200, 143771, 00000000:0F:00.0, GPU-aaaa1111-0000
1, NVIDIA A100-SXM4-80GB, 81920, 00010000:B7:00.0, GPU-bbbb2222-0000
2, NVIDIA GB10, [N/A], 00000000:01:00.0, GPU-aacc3333-0000
WARNING: infoROM is corrupted at gpu 0000:0F:00.0
, , ,
"""


def no_numa(bus_id: str) -> None:
    return None


FOUND = parse_query(TWO_MODELS, no_numa)
h200, a100, gb10 = FOUND.values()


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_the_answer_of_nvidia_smi() -> None:
    assert h200 == Accelerator(
        index=0, model="NVIDIA H200", memory_bytes=143771 * 2**20, bus_id="0000:0f:00.0"
    )
    assert a100.bus_id == "10000:b7:00.0"
    assert gb10.memory_bytes == 0
    assert list(FOUND) == ["GPU-aaaa1111-0000", "GPU-bbbb2222-0000", "GPU-aacc3333-0000"]


@pytest.mark.parametrize("text", ["", "No devices were found\n", "0, NVIDIA H200, 143771\n"])
def test_no_accelerators(text: str) -> None:
    assert parse_query(text, no_numa) == {}


@pytest.mark.parametrize(
    ("setting", "indexes"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,9,1", [0]),  # CUDA stops at the first it does not know
        ("0,0", [0]),
        ("GPU-bbbb2222-0000,GPU-aaaa", [1, 0]),
        ("GPU-aa", []),  # could be either of two
        ("MIG-aaaa", []),
    ],
)
def test_cuda_visible_devices_restricts_and_reorders(setting: str | None, indexes: list[int]) -> None:
    assert [accelerator.index for accelerator in visible(FOUND, setting)] == indexes


def test_the_numa_domain_comes_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bus_id, numa in {"0000:0f:00.0": "1\n", "10000:b7:00.0": "-1\n"}.items():
        device = tmp_path / "sys/bus/pci/devices" / bus_id
        device.mkdir(parents=True)
        (device / "numa_node").write_text(numa)
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> str:
        commands.append(command)
        return TWO_MODELS

    assert [accelerator.numa for accelerator in accelerators(tmp_path, run)] == [1, None, None]
    assert commands[0][0] == "nvidia-smi"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [accelerator.index for accelerator in accelerators(tmp_path, run)] == [1]


def test_a_command_that_is_missing_or_fails_says_nothing() -> None:
    assert run_query(["echo", "hello"]) == "hello\n"
    assert run_query(["no-such-command-anywhere"]) == ""
    assert run_query(["false"]) == ""
