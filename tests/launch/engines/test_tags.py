"""Parting the output of mpirun and srun, as each of them really wrote it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.launch.agent.protocol import WorkerExited, WorkerOutput, WorkersDone, WorkersStarted
from weft.launch.control.conductor import STARTER
from weft.launch.engines.marks import Ended, MarkFinder, end_mark
from weft.launch.engines.starter import Translator
from weft.launch.engines.tags import MPICH, OPENMPI_4, OPENMPI_5, SLURM, TagStyle, Untagger

# Two ranks that each wrote "part", waited, wrote "ial\n", and ended without an end of line.
OPENMPI_4_SAMPLE = (
    "[1,1]<stdout>:part[1,0]<stdout>:part[1,1]<stdout>:ial\n"
    "[1,0]<stdout>:ial\n"
    "mpirun noticed something\n"
    "[1,1]<stdout>:end[1,0]<stdout>:end"
)
OPENMPI_5_SAMPLE = (
    "[1,0]<stdout>: partial\n"
    "[prterun-vm-7@1,1]<stdout>: partial\n"
    "mpirun noticed something\n"
    "[1,0]<stdout>: end[1,1]<stdout>: end"
)
MPICH_SAMPLE = (
    "[weft 1] part[weft 0] part[weft 1] ial\n[weft 0] ial\nmpirun noticed something\n[weft 1] end[weft 0] end"
)
SLURM_SAMPLE = "0: partial\n1: partial\nmpirun noticed something\n1: end\n0: end\n"
SAMPLES = {
    "openmpi 4": (OPENMPI_4, OPENMPI_4_SAMPLE),
    "openmpi 5": (OPENMPI_5, OPENMPI_5_SAMPLE),
    "mpich": (MPICH, MPICH_SAMPLE),
    "slurm": (SLURM, SLURM_SAMPLE),
}


def part(style: TagStyle, chunks: Iterable[str], stream: str = "out") -> dict[tuple[int, str], str]:
    """All that each rank said."""
    untagger = Untagger(style, stream)
    said = [piece for chunk in chunks for piece in untagger.feed(chunk)] + untagger.finish()
    whole: defaultdict[tuple[int, str], str] = defaultdict(str)
    for piece in said:
        whole[piece.rank, piece.stream] += piece.text
    return dict(whole)


def cut(text: str, places: Iterable[int]) -> list[str]:
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_rank_gets_its_own_words(name: str) -> None:
    style, sample = SAMPLES[name]
    last = "\n" if name == "slurm" else ""
    assert part(style, [sample]) == {
        (0, "out"): f"partial\nend{last}",
        (1, "out"): f"partial\nend{last}",
        (STARTER, "out"): "mpirun noticed something\n",
    }


@pytest.mark.parametrize("name", SAMPLES)
@given(places=st.lists(st.integers(0, 300), max_size=8))
def test_it_does_not_matter_where_the_output_is_cut(name: str, places: list[int]) -> None:
    style, sample = SAMPLES[name]
    assert part(style, cut(sample, places)) == part(style, [sample])


def test_open_mpi_names_the_stream() -> None:
    assert part(OPENMPI_5, ["[1,3]<stderr>: oops\n"], "out") == {(3, "err"): "oops\n"}
    assert part(OPENMPI_4, ["[1,3]<stddiag>: oops\n"], "out") == {(3, "err"): " oops\n"}


def test_empty_lines_and_progress_bars() -> None:
    assert part(OPENMPI_5, ["[1,0]<stdout>: \n"]) == {(0, "out"): "\n"}
    assert part(MPICH, ["[weft 0] 10%\r[weft 0] 20%\r"]) == {(0, "out"): "10%\r20%\r"}


def test_a_bar_is_not_held_back() -> None:
    untagger = Untagger(OPENMPI_4, "err")
    (said,) = untagger.feed("[1,0]<stderr>:\r[####    ] 50 %")
    assert said.text == "\r[####    ] 50 %"


def test_srun_labels_only_at_the_start_of_a_line() -> None:
    assert part(SLURM, [" 0: epoch 3: loss", " 12: x\n", "10: y\n"]) == {
        (0, "out"): "epoch 3: loss 12: x\n",
        (10, "out"): "y\n",
    }
    assert part(SLURM, ["srun: error: h2: task 3: Exited with exit code 1\n"]) == {
        (STARTER, "out"): "srun: error: h2: task 3: Exited with exit code 1\n"
    }


@given(st.lists(st.integers(0, 200), max_size=6), st.integers(-64, 255), st.booleans())
def test_marks_are_found_wherever_the_output_is_cut(places: list[int], code: int, asked: bool) -> None:
    ended = Ended(code, asked)
    finder = MarkFinder()
    found = [item for chunk in cut(f"last words{end_mark(ended)}", places) for item in finder.feed(chunk)]
    assert "".join(item for item in found if isinstance(item, str)) + finder.finish() == "last words"
    assert [item for item in found if isinstance(item, Ended)] == [ended]


def test_what_only_looks_like_a_mark_is_kept() -> None:
    finder = MarkFinder()
    found = finder.feed("a\x1eb\x1e\nweft: ended with 3\n\x1e")
    assert found == ["a\x1eb\x1e\nweft: ended with 3\n"]
    assert finder.finish() == "\x1e"


def output(text: str, stream: str = "err") -> WorkerOutput:
    return WorkerOutput(STARTER, stream, text)


def test_ends_become_events_and_who_was_asked_to_end_comes_last() -> None:
    translate = Translator(SLURM)
    assert translate(output(f"1: {end_mark(Ended(-15, asked=True))}")) == []
    assert translate(output(f"0: {end_mark(Ended(7))}")) == [WorkerExited(0, 7)]
    assert translate(WorkerExited(STARTER, 7)) == []
    done = WorkersDone(0)
    assert translate(done) == [WorkerExited(1, -15), WorkerExited(STARTER, 7), done]


def test_a_new_attempt_starts_afresh() -> None:
    translate = Translator(MPICH)
    translate(output("[weft 0] no end of line"))
    translate(output("mpirun's own, no end of line", "out"))
    done = WorkersDone(0)
    assert translate(done)[:-1] == [output("mpirun's own, no end of line\n")]
    assert translate(output("a line\n")) == [output("a line\n")]
    assert translate(WorkersStarted(1, (7,))) == [WorkersStarted(1, (7,))]
