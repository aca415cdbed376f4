"""The files of an agent: what a launcher lacks of the output is read again from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.elastic.agent.journal import PIECE_BYTES, Journal, read_outcome


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path, "a", "run", tell=lambda line: None)
    yield journal
    journal.close()


def test_output_is_read_again_from_a_byte_on(journal: Journal) -> None:
    assert journal.output_since(0, 0, 100) == ([], 0)
    journal.output(0, b"one\ntwo\n")
    journal.output(1, b"other\n")
    assert journal.output_since(0, 4, 100) == ([b"two\n"], 0)
    assert journal.output_since(0, 8, 100) == ([], 0)
    assert journal.output_since(0, 99, 100) == ([], 0)  # the launcher has more than a full disk took
    journal.output(1, PIECE_BYTES * b"x")
    pieces, lacking = journal.output_since(1, 0, 10 * PIECE_BYTES)
    assert (len(pieces), b"".join(pieces), lacking) == (2, b"other\n" + PIECE_BYTES * b"x", 0)


def test_of_too_much_output_the_last_is_sent_with_a_note(journal: Journal) -> None:
    journal.output(0, b"".join(b"line %d\n" % number for number in range(10)))
    (note, data), lacking = journal.output_since(0, 7, 14)
    assert (note, data) == (b"weft: 49 bytes are left out here; a.0.log has them\n", b"line 8\nline 9\n")
    # What the launcher has then, and what it lacks, make up what the file has.
    assert 7 + len(note) + len(data) + lacking == 70


@pytest.mark.parametrize(("name", "code"), [("finished", 0), ("failed", 3), ("paused", 75)])
def test_the_end_of_a_run_is_read_from_its_events(
    journal: Journal, tmp_path: Path, name: str, code: int
) -> None:
    journal.event("failed", worker="a/0.0", cause="killed")  # of a worker, not of the run
    assert read_outcome(tmp_path, "a") == ("", 0)
    journal.event(name, cause="how it ended", code=code)
    assert read_outcome(tmp_path, "a") == ("how it ended", code)
    assert read_outcome(tmp_path, "b") == ("", 0)
