"""The reporter of a process: what is logged gets out, whatever happens, and never waits."""

from __future__ import annotations

import errno
import json
import math
import os
import select
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from testing.shell import Shell

import weft
from weft.errors import UsageError
from weft.reporting import reporter as module
from weft.reporting.channels import FileChannel, MarkChannel, PipeChannel, channel_from_env
from weft.reporting.lines import encode_entry, split_entry
from weft.reporting.reporter import Reporter


@pytest.fixture
def reporter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reporter:
    monkeypatch.setenv("WEFT_METRICS", f"file:{tmp_path}/metrics/rank-0.jsonl")
    monkeypatch.delenv("RANK", raising=False)
    return Reporter()


def lines(folder: Path, rank: int = 0) -> list[list[object]]:
    text = (folder / "metrics" / f"rank-{rank}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_steps_are_given_or_counted(reporter: Reporter, tmp_path: Path) -> None:
    before_ms = time.time_ns() // 1_000_000
    reporter.log({"loss": 0.5}, None)
    reporter.log({"loss": 0.25, "n": 3}, 7)
    reporter.log({"loss": 0.125}, None)
    reporter.log({"loss": 0.1}, torch.tensor(20))  # type: ignore[arg-type]
    assert reporter.flush(10)
    assert [line[1:] for line in lines(tmp_path)] == [
        [0, {"loss": 0.5}],
        [7, {"loss": 0.25, "n": 3}],
        [8, {"loss": 0.125}],
        [20, {"loss": 0.1}],
    ]
    assert before_ms <= int(str(lines(tmp_path)[0][0])) <= time.time_ns() // 1_000_000


def test_values_of_every_kind_of_number(reporter: Reporter, tmp_path: Path) -> None:
    changing = torch.tensor(2.0)
    values = {
        "tensor": changing,
        "grad": torch.tensor([1.5], requires_grad=True),
        "half": torch.tensor(0.5, dtype=torch.bfloat16),
        "bool": True,
        "nan": math.nan,
        "up": math.inf,
        "down": -math.inf,
        "large": 10**400,
    }
    reporter.log(values, 0)
    changing.add_(1)
    assert reporter.flush(10)
    assert lines(tmp_path)[0][2] == {
        "tensor": 2.0,
        "grad": 1.5,
        "half": 0.5,
        "bool": 1.0,
        "nan": "NaN",
        "up": "Infinity",
        "down": "-Infinity",
        "large": "NaN",
    }


@pytest.mark.parametrize("value", ["0.3", None, torch.zeros(3), [1.0]])
def test_what_is_no_number_is_refused_at_once(reporter: Reporter, value: object) -> None:
    with pytest.raises(UsageError, match=r"must be a number or a tensor of one element, got .* for 'loss'"):
        reporter.log({"loss": value}, None)


def test_a_step_must_be_whole(reporter: Reporter) -> None:
    with pytest.raises(UsageError, match=r"step must be a whole number, got 0\.5"):
        reporter.log({"loss": 1.0}, 0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [0, 7])
def test_numbers_must_have_names(step: int) -> None:
    with pytest.raises(UsageError, match=f"numbers by name, got {step} as the first argument; write"):
        weft.log(step, loss=0.3)  # type: ignore[arg-type]


def test_a_dict_of_the_callers_is_left_as_it_is(tmp_path: Path) -> None:
    code = (
        "import weft\nvalues = {'loss': True}\nweft.log(values)\nassert values == {'loss': True}\n"
        "values['loss'] = 9.0\nweft.log(values, loss=3.0, step=5)\n"
    )
    environment = {**os.environ, "WEFT_RUN_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    assert [line[1:] for line in lines(tmp_path)] == [[0, {"loss": 1.0}], [5, {"loss": 3.0}]]


def test_progress_is_told(reporter: Reporter, tmp_path: Path) -> None:
    reporter.report(0.5, "epoch 3")
    assert reporter.flush(10)
    assert lines(tmp_path)[0][1:] == [None, {"progress": 0.5, "text": "epoch 3"}]
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="from 0 to 1"):
            reporter.report(wrong, None)
    with pytest.raises(UsageError, match="got neither"):
        reporter.report(None, None)


def test_a_rank_that_changed_is_in_the_line(
    reporter: Reporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    reporter.log({"loss": 1.0}, 0)
    assert reporter.flush(10)
    assert lines(tmp_path)[0][1:] == [0, {"loss": 1.0}, 3]


def test_a_line_cut_short_by_a_death_is_ended_first(reporter: Reporter, tmp_path: Path) -> None:
    path = tmp_path / "metrics" / "rank-0.jsonl"
    path.parent.mkdir()
    path.write_text('[1,2,{"los')
    reporter.log({"loss": 1.0}, 0)
    assert reporter.flush(10)
    cut, whole = path.read_text().splitlines()
    assert cut == '[1,2,{"los'
    assert json.loads(whole)[2] == {"loss": 1.0}


class FullDisk:
    """A channel that takes a part of the first line and then nothing, until there is room again."""

    longest, rank = 1 << 20, 0

    def __init__(self) -> None:
        self.room = 5
        self.taken = b""

    def write(self, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = min(self.room, len(data))
        self.taken += data[:count]
        self.room -= count
        return count


def test_a_full_disk_costs_nothing_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk, kept = FullDisk(), Reporter()
    monkeypatch.setattr(module, "channel_from_env", lambda _: disk)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    for step in range(2000):
        kept.log({"loss": 1.0}, step)
    assert not kept.flush(0.5)
    disk.room = 1 << 30
    assert kept.flush(10)
    assert [json.loads(line)[1] for line in disk.taken.splitlines()] == list(range(2000))
    assert capsys.readouterr().err.count("cannot write and tries again: No space left") == 1


def test_memory_is_bounded_when_the_disk_is_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    disk, kept = FullDisk(), Reporter()
    disk.room = 0
    monkeypatch.setattr(module, "channel_from_env", lambda _: disk)
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "MOST_LINES", 100)
    for step in range(1000):
        kept.log({"loss": 1.0}, step)
    assert not kept.flush(0.5)
    disk.room = 1 << 30
    assert kept.flush(10)
    steps = [json.loads(line)[1] for line in disk.taken.splitlines()]
    assert steps[0] == 0
    assert len(steps) <= 101
    assert max(step - before for before, step in pairwise(steps)) <= 16  # from all over
    assert capsys.readouterr().err.count("every second") == 1


def test_nothing_is_kept_without_a_run_and_that_is_said_once(tmp_path: Path) -> None:
    code = "import sys, weft\nfor _ in range(3): weft.log(loss=1.0)\nassert 'torch' not in sys.modules"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr.count("weft.log keeps nothing here") == 1
    assert not list(tmp_path.iterdir())


ENDS = {
    "exit": "sys.exit(3)",
    "exception": "raise ValueError",
    "fork": "pid = os.fork()\nweft.log(loss=float(pid > 0), step=2)\nos.waitpid(pid, 0) if pid else None",
    "multiprocessing": (
        "import multiprocessing\n"
        "child = multiprocessing.get_context('fork').Process(target=lambda: weft.log(loss=0.0, step=2))\n"
        "child.start(); child.join(); weft.log(loss=1.0, step=2)"
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_last_line_is_written_however_the_script_ends(tmp_path: Path, end: str) -> None:
    code = f"import os, sys, weft\nweft.log(loss=0.5, step=1)\n{ENDS[end]}\n"
    environment = {**os.environ, "WEFT_RUN_DIR": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=False, timeout=60
    )
    found = sorted(tuple(map(str, line[1:])) for line in lines(tmp_path))
    more = [("2", "{'loss': 0.0}"), ("2", "{'loss': 1.0}")] if end in ("fork", "multiprocessing") else []
    assert found == [("1", "{'loss': 0.5}"), *more]


# -- channels -------------------------------------------------------------------------------------


def test_the_channel_is_the_one_that_the_launcher_made(tmp_path: Path) -> None:
    inside, outside = os.pipe()
    try:
        pipe = f"pipe:{outside},{os.fstat(outside).st_ino}"
        assert isinstance(channel_from_env({"WEFT_METRICS": pipe}), PipeChannel)
        assert isinstance(channel_from_env({"WEFT_METRICS": "mark", "RANK": "2"}), MarkChannel)
        mine = channel_from_env({"WEFT_METRICS": "file:/x/metrics/rank-7.jsonl", "RANK": "2"})
        assert isinstance(mine, FileChannel)
        assert mine.rank == 7
        closed = channel_from_env({"WEFT_METRICS": f"pipe:{outside},1", "WEFT_RUN_DIR": str(tmp_path)})
        assert isinstance(closed, FileChannel)  # a program below the worker, which did not inherit the pipe
        assert channel_from_env({"WEFT_METRICS": "pipe:x"}) is None
    finally:
        os.close(inside)
        os.close(outside)


def test_a_pipe_gets_whole_lines_and_a_full_one_does_not_block() -> None:
    inside, outside = os.pipe()
    try:
        channel = PipeChannel(outside, 0)
        data = b"".join(encode_entry((0, step, {"x" * 50: 1.0}), None) for step in range(1000))
        count = channel.write(data)
        assert 0 < count <= 4096
        assert data[:count].endswith(b"\n")
        assert os.read(inside, 1 << 16) == data[:count]
        while select.select([], [outside], [], 0)[1]:
            os.write(outside, bytes(4096))
        with pytest.raises(TimeoutError):
            channel.write(data)
    finally:
        os.close(inside)
        os.close(outside)


def test_an_entry_too_long_for_a_pipe_is_parted() -> None:
    values = {f"layer-{number}/gradient": float(number) for number in range(500)}
    parts = list(split_entry((5_000_000, 3, values), 1, 4096))
    assert len(parts) > 1
    assert all(len(part) <= 4096 for part in parts)
    decoded = [json.loads(part) for part in parts]
    assert {line[0] for line in decoded} == {5}
    assert {line[1] for line in decoded} == {3}
    assert {name: value for line in decoded for name, value in line[2].items()} == values


# -- through the launcher -------------------------------------------------------------------------

SCRIPT = """
import weft
for step in range(50):
    weft.log({"loss": 1.0 / (step + 1)}, step=step)
weft.report(0.5, "half")
"""


def expected(rank_lines: list[list[object]]) -> None:
    assert [line[1] for line in rank_lines] == [*range(50), None]
    assert rank_lines[9][2] == {"loss": 0.1}
    assert rank_lines[-1][2] == {"progress": 0.5, "text": "half"}


def test_workers_of_a_local_run_write_into_its_directory(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", shell.script(SCRIPT))
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        expected(lines(shell.run_dir(), rank))


def test_workers_of_an_elastic_run_write_into_its_directory(shell: Shell) -> None:
    script = "import weft\nrun = weft.elastic.join()\n" + SCRIPT
    done = shell.weft("run", "--elastic", "1:1", shell.script(script))
    assert done.returncode == 0, done.stderr
    expected(lines(shell.run_dir()))
