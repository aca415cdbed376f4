"""Lines come out whole, with their rank; logs get every byte."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from weft.launch.control.console import LONGEST_LINE, Console


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def console(
    world: int = 2, logs: Path | None = None, terminal: bool = False
) -> tuple[Console, io.BytesIO, io.BytesIO]:
    out, err = (Terminal(), Terminal()) if terminal else (io.BytesIO(), io.BytesIO())
    return Console(world, logs=logs, out=out, err=err, colour=False), out, err


def test_lines_carry_their_rank_and_keep_their_stream() -> None:
    printer, out, err = console(world=12)
    printer.write(0, "out", b"a\nb\n")
    printer.write(11, "err", b"c\n")
    assert out.getvalue() == b"[ 0] a\n[ 0] b\n"
    assert err.getvalue() == b"[11] c\n"


def test_pieces_of_a_line_wait_for_its_end() -> None:
    printer, out, _ = console()
    printer.write(0, "out", b"one ")
    printer.write(1, "out", b"other\n")
    printer.write(0, "out", b"line\nrest")
    assert out.getvalue() == b"[1] other\n[0] one line\n"
    printer.close()
    assert out.getvalue().endswith(b"[0] rest\n")


def test_a_progress_bar_prints_its_last_state_where_there_is_no_terminal() -> None:
    printer, _, err = console()
    for percent in (10, 50, 100):
        printer.write(0, "err", b"\r%d%%" % percent)
    printer.write(0, "err", b"\n")
    assert err.getvalue() == b"[0] 100%\n"


def test_a_progress_bar_stays_alive_on_a_terminal() -> None:
    printer, out, err = console(terminal=True)
    printer.write(0, "err", b"\r10%")
    printer.write(1, "out", b"hello\n")
    printer.write(0, "err", b"\r20%")
    assert err.getvalue() == b"\r\x1b[2K[0] 10%\r\x1b[2K\r\x1b[2K[0] 20%"
    assert out.getvalue() == b"[1] hello\n"


def test_a_bar_that_runs_for_days_takes_no_memory() -> None:
    printer, _, err = console()
    for _ in range(10_000):
        printer.write(0, "err", b"\rstill going")
    assert len(printer._unfinished[0, "err"]) < 100
    printer.close()
    assert err.getvalue() == b"[0] still going\n"


def test_many_lines_are_one_write() -> None:
    printer, out, _ = console()
    writes: list[bytes] = []
    out.write = lambda data: writes.append(bytes(data)) or len(data)  # type: ignore
    printer.write(0, "out", b"a\nb\rc\n\nd")
    assert writes == [b"[0] a\n[0] c\n[0] \n"]


def test_a_line_without_end_is_printed_in_pieces() -> None:
    printer, out, _ = console()
    for _ in range(8):
        printer.write(0, "out", b"x" * (LONGEST_LINE // 2))
        assert len(printer._unfinished[0, "out"]) <= LONGEST_LINE
    printer.close()
    pieces = out.getvalue().splitlines()
    assert len(pieces) == 3
    assert b"".join(piece.removeprefix(b"[0] ") for piece in pieces) == b"x" * (4 * LONGEST_LINE)


def test_windows_line_ends_are_not_progress_bars() -> None:
    printer, out, _ = console()
    printer.write(0, "out", b"text\r\n")
    assert out.getvalue() == b"[0] text\n"


def test_logs_hold_every_byte(tmp_path: Path) -> None:
    printer, _, _ = console(logs=tmp_path)
    printer.write(1, "out", b"\xff\x00raw\r")
    printer.write(1, "err", b"more")
    printer.close()
    assert (tmp_path / "rank-1.log").read_bytes() == b"\xff\x00raw\rmore"


def test_a_log_that_cannot_be_written_does_not_end_the_run(tmp_path: Path) -> None:
    printer, out, err = console(logs=tmp_path / "gone")
    printer.write(0, "out", b"a\n")
    printer.write(0, "out", b"b\n")
    assert out.getvalue() == b"[0] a\n[0] b\n"
    assert err.getvalue().count(b"no more logs") == 1


@example(b"a\rb\n", [2])
@given(
    st.lists(st.sampled_from([b"a", b"b", b"\r", b"\n"])).map(b"".join),
    st.lists(st.integers(0, 20), max_size=6),
)
def test_cutting_the_stream_anywhere_changes_nothing(data: bytes, cuts: list[int]) -> None:
    whole, whole_out, _ = console()
    whole.write(0, "out", data)
    whole.close()
    pieces, pieces_out, _ = console()
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(ends):
        pieces.write(0, "out", data[begin:end])
    pieces.close()
    assert pieces_out.getvalue() == whole_out.getvalue()
