"""Failures told at once: a line for each test that fails, while the others still run."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # set by xdist, whose workers' reports come to this process
        config.pluginmanager.register(_Told(config), "failures-at-once")


class _Told:
    """Writes the name of a failed test, and what was raised, as soon as its report comes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message.partition("\n")[0] if crash is not None else report.when
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid}: {reason}", red=True)
