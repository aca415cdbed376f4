"""`weft bench`: what is asked, what is counted, what is drawn, and one real run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from weft.cli import group
from weft.collectives.bench.plan import (
    BUS_FACTORS,
    BenchPlan,
    parse_sizes,
    size_range,
)
from weft.collectives.bench.plot import format_bandwidth, render_svg
from weft.collectives.bench.report import BenchReport, Row, data_line, read_report, render_report
from weft.collectives.bench.worker import BenchTask, shuffled
from weft.errors import UsageError, WeftError


def test_lists_and_ranges_of_sizes() -> None:
    assert parse_sizes("4KiB, 1MiB") == (4096, 1 << 20)
    assert size_range(1024, 70_000, 4) == (1024, 4096, 16384, 65536)
    assert size_range(8, 8, 2) == (8,)
    assert size_range(1, 3, 1.1) == (1, 2, 3)  # it grows even where rounding would not
    with pytest.raises(UsageError, match="--factor above 1"):
        size_range(1, 8, 1)


def test_the_factors_are_those_of_nccl_tests() -> None:
    at_four = {operation: factor(4) for operation, factor in BUS_FACTORS.items()}
    assert at_four == {
        "all_reduce": 1.5,
        "all_gather": 0.75,
        "reduce_scatter": 0.75,
        "broadcast": 1.0,
        "all_to_all": 0.75,
    }


def test_a_plan_survives_the_command_line() -> None:
    plan = BenchPlan(operations=("broadcast",), sizes=(64,), against=("gloo", "weft:mode=ring"))
    assert BenchPlan.from_text(plan.to_text()) == plan


def test_what_is_dealt_out_divides_by_the_world() -> None:
    plan = BenchPlan()
    assert plan.count(4096, "all_reduce", 3) == 1024
    assert plan.count(4096, "all_gather", 3) == 1023
    assert plan.count(4, "all_to_all", 3) == 3


@pytest.mark.parametrize("operation", BUS_FACTORS)
def test_results_are_checked_element_by_element(operation: str) -> None:
    """Three ranks worked out by hand; then one element of one of them is wrong."""
    world, rank, count = 3, 1, 33
    one = count // world
    given = [torch.zeros(one if operation == "all_gather" else count) for _ in range(world)]
    for peer, values in enumerate(given):
        BenchTask(operation, values, values, rank=peer, world=world).fill()
    assert len({tuple(values.tolist()) for values in given}) == world  # each rank has its own
    mine = slice(rank * one, (rank + 1) * one)
    got = {
        "all_reduce": lambda: sum(given[1:], given[0]),
        "broadcast": lambda: given[0],
        "all_gather": lambda: torch.cat(given),
        "reduce_scatter": lambda: sum(given[1:], given[0])[mine],
        "all_to_all": lambda: torch.cat([values[mine] for values in given]),
    }[operation]().clone()
    task = BenchTask(operation, given[rank], got, rank=rank, world=world)
    assert task.wrong(1e-6) == 0
    got[5] += 1
    assert task.wrong(1e-6) == 1


def test_every_backend_is_first_and_last_equally_often() -> None:
    orders = [shuffled(("weft", "gloo"), number) for number in range(200)]
    assert {tuple(sorted(order)) for order in orders} == {("gloo", "weft")}
    assert 80 < sum(order[0] == "weft" for order in orders) < 120


def row(backend: str, size: int, *times_s: float, wrong: int = 0) -> Row:
    return Row(
        operation="all_reduce",
        size=size,
        count=size // 4,
        dtype="float32",
        backend=backend,
        world=4,
        times_s=times_s,
        wrong=wrong,
    )


REPORT = BenchReport(
    rows=(
        row("weft", 4096, 2e-5, 1e-5, 3e-5),
        row("gloo", 4096, 1e-4, 1e-4, 1e-4),
        row("weft", 1 << 20, 1e-3, 1e-3, 1e-3),
        row("gloo", 1 << 20, 5e-4, 5e-4, 5e-4),
    ),
    about={"world": 4, "hosts": 2},
)


def test_bandwidths_come_from_the_median() -> None:
    first = REPORT.rows[0]
    assert (first.time_s, first.least_s) == (2e-5, 1e-5)
    assert first.algbw == pytest.approx(204.8e6)
    assert first.busbw == pytest.approx(307.2e6)


def test_the_table_sets_us_beside_each_rival() -> None:
    assert render_report(REPORT).splitlines() == [
        "all_reduce: 4 workers on 2 hosts; time is the median of 3, bandwidths in GB/s",
        " size   count  dtype    backend     time      min   algbw   busbw  wrong  weft is",
        "4 KiB    1024  float32  weft     20.0 us  10.0 us   0.205   0.307      0",
        "4 KiB    1024  float32  gloo      100 us   100 us  0.0410  0.0614      0  5.00x faster",
        "1 MiB  262144  float32  weft     1.00 ms  1.00 ms    1.05    1.57      0",
        "1 MiB  262144  float32  gloo      500 us   500 us    2.10    3.15      0  2.00x slower",
    ]


def test_findings_are_read_back_from_a_noisy_log() -> None:
    lines = ["a warning", data_line("about", REPORT.about), "another"]
    lines += [data_line("row", entry.to_json()) for entry in REPORT.rows]
    assert read_report("\n".join(lines)) == REPORT


def test_the_picture_is_an_svg_with_a_line_for_each_backend() -> None:
    root = ET.fromstring(render_svg(REPORT))
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert len(root.findall(f".//{space}polyline")) == 2
    texts = [element.text for element in root.iter(f"{space}text")]
    assert {"weft", "gloo", "4 KiB", "1 MiB", "1 GB/s", "bus bandwidth"} <= set(texts)
    points = [point for line in root.iter(f"{space}polyline") for point in line.attrib["points"].split()]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(x) < width and 0 < float(y) < height for x, y in (p.split(",") for p in points))


def test_bandwidths_are_written_with_their_unit() -> None:
    assert [format_bandwidth(value) for value in (1e3, 1e6, 1.25e9)] == ["1 kB/s", "1 MB/s", "1.25 GB/s"]


def bench(*args: str) -> Result:
    return CliRunner().invoke(group, ["bench", *args])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--op allreduce", "--op must be among all_reduce, .*got 'allreduce'; did you mean all_reduce"),
        ("--dtype float31", "--dtype must be one of"),
        ("--sizes 2", "at least one float32 of 4 bytes"),
        ("--sizes 4KiB --max 1MiB", "drop --min, --max and --factor"),
        ("--factor 0.5", "--factor must be a number above 1"),
        ("--iterations 0", "--iterations must be a whole number between 1"),
        ("--against goo", "--against must name some of gloo, .*got 'goo'"),
        ("--against gloo,gloo", "each rival once"),
        ("--against weft:mode=rung", "a mode must be one of .*got 'rung'"),
        ("--against weft:wire=int4", "a wire must be one of .*got 'int4'"),
        ("--against weft:colour=red", "weft:mode=MODE or weft:wire=WIRE, got 'weft:colour=red'"),
        ("--against nccl", "add --device cuda or drop nccl"),
        ("--against mpi", "must run under mpirun, got --engine auto; add --engine mpi"),
        ("--against mpi --device cuda --engine mpi", "must be measured in main memory"),
        ("--plot nowhere/a.svg", "its folder does not exist"),
        ("--min 1 --max 1e18 --factor 1.0001", "at most 1000 sizes, got more"),
    ],
)
def test_bad_requests_are_refused_before_anything_starts(
    args: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = bench("-n", "2", *args.split())
    assert isinstance(result.exception, WeftError)
    with pytest.raises(UsageError, match=says):
        raise result.exception
    assert not (tmp_path / "weft-runs").exists()


@pytest.mark.long
def test_two_workers_beside_gloo(tmp_path: Path) -> None:
    folder, plot = tmp_path / "run", tmp_path / "plot.svg"
    sizes = ["--sizes", "4KiB,100000"]
    asked = ["--op", "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all", "--against", "gloo"]
    how = ["--iterations", "2", "--warmup", "1", "--run-dir", str(folder), "--plot", str(plot), "--json"]
    result = bench("-n", "2", *sizes, *asked, *how)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["world"], found["hosts"], found["iterations"]) == (2, 1, 2)
    rows = found["rows"]
    assert len(rows) == 5 * 2 * 2
    assert {entry["wrong"] for entry in rows} == {0}
    assert [entry["backend"] for entry in rows[:2]] == ["weft", "gloo"]
    assert all(len(entry["times_s"]) == 2 and min(entry["times_s"]) > 0 for entry in rows)
    assert rows[0]["count"] == 1024
    assert len(ET.parse(plot).getroot().findall("{*}g")) == 5
    assert json.loads((folder / "bench.json").read_text()) == found


def test_one_worker_has_nobody_to_talk_to(tmp_path: Path) -> None:
    result = bench("-n", "1", "--run-dir", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert "at least 2 workers, got 1; use -n 2" in str(result.exception)
