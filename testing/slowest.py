"""The slowest tests of a run: wall and CPU seconds of each, its processes included, written to a file (`--slowest`).

CPU seconds tell more than wall time does on a busy machine. Processes below the test's children count once these have
waited for them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

LISTED = 50  # tests in the file
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
    """Notes in each report the CPU seconds since the report before it."""

    def __init__(self) -> None:
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
        lines = self._lines()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("\n".join([*lines[: LISTED + 2], "", *self._folders()]) + "\n")
        terminalreporter.write_sep("=", f"slowest {SHOWN}, more in {self._file}")
        for line in lines[: SHOWN + 2]:
            terminalreporter.write_line(line)

    def _lines(self) -> list[str]:
        order = sorted(self._wall_s, key=lambda test: -self._wall_s[test])
        total = f"{sum(self._wall_s.values()):8.1f} {sum(self._cpu_s.values()):8.1f}  all {len(order)} tests"
        rows = [f"{self._wall_s[test]:8.1f} {self._cpu_s[test]:8.1f}  {test}" for test in order]
        return ["  wall s    CPU s", total, *rows]

    def _folders(self) -> list[str]:
        """The sums of each folder of tests."""
        sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for test, wall_s in self._wall_s.items():
            folder = "/".join(test.partition("::")[0].split("/")[:2])
            sums[folder][0] += wall_s
            sums[folder][1] += self._cpu_s[test]
        return [f"{wall:8.1f} {cpu:8.1f}  {folder}" for folder, (wall, cpu) in sorted(sums.items())]


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
