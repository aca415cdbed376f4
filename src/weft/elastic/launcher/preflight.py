"""The preflight of an elastic run: the checks of every run on several hosts, made on the hosts that answer.

A host that does not answer yet is no reason to wait: what can be wrong with it is found when it joins.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace

from weft.launch import preflight
from weft.launch.config import LaunchConfig
from weft.launch.engines.engine import remote_hosts
from weft.launch.preflight import PreflightReport


def check_present_hosts(config: LaunchConfig) -> dict[str, str]:
    """Raise for what would fail, print warnings; return the hosts that do not answer, each with the reason."""
    absent: dict[str, str] = {}
    while True:
        here = tuple(entry for entry in config.hosts if entry.name not in absent)
        if len(here) < 2:
            return absent
        report = _check(replace(config, hosts=here, port=None))  # agents pick a free port
        missing = _not_reached(report)
        if not missing:
            break
        absent |= missing  # without them, another host may be the leader
    _print(report, verbose=config.verbose)
    preflight.require_ok(report)
    return absent


def _check(config: LaunchConfig) -> PreflightReport:
    with closing(remote_hosts(config)) as hosts:
        return preflight.check_before_run(hosts, config, progress=preflight.progress_on(sys.stderr))


def _not_reached(report: PreflightReport) -> dict[str, str]:
    failed = [finding for finding in report.failures if finding.name == "ssh"]
    return {
        finding.hosts[0]: f"{finding.hosts[0]}: {finding.got}; {finding.fix}".rstrip("; ")
        for finding in failed
    }


def _print(report: PreflightReport, *, verbose: bool) -> None:
    if verbose:
        print(preflight.render_report(report), file=sys.stderr)
    elif report.ok:
        for line in preflight.render_troubles(report):
            print(f"weft: {line}", file=sys.stderr)
