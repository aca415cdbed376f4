"""Spans in; figures, tables and timelines out."""

from __future__ import annotations

import json

import pytest
from tests.collectives.conftest import Bench

from weft.collectives.watching.clock import RankClock, best_of
from weft.collectives.watching.report import Figures, Share, overlap_of, render_report, report_of, shares_of
from weft.collectives.watching.settings import Watching, watching_from_env
from weft.collectives.watching.spans import CALL, CALLER, Span, common, lanes, length, merged
from weft.collectives.watching.trace import TracePart, merge
from weft.errors import UsageError

MS = 1_000_000


def test_stretches_of_time() -> None:
    assert merged([(5, 9), (1, 3), (2, 4)]) == [(1, 4), (5, 9)]
    assert length([(1, 3), (2, 4), (5, 9)]) == 7
    assert common([(0, 10)], [(5, 20)]) == 5


def test_lanes_hold_what_overlaps() -> None:
    spans = [Span("host", "", *times) for times in ((0, 10), (5, 15), (10, 20), (12, 14))]
    assert lanes(spans) == [0, 1, 0, 2]


def test_a_blocking_call_overlaps_with_nothing() -> None:
    spans = [Span(CALL, "all_reduce", 1, 10, asked=1), Span(CALLER, "wait", 1, 10)]
    assert overlap_of(spans) == (9e-9, 0.0)


def test_a_caller_that_computes_meanwhile_overlaps() -> None:
    spans = [Span(CALL, "all_reduce", 2, 100, asked=0), Span(CALLER, "wait", 80, 100)]
    assert overlap_of(spans) == pytest.approx((100e-9, 80e-9))


def test_ddp_waits_from_its_last_call_on() -> None:
    first = Span(CALL, "all_reduce", 0, 50, asked=0, future=True)
    second = Span(CALL, "all_reduce", 50, 100, asked=40, future=True)
    assert overlap_of([first, second]) == pytest.approx((100e-9, 40e-9))


def test_shares_by_dimension() -> None:
    spans = [
        Span("between hosts", "over", 5 * MS, 9 * MS, 100, mode="ring"),
        Span("host", "up", 0, 4 * MS, 100, mode="shm"),
        Span("host", "down", 2 * MS, 6 * MS, 100, mode="shm"),
        Span(CALL, "all_reduce", 0, 9 * MS, 100, asked=0),
        Span(CALL, "gather", 10 * MS, 11 * MS, 7, mode="gloo", asked=0),
    ]
    assert shares_of(spans) == {
        "host": Share(seconds=0.006, calls=2, nbytes=200, modes=("shm",)),
        "between hosts": Share(seconds=0.004, calls=1, nbytes=100, modes=("ring",)),
        "other": Share(seconds=0.001, calls=1, nbytes=7, modes=("gloo",)),
    }


def figures(rank: int, late_ms: int) -> Figures:
    return Figures(
        rank=rank,
        host=f"h{rank // 2}",
        last_step=20,
        steps=10,
        seconds=1.0,
        dimensions={
            "host": Share(seconds=0.1, calls=40, nbytes=40 << 20, modes=("shm",)),
            "between hosts": Share(seconds=0.25, calls=20, nbytes=20 << 20, modes=("ring",)),
        },
        under_way_s=0.4,
        overlapped_s=0.3,
        arrivals={f"0/{call}": (100 * call + late_ms + rank * (call % 2)) * MS for call in range(1, 5)},
        verified=3,
        worst_error=1e-7 * rank,
    )


EVERYONE = [figures(0, 0), figures(1, 2), figures(2, 8), figures(3, 1)]


def test_the_table() -> None:
    report = report_of(EVERYONE, 4)
    assert render_report(report).splitlines() == [
        "weft: steps 11-20: 100 ms a step, 4 ranks on 2 hosts",
        "weft:   dimension      mode  calls   bytes  time a step  of the step",
        "weft:   host           shm      40  40 MiB        10 ms        10.0%",
        "weft:   between hosts  ring     20  20 MiB        25 ms        25.0%",
        "weft:   75% of the communication went on while the caller computed",
        "weft:   latest: rank 2 on h1, 9 ms after the first (+/- 1 ms), last in 100% of 4 calls",
        "weft:   varies most: rank 3 on h1, +/- 1.5 ms",
        "weft:   3 all_reduces verified, largest relative error 3e-07",
    ]


def test_a_table_without_some_ranks() -> None:
    assert "2 of 4 ranks gave no figures in time" in render_report(report_of(EVERYONE[:2], 4))
    alone = render_report(report_of(EVERYONE[:1], 1))
    assert "latest" not in alone


def test_figures_and_reports_travel_as_data() -> None:
    assert Figures.from_json(json.loads(json.dumps(EVERYONE[2].to_json()))) == EVERYONE[2]
    data = json.loads(json.dumps(report_of(EVERYONE, 4).to_json()))
    assert data["dimensions"]["between hosts"]["seconds"] == 0.025
    assert data["latest"]["rank"] == 2


def test_the_quickest_answer_tells_the_time() -> None:
    assert best_of([(0, 1000, 90), (100, 1120, 140), (200, 1400, 390)]) == RankClock(1000, 20)


def part(rank: int, host: str, began: int, offset: int = 0) -> TracePart:
    spans = [
        Span(CALL, "all_reduce SUM", began, 9000 - offset, 4, "float32", "", "0", 1, began - 100),
        Span("host", "up", began, began + 10, 4, "float32", "shm", "0", 1),
    ]
    return TracePart(rank=rank, host=host, spans=spans, offset_ns=offset, error_ns=50, dropped=rank)


def test_a_timeline_has_all_ranks_on_one_clock() -> None:
    parts = [part(1, "b", 103_000, offset=-100_000), part(0, "a", 1000)]
    again = [TracePart.from_json(json.loads(json.dumps(part.to_json()))) for part in parts]
    trace = merge(again, 3)
    drawn = {
        (event["pid"], event["name"]): (event["ts"], event["dur"])
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    }
    assert drawn[1, "all_reduce SUM"][0] == 0.0
    assert drawn[2, "all_reduce SUM"][0] == 2.0  # the clock of b is 100 us ahead
    assert drawn[1, "waiting for peers"] == (0.0, 2.0)
    assert (2, "waiting for peers") not in drawn
    about = trace["otherData"]
    assert (about["missing_ranks"], about["dropped"]) == ([2], {"1": 1})


def test_what_is_asked_by_variables() -> None:
    assert not watching_from_env({}).on
    asked = {"WEFT_REPORT": "5", "WEFT_TRACE": "out.json", "WEFT_VERIFY": "0"}
    assert watching_from_env(asked) == Watching(report=5, trace="out.json")
    with pytest.raises(UsageError, match="WEFT_REPORT must be a whole number, 0 for never, got '-1'"):
        watching_from_env({"WEFT_REPORT": "-1"})


@pytest.mark.parametrize("verb", ["run", "bench"])
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (
            ("--report", "0"),
            "--report must be a whole number between 1 and 1000000000, got '0'; write --report 1",
        ),
        (
            ("--verify", "-3"),
            "--verify must be a whole number between 1 and 1000000000, got '-3'; write --verify 1",
        ),
        (("--trace", "."), "--trace must be a file that can be written"),
        (("--trace", "train.py/out.json"), "which is no folder; write --trace out.json"),
        (("--report", "some"), "--report must be a whole number between 1 and 1000000000, got 'some'"),
        (("--env", "WEFT_VERIFY=x"), "WEFT_VERIFY must be a whole number, 0 for never, got 'x'"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(
    bench: Bench, verb: str, flags: tuple[str, ...], complaint: str
) -> None:
    script = [bench.shell.script("print('started')")]
    done = bench.shell.weft(verb, "-n", "2", *flags, *(script if verb == "run" else []))
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "started" not in done.stdout


def test_every_worker_is_told(bench: Bench) -> None:
    shell = bench.shell
    typed = "run -n 2 --report 4 --trace out.json --verify 9 --debug --dry-run --json"
    done = shell.weft(*typed.split(), shell.script(""))
    told = dict(json.loads(done.stdout)["env"])
    names = ("WEFT_REPORT", "WEFT_VERIFY", "WEFT_DEBUG", "WEFT_TRACE")
    assert [told[name] for name in names] == ["4", "9", "1", str(shell.folder / "out.json")]
