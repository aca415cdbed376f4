"""Who failed first, and with what: read from what the ranks printed and when they ended."""

from __future__ import annotations

from weft.launch.control.outcome import (
    TAIL_CHARACTERS,
    Failure,
    Outcome,
    RankRecord,
    describe_code,
    exception_line,
    first_to_fail,
    last_traceback,
    render_failure,
    shell_code,
)

PLAIN = """\
loading
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    step()
  File "train.py", line 1, in step
    raise ValueError("bad batch")
ValueError: bad batch
"""

CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
RuntimeError: no x
"""


def record(code: int | None, ended: float | None = None, complained: float | None = None) -> RankRecord:
    return RankRecord(code=code, ended_at=ended, complained_at=complained)


def test_a_traceback_is_cut_out_of_other_output() -> None:
    found = last_traceback(PLAIN + "[W1115 04:57:18] a warning of the runtime\n")
    assert found == PLAIN.removeprefix("loading\n").rstrip()
    assert found is not None
    assert exception_line(found) == "ValueError: bad batch"


def test_the_last_of_several_counts() -> None:
    found = last_traceback(PLAIN + "recovered\n" + PLAIN.replace("bad batch", "worse"))
    assert found is not None
    assert found.count("Traceback") == 1
    assert exception_line(found) == "ValueError: worse"


def test_an_exception_keeps_those_it_came_from() -> None:
    found = last_traceback(CHAINED)
    assert found == CHAINED.rstrip()
    assert exception_line(CHAINED) == "RuntimeError: no x"


def test_the_label_torch_puts_before_each_line_is_dropped() -> None:
    labelled = "".join(f"[rank3]: {line}\n" for line in PLAIN.splitlines())
    found = last_traceback(labelled)
    assert found is not None
    assert exception_line(found) == "ValueError: bad batch"


def test_a_message_of_several_lines_is_kept_whole() -> None:
    found = last_traceback(PLAIN.rstrip() + "\nexpected 3\ngot 4\n")
    assert found is not None
    assert found.endswith("ValueError: bad batch\nexpected 3\ngot 4")


def test_output_without_a_traceback_has_none() -> None:
    assert last_traceback("all well\n") is None


def test_who_complained_first_failed_first_even_if_it_ended_later() -> None:
    # Rank 3 raised, rank 1 lost its connection to it, and rank 1's process was gone sooner.
    records = {
        0: record(None),
        1: record(1, ended=5.0, complained=4.9),
        3: record(1, ended=5.2, complained=4.5),
    }
    assert first_to_fail(records, stopped_at=5.1) == 3


def test_an_exception_that_was_caught_long_ago_is_no_failure() -> None:
    # Rank 0 logged an exception and went on; we ended it, together with rank 2 that left by itself, after rank 1.
    records = {
        0: record(-15, ended=106.0, complained=5.0),
        1: record(7, ended=105.0),
        2: record(3, ended=105.1, complained=6.0),
    }
    assert first_to_fail(records, stopped_at=105.2) == 1


def test_those_we_ended_ourselves_did_not_fail() -> None:
    records = {0: record(-15, ended=6.0), 1: record(7, ended=5.0), 2: record(0, ended=4.0)}
    assert first_to_fail(records, stopped_at=5.0) == 1
    assert first_to_fail({0: record(-15, ended=6.0)}, stopped_at=5.0) is None


def test_an_exit_code_in_words() -> None:
    assert describe_code(7) == "exit code 7"
    assert describe_code(-11) == "killed by SIGSEGV"
    assert "out of memory" in describe_code(-9)
    assert (shell_code(7), shell_code(-9)) == (7, 137)


def test_the_last_screen_names_rank_host_exception_and_log() -> None:
    failure = Failure(
        rank=3,
        host="h2",
        code=1,
        reason="ValueError: bad batch",
        traceback="Traceback ...",
        log="runs/rank-3.log",
    )
    outcome = Outcome(code=1, codes={0: -15, 1: -15, 3: 1}, seconds=2.0, restarts=1, failure=failure)
    assert render_failure(outcome).splitlines() == [
        "weft: failed: rank 3 on h2: ValueError: bad batch",
        "",
        "    Traceback ...",
        "",
        "weft: ranks 0, 1 ended with it",
        "weft: after 1 restart",
        "weft: log runs/rank-3.log",
    ]


def test_a_rank_that_talks_for_days_is_kept_in_bounds() -> None:
    chatty = RankRecord()
    for number in range(5000):
        chatty.hear(f"line {number} {'x' * 100}\n", float(number))
    chatty.hear(PLAIN, 5000.0)
    assert len(chatty.tail) == TAIL_CHARACTERS
    assert last_traceback(chatty.tail) == PLAIN.removeprefix("loading\n").rstrip()
