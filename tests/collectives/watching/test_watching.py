"""Reports, traces and verification of real runs."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import PATH, WORKERS, Bench


def events_of(path: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def ranks_in(events: list[dict[str, Any]]) -> set[str]:
    return {
        event["args"]["name"]
        for event in events
        if event["name"] == "thread_name" and re.fullmatch(r"rank \d+", event["args"]["name"])
    }


def assert_nested(events: list[dict[str, Any]]) -> None:
    """In a row, two events lie apart or one in the other: nothing else can be drawn."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            rows.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
    for stretches in rows.values():
        open_until: list[float] = []
        for began, ended in sorted(stretches, key=lambda stretch: (stretch[0], -stretch[1])):
            while open_until and open_until[-1] <= began + 1e-3:
                open_until.pop()
            assert not open_until or ended <= open_until[-1] + 1e-3
            open_until.append(ended)


def test_a_report_every_three_steps(bench: Bench) -> None:
    done = bench.runs("watched.py", 2, "well", options=("--report", "3", "--mode", "shm"))
    assert done.returncode == 0, done.stdout + done.stderr
    tables = re.findall(r"\[0\] weft: steps (\d+-\d+): .* a step, 2 ranks on 1 host", done.stderr)
    assert tables == ["1-3", "4-6"]
    assert re.search(r"weft:   host +shm +\d+ +[\d.]+ MiB", done.stderr), done.stderr
    assert re.search(r"\d+% of the communication went on while the caller computed", done.stderr)
    assert re.search(r"latest: rank [01] on \S+, .* last in \d+% of \d+ calls", done.stderr)
    kept = next(bench.shell.folder.glob("weft-runs/*/report.jsonl")).read_text().splitlines()
    assert [json.loads(line)["last_step"] for line in kept] == [3, 6]


def test_without_an_optimizer_a_step_is_an_all_reduce(bench: Bench) -> None:
    done = bench.runs("without_optimizer.py", 2, WEFT_REPORT="3", WEFT_MODE="shm")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"weft: steps (\d+-\d+):", done.stderr) == ["1-3", "4-6", "7-9"]


@pytest.mark.parametrize("how", ["well", "forgets"])
def test_a_trace_of_all_ranks(bench: Bench, how: str) -> None:
    done = bench.runs("watched.py", 2, how, options=("--trace", "deep/out.json", "--mode", "shm"))
    assert done.returncode == 0, done.stdout + done.stderr
    path = bench.shell.folder / "deep" / "out.json"
    events = events_of(path)
    assert ranks_in(events) == {"rank 0", "rank 1"}
    assert_nested(events)
    drawn = [event for event in events if event["ph"] == "X"]
    assert f"weft: trace of {len(drawn)} events in {path}; open it at ui.perfetto.dev" in done.stderr
    reduced = next(event for event in drawn if event.get("cat") == "host" and event["name"] == "all_reduce")
    assert reduced["args"].keys() == {"bytes", "dtype", "mode", "call", "group"}
    assert reduced["args"]["mode"] == "shm"
    names = {event["name"] for event in drawn}
    assert {"all_reduce SUM", "barrier", "waiting for peers"} <= names
    assert any(name.startswith("send") for name in names)
    assert any(name.startswith("recv") for name in names)


@pytest.mark.parametrize(
    ("how", "there"),
    [("raises", {0, 1, 2}), ("killed", {0, 1}), ("told", {0, 1, 2}), ("hidden", {0, 1, 2})],
)
def test_a_trace_of_a_run_that_fails(bench: Bench, how: str, there: set[int]) -> None:
    done = bench.runs("watched.py", 3, how, options=("--trace", "out.json", "--mode", "shm", "--grace", "20"))
    assert done.returncode != 0
    events = events_of(bench.shell.folder / "out.json")
    assert ranks_in(events) == {f"rank {rank}" for rank in there}, done.stderr
    assert "weft: trace of" in done.stderr
    assert ("without rank 2" in done.stderr) == (2 not in there)


def test_a_trace_of_a_run_that_is_ended(bench: Bench) -> None:
    options = ("--trace", "out.json", "--mode", "shm", "--grace", "4")
    process = bench.shell.start(
        "run", "-n", "2", *options, str(WORKERS / "watched.py"), "stuck", PYTHONPATH=PATH
    )
    assert process.stdout is not None
    assert "waiting" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert ranks_in(events_of(bench.shell.folder / "out.json")) == {"rank 0", "rank 1"}


def test_a_trace_and_a_report_of_several_hosts(bench: Bench, shared_cluster: VirtualCluster) -> None:
    options = ("--trace", "out.json", "--report", "3", "--mode", "shm,ring")
    process = bench.starts_on(shared_cluster, "h1:2,h2:1", "watched.py", "well", options=options)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, output + errors
    events = events_of(bench.shell.folder / "out.json")
    assert ranks_in(events) == {"rank 0", "rank 1", "rank 2"}
    assert_nested(events)
    hosts = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert hosts == {"h1", "h2"}
    rows = {event.get("cat") for event in events}
    assert {"host", "between hosts"} <= rows
    ways = {event["name"] for event in events if event.get("cat") in ("host", "between hosts")}
    assert any(way.startswith("up") for way in ways)
    assert any(way.startswith("over") for way in ways)
    assert any(way.startswith("down") for way in ways)
    assert re.search(r"weft:   between hosts +ring", errors), errors
    assert "3 ranks on 2 hosts" in errors


def told(output: str, shape: str) -> list[str]:
    """What each rank was told when it reduced a tensor of this shape."""
    return re.findall(rf"\[\d\] {shape}: told (.*)", output)


def test_results_that_are_right(bench: Bench) -> None:
    done = bench.runs(
        "wrong.py", 3, "none", "0", "always", "40x1000", options=("--verify", "2", "--mode", "shm")
    )
    assert told(done.stdout, "40x1000") == ["nothing"] * 3, done.stdout + done.stderr
    assert re.search(r"weft: 2 all_reduces verified, largest relative error \d\.?\d*e-0[78]", done.stderr)


def test_a_host_that_adds_up_wrongly(bench: Bench) -> None:
    shapes, options = ("30x40", "700x1000"), ("--verify", "1", "--mode", "shm")
    done = bench.runs("wrong.py", 3, "shm", "1", "always", *shapes, options=options)
    for shape in shapes:
        said = told(done.stdout, shape)
        assert len(said) == 3, done.stdout + done.stderr
        assert len(set(said)) == 1
        assert said[0].startswith(
            f"VerifyError: all_reduce(float32[{shape.replace('x', ', ')}], AVG) must be within "
        )
        where = r"at element \[\d+, \d+\] \(and \d+ more wrong\) on rank 1 on \S+;"
        assert re.search(where, said[0]), said[0]
        assert "the dimension at fault is: host (mode shm), at " in said[0]


def test_a_fault_that_comes_and_goes(bench: Bench) -> None:
    done = bench.runs("wrong.py", 2, "shm", "1", "once", "1000", options=("--verify", "1", "--mode", "shm"))
    said = told(done.stdout, "1000")
    assert len(said) == 2, done.stdout + done.stderr
    assert all("was right when tried alone, so it comes and goes" in words for words in said), said


def test_a_network_that_adds_up_wrongly(bench: Bench, shared_cluster: VirtualCluster) -> None:
    shapes = ("100", "200x1000", "1000x1000")  # by the leaders, in one go, in chunks
    options = ("--verify", "1", "--mode", "shm,ring")
    process = bench.starts_on(
        shared_cluster, "h1:2,h2:2", "wrong.py", "ring", "2", "always", *shapes, options=options
    )
    output, errors = process.communicate(timeout=90)
    for shape in shapes:
        said = told(output, shape)
        assert len(said) == 4, output + errors
        assert len(set(said)) == 1
        assert re.search(r"on (rank \d on h2(, )?)+;", said[0]), said[0]
        assert "the dimension at fault is: between hosts (mode ring), at h2" in said[0], said[0]


@pytest.mark.parametrize("wire", ["bf16", "fp16", "int8"])
def test_light_wires_have_their_own_allowance(
    bench: Bench, shared_cluster: VirtualCluster, wire: str
) -> None:
    options = ("--verify", "1", "--wire", wire)
    process = bench.starts_on(
        shared_cluster, "h1:2,h2:1,h3:1", "wrong.py", "none", "0", "always", "1000x1000", options=options
    )
    output, errors = process.communicate(timeout=120)
    assert told(output, "1000x1000") == ["nothing"] * 4, output + errors
    found = re.search(r"weft: 5 all_reduces verified, largest relative error ([\d.e-]+)", errors)
    assert found, errors
    assert 1e-5 < float(found[1]) < 0.1
