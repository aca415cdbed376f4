"""The memory of workers: what the processes of a session hold, from a made-up /proc and from a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weft.launch.agent.memory import LOOK_S, MemoryWatch, describe_excess

PAGE = os.sysconf("SC_PAGE_SIZE")


class FakeProc:
    """A folder with processes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "self").mkdir()

    def add(self, pid: int, session: int, pages: int, shared_out_kb: int | None = None) -> None:
        home = self.folder / str(pid)
        home.mkdir(exist_ok=True)
        fields = ["S", "1", str(pid), str(session), *["0"] * 17, str(pages), *["0"] * 20]
        (home / "stat").write_text(f"{pid} (a name) with ) brackets) {' '.join(fields)}")
        if shared_out_kb is not None:
            (home / "smaps_rollup").write_text(f"[rollup]\nRss: 1 kB\nPss: {shared_out_kb} kB\n")


def test_the_processes_of_a_session_count_together(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, session=10, pages=60)
    proc.add(11, session=10, pages=60)
    proc.add(20, session=20, pages=90)
    proc.add(30, session=30, pages=5000)  # somebody else's
    watch = MemoryWatch(100 * PAGE, proc=str(tmp_path))
    assert watch.look([10, 20], 0.0) == {10: 120 * PAGE}


def test_what_processes_share_counts_once(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, session=10, pages=80, shared_out_kb=45 * PAGE // 1024)
    proc.add(11, session=10, pages=80, shared_out_kb=45 * PAGE // 1024)
    watch = MemoryWatch(100 * PAGE, proc=str(tmp_path))
    assert watch.look([10], 0.0) == {}
    proc.add(11, session=10, pages=80, shared_out_kb=60 * PAGE // 1024)
    assert watch.look([10], LOOK_S) == {10: 105 * PAGE}


def test_looks_are_a_second_apart_and_none_without_a_limit(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, session=10, pages=200)
    watch = MemoryWatch(100 * PAGE, proc=str(tmp_path))
    assert watch.look([10], 5.0)
    assert not watch.look([10], 5.5)
    assert watch.look([10], 5.0 + LOOK_S)
    assert not MemoryWatch(0, proc=str(tmp_path / "nowhere")).look([10], 0.0)


def test_an_id_that_was_given_to_a_worker_later_is_found(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, session=10, pages=1)
    proc.add(11, session=99, pages=200)
    watch = MemoryWatch(100 * PAGE, proc=str(tmp_path))
    assert not watch.look([10], 0.0)
    proc.add(11, session=10, pages=200)
    assert any(watch.look([10], number * LOOK_S) for number in range(1, 20))


def test_a_real_process_is_seen() -> None:
    hold = "block = bytearray(60_000_000); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (used,) = MemoryWatch(50_000_000).look([process.pid], 0.0).values()
        assert 60_000_000 < used < 120_000_000
        assert MemoryWatch(500_000_000).look([process.pid], 0.0) == {}
        process.communicate(b"\n")


def test_the_sentence_names_use_and_limit() -> None:
    told = describe_excess("rank 2", int(17.1 * (1 << 30)), 16 << 30)
    assert told == "out of memory: rank 2 used 17.1 GiB, its limit is 16 GiB (--memory)"
