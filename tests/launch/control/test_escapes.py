"""Escape sequences of workers: colours stay, what changes the terminal goes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.launch.control.console import Console
from weft.launch.control.escapes import strip_escapes
from weft.launch.control.outcome import Failure, Outcome, render_failure

TITLE = b"\x1b]0;you have mail\x07"


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"plain \xc3\xa9\t1\r2\n", b"plain \xc3\xa9\t1\r2\n"),
        (b"\x1b[1;31mred\x1b[0m \x1b[38:5:9mother\x1b[m", b"\x1b[1;31mred\x1b[0m \x1b[38:5:9mother\x1b[m"),
        (TITLE + b"text", b"text"),
        (b"\x1b]52;c;aGk=\x1b\\text", b"text"),  # the clipboard
        (b"\x1b]0;no end\nnext", b"\nnext"),
        (b"\x1bP+q544e\x1b\\text", b"text"),  # asks the terminal to answer
        (b"\x1b[2J\x1b[H\x1b[?1049htext", b"text"),  # clears the screen
        (b"a\x1b[3Ab\x1b[6nc", b"abc"),
        (b"\x1bc\x1b7\x1b(0text", b"text"),
        (b"\x05\x07\x0e\x0f\x00text\x7f", b"text"),
        (b"\xc2\x9b2Jtext", b"2Jtext"),  # the same in one character
        (b"half\x1b", b"half"),
        (b"half\x1b[31", b"half"),
    ],
)
def test_colours_stay_and_the_rest_goes(printed: bytes, shown: bytes) -> None:
    assert strip_escapes(printed) == shown


@given(st.binary(max_size=60))
def test_only_colours_are_left(printed: bytes) -> None:
    left = strip_escapes(strip_escapes(printed))
    for piece in left.split(b"\x1b")[1:]:
        assert piece.startswith(b"[")
        assert b"m" in piece


def test_the_terminal_is_spared_and_the_log_has_every_byte(tmp_path: Path) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    console = Console(2, logs=tmp_path, out=out, err=err)
    console.write(0, "out", TITLE[:5])
    console.write(0, "out", TITLE[5:] + b"\x1b[32mhello\x1b[0m\n")
    console.say("starter: \x1b]0;x\x07done")
    console.close()
    assert out.getvalue() == b"[0] \x1b[32mhello\x1b[0m\n"
    assert err.getvalue() == b"starter: done\n"
    assert (tmp_path / "rank-0.log").read_bytes().startswith(TITLE)


def test_the_last_screen_of_a_failed_run_is_spared_too() -> None:
    failure = Failure(rank=0, host="h", code=1, reason="ValueError: \x1b]0;x\x07y", traceback="a\x1b[2Jb")
    shown = render_failure(Outcome(code=1, codes={0: 1}, seconds=1.0, failure=failure))
    assert "\x1b" not in shown
    assert "ValueError: y" in shown
