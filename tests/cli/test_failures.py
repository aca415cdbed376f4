"""What the entry point makes of errors: words and an exit code, or a traceback for a fault of our own."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from weft import cli
from weft.cli.failures import CommandFailure, describe_failure
from weft.errors import RunError, UsageError


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("a must be b"), 2, "a must be b"),
        (RunError("failed"), 1, "failed"),
        (OSError(errno.ENOENT, "No such file or directory", "a/b"), 2, "a/b must be a path that can be used"),
        (OSError(errno.ENOSPC, "No space left on device", "a"), 1, "a must have room, got: No space left on"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk must have room, got: No space left"),
        (UnicodeDecodeError("utf-8", b"a\xff", 1, 2, "bad"), 2, "text must be utf-8, got the byte 0xff at 1"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "bad"), 2, r"names must be text, got '\udcff'"),
        (msgspec.ValidationError("Expected `int`"), 2, "files must be well formed, got: Expected `int`"),
        (MemoryError("16 GiB"), 1, "must fit into the memory of this machine, got: 16 GiB; ask for less"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.exceptions.Abort(), 130, "interrupted"),
        (BrokenPipeError(), 1, ""),
        (
            ModuleNotFoundError("no", name="ml_dtypes.x"),
            2,
            "the package ml_dtypes, got none; install it: pip",
        ),
        (ModuleNotFoundError("no", name="lightkube"), 2, "pip install 'weft[kubernetes]'"),
        (ModuleNotFoundError("no", name="prometheus_client"), 2, "pip install 'weft[serve]'"),
        (ModuleNotFoundError("no", name="cv2"), 2, "install it: pip install 'weft["),
    ],
)
def test_an_error_in_words(error: BaseException, code: int, said: str) -> None:
    failure = describe_failure(error)
    assert isinstance(failure, CommandFailure)
    assert failure.exit_code == code
    assert said in failure.text


def test_the_part_that_wants_a_package_names_its_extra() -> None:
    code = compile("raise ModuleNotFoundError('no', name='yaml')", "place", "exec")
    for part in ("jobs", "vision", "kubernetes"):
        with pytest.raises(ModuleNotFoundError) as raised:
            exec(code, {"__name__": f"weft.{part}.inner"})
        failure = describe_failure(raised.value)
        assert failure is not None
        assert f"pip install 'weft[{part}]'" in failure.text


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        OSError("bare"),
        AssertionError(),
        RecursionError(),
        ModuleNotFoundError("no", name="weft.nothing"),
    ],
)
def test_a_fault_of_our_own_has_no_words(error: BaseException) -> None:
    assert describe_failure(error) is None


def _verb(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command("broken")
    def broken() -> None:
        raise error

    monkeypatch.setattr(cli.group, "get_command", lambda ctx, name: broken)


def test_a_fault_of_our_own_keeps_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _verb(monkeypatch, KeyError("inner"))
    assert cli.call(["broken"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "KeyError: 'inner'" in said
    assert said.splitlines()[-1].startswith("weft: this is a fault of weft")


def test_the_end_of_a_file_is_no_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _verb(monkeypatch, EOFError("Ran out of input"))
    assert cli.call(["broken"]) == 1
    assert "EOFError: Ran out of input" in capsys.readouterr().err


def test_an_interruption_is_told(tmp_path: Path) -> None:
    (tmp_path / "elastic").mkdir()
    events = tmp_path / "elastic" / "host.events.jsonl"
    os.mkfifo(events)
    command = [sys.executable, "-m", "weft", "timeline", str(tmp_path), "--follow"]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as follower,
        events.open("w"),  # opens when the follower reads, which waits for what is never written
    ):
        follower.send_signal(signal.SIGINT)
        _, said = follower.communicate(timeout=120)
    assert follower.returncode == 130
    assert said.strip().endswith("weft: interrupted")


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    command = [sys.executable, "-m", "weft", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        assert helper.stderr is not None
        helper.stdout.close()
        assert helper.wait(120) == 1
        assert helper.stderr.read() == b""
