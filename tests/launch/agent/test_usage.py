"""What a run uses of its host, seen from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from testing.shell import Shell

from weft.launch.agent import nvml
from weft.launch.agent.protocol import HostUsed
from weft.launch.agent.usage import UsageSampler
from weft.launch.control.usage_log import NAME, UsageLog

BUSY = """
import os, sys, time
held = bytearray(64 << 20)
end = time.process_time() + 0.5
while time.process_time() < end: pass
with open(sys.argv[1], "wb") as file:
    file.write(held); file.flush(); os.fsync(file.fileno())
print("ready", flush=True)
sys.stdin.read()
"""


def test_the_processes_of_a_run_are_found_by_its_mark(tmp_path: Path) -> None:
    sampler = UsageSampler("WEFT_RUN_ID=this-one")
    began = time.monotonic()
    assert sampler.sample(began) is None
    environment = {**os.environ, "WEFT_RUN_ID": "this-one"}
    idle = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], env=environment, stdin=subprocess.PIPE
    )
    sampler.sample(time.monotonic())
    worker = subprocess.Popen(
        [sys.executable, "-c", BUSY, str(tmp_path / "file")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        worker.stdout.readline()
        now = time.monotonic()
        values = sampler.sample(now)
        assert values is not None
        cores = len(os.sched_getaffinity(0))
        assert values["cpu"] * cores * (now - began) >= 0.4  # seconds of the processor
        assert values["memory_bytes"] >= 64 << 20
        assert 0 < values["memory"] < 1
        assert values["disk_bytes_s"] >= 0
        assert values["net_bytes_s"] >= 0
    finally:
        for process in (idle, worker):
            process.communicate()
    assert sampler.sample(time.monotonic()) is None  # none is left


def test_a_process_that_is_not_executed_yet_is_looked_at_again(tmp_path: Path) -> None:
    sampler = UsageSampler("WEFT_RUN_ID=this-one", proc=str(tmp_path))
    process = tmp_path / str(os.getpid())
    process.mkdir()
    for name in ("stat", "statm", "io"):
        (process / name).write_bytes(Path("/proc/self", name).read_bytes())
    (process / "environ").write_bytes(b"WEFT_RUN_ID=of the parent\0")
    sampler.sample(1.0)
    (process / "environ").write_bytes(b"WEFT_RUN_ID=this-one\0")
    sampler.sample(3.0)
    assert sampler.sample(5.0) is not None


def test_devices_that_are_shown_are_asked() -> None:
    assert nvml._chosen(None, 3) == [0, 1, 2]
    assert nvml._chosen("2,0", 3) == [2, 0]
    assert nvml._chosen("", 3) == []
    assert nvml._chosen("-1", 3) == []
    assert nvml._chosen("GPU-8932f937", 3) == [0, 1, 2]
    assert nvml._chosen("7", 3) == []


def test_samples_of_all_hosts_stand_in_one_line() -> None:
    lines: list[bytes] = []
    log = UsageLog(lambda name, data: lines.append(data) if name == NAME else None)
    for turn in range(3):
        for host in ("a", "b"):
            log.hear(host, HostUsed(1000 * turn, {"cpu": turn / 2}))
    log.hear("a", HostUsed(3000, {"cpu": 2.0}))  # b is gone
    log.hear("a", HostUsed(4000, {"cpu": 3.0}))
    log.hear("a", HostUsed(5000, {"cpu": 4.0}))
    assert lines == [
        b'[1000,{"a":{"cpu":0.0},"b":{"cpu":0.0}}]\n',
        b'[1000,{"a":{"cpu":0.5},"b":{"cpu":0.5}}]\n',
        b'[2000,{"a":{"cpu":1.0},"b":{"cpu":1.0}}]\n',
        b'[4000,{"a":{"cpu":2.0}}]\n',
        b'[4000,{"a":{"cpu":3.0}}]\n',
        b'[5000,{"a":{"cpu":4.0}}]\n',
    ]


@pytest.mark.parametrize("how", [(), ("--elastic", "1:1")])
def test_a_run_keeps_what_it_uses(shell: Shell, how: tuple[str, ...]) -> None:
    join = "import weft; run = weft.elastic.join()\n" if how else ""
    wait = (
        "import glob, os, time\nend = time.time() + 40\n"
        "while time.time() < end and not glob.glob(os.environ['WEFT_RUN_DIR'] + '/metrics/system.jsonl'):\n"
        "    sum(range(10**5))\n    time.sleep(0.01)\n"
    )
    count = () if how else ("-n", "1")
    done = shell.weft("run", *how, *count, shell.script(join + wait))
    assert done.returncode == 0, done.stderr
    (first, *_) = (shell.run_dir() / NAME).read_text().splitlines()
    assert '"cpu":' in first
    assert '"memory_bytes":' in first
