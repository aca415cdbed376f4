"""The slowest tests of a run: CPU and wall seconds of each, its processes included, written to a file (`--slowest`).

CPU seconds tell more than wall time does on a busy machine. Processes below the test's children count once these have
waited for them. What processes of tests do outside of tests (start, collect) stands in a line of its own.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

LISTED = 50  # tests, and files of tests, in the file
SHOWN = 10  # tests at the end of the run
_CPU = "cpu_s"  # the property of a report, which xdist carries from its workers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slowest", metavar="FILE", type=Path, help=f"write the {LISTED} slowest tests to this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Clock(), "cpu-clock")
    if config.getoption("--slowest") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Table(config.getoption("--slowest")), "slowest-table")


class _Clock:
    """Notes in each report the CPU seconds since the start of the test, or since its report before this one."""

    def __init__(self) -> None:
        self._before = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._before = _cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _cpu_s()
        report.user_properties.append((_CPU, round(now - self._before, 3)))
        self._before = now
        return report


class _Table:
    """Adds up the reports of all workers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._wall_s: dict[str, float] = defaultdict(float)
        self._cpu_s: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._wall_s[report.nodeid] += report.duration
        # The properties of a test grow from phase to phase: the last one is this phase's.
        self._cpu_s[report.nodeid] += next(
            (float(str(value)) for name, value in reversed(report.user_properties) if name == _CPU), 0.0
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        tests = self._rows(lambda test: test)
        lines = [*self._totals(), "", *tests[:LISTED]]
        lines += ["", *self._rows(_folder), "", *self._rows(_file)[:LISTED]]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("\n".join(lines) + "\n")
        terminalreporter.write_sep("=", f"slowest {SHOWN}, more in {self._file}")
        for line in [*self._totals(), *tests[:SHOWN]]:
            terminalreporter.write_line(line)

    def _totals(self) -> list[str]:
        in_tests_s = sum(self._cpu_s.values())
        outside_s = _cpu_s() - in_tests_s  # workers of xdist are children of this process
        return [
            "   CPU s   wall s",
            _row(in_tests_s, sum(self._wall_s.values()), f"all {len(self._wall_s)} tests"),
            f"{outside_s:8.1f}           outside of tests: starts, collections, ends",
        ]

    def _rows(self, group: Callable[[str], str]) -> list[str]:
        cpu_s, wall_s = _sums(self._cpu_s, group), _sums(self._wall_s, group)
        return [
            _row(cpu_s[name], wall_s[name], name) for name in sorted(cpu_s, key=lambda name: -cpu_s[name])
        ]


def _row(cpu_s: float, wall_s: float, name: str) -> str:
    return f"{cpu_s:8.1f} {wall_s:8.1f}  {name}"


def _file(test: str) -> str:
    return test.partition("::")[0]


def _folder(test: str) -> str:
    return "/".join(_file(test).split("/")[:2])


def _sums(seconds: Mapping[str, float], group: Callable[[str], str]) -> Mapping[str, float]:
    """Return the sums of all tests of a group. Pure."""
    sums: dict[str, float] = defaultdict(float)
    for test, passed_s in seconds.items():
        sums[group(test)] += passed_s
    return sums


def _cpu_s() -> float:
    """Return the CPU seconds of this process, of all it has waited for, and of its children with theirs."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + _of_children_s()


def _of_children_s() -> float:
    # A fork server lives as long as this process, and its forks are waited for by it.
    ticks = 0
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread or the child has just ended
            for pid in children.read_text().split():
                ticks += sum(
                    map(int, Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[11:15])
                )
    return ticks / os.sysconf("SC_CLK_TCK")
