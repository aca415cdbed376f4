"""Ending what carries a run's mark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid

import pytest

from weft.launch.agent import processes
from weft.launch.agent.processes import sweep


def test_what_is_being_started_while_we_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Popen comes back while the kernel is still at the exec; until that is over, no environment is to be seen."""
    looked: set[int] = set()
    look = processes._environment_of

    def at_second_sight(pid: int) -> bytes:
        first = pid not in looked
        looked.add(pid)
        return b"" if first else look(pid)

    monkeypatch.setattr(processes, "_environment_of", at_second_sight)
    mark = uuid.uuid4().hex
    with subprocess.Popen(("sleep", "300"), env={**os.environ, "MARK": mark}) as child:
        try:
            assert sweep(f"MARK={mark}") == 1
        finally:
            child.kill()
    assert child.returncode == -signal.SIGKILL


def test_others_are_left_alone_with_no_environment_too() -> None:
    mark = uuid.uuid4().hex
    command = (sys.executable, "-S", "-c", "print(flush=True); input()")
    for variables in ({}, {"MARK": mark + "0"}, {"OTHER": mark}):
        with subprocess.Popen(
            command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert sweep(f"MARK={mark}") == 0
            other.communicate("\n")
            assert other.returncode == 0
