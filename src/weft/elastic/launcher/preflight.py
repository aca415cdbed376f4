"""The preflight of an elastic run: what every run on several hosts is checked for, asked of those that are there.

A host that is not there yet is no reason to wait: what can be wrong with it is found when it comes.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace

from weft.launch import preflight
from weft.launch.config import LaunchConfig
from weft.launch.engines.ssh import SshHosts
from weft.launch.preflight import Report


def check_who_is_there(config: LaunchConfig) -> dict[str, str]:
    """Stop what would fail, say what is odd; gives the hosts that are not there, each with the reason."""
    absent: dict[str, str] = {}
    while True:
        here = tuple(entry for entry in config.hosts if entry.name not in absent)
        if len(here) < 2:
            return absent
        report = _ask(replace(config, hosts=here, port=None))  # agents listen where there is room
        missing = _not_there(report)
        if not missing:
            break
        absent |= missing  # the others may have a leader again only without them
    _tell(report, verbose=config.verbose)
    preflight.require_ok(report)
    return absent


def _ask(config: LaunchConfig) -> Report:
    with closing(SshHosts(config)) as hosts:
        return preflight.check_before_run(hosts, config, progress=preflight.progress_on(sys.stderr))


def _not_there(report: Report) -> dict[str, str]:
    failed = [finding for finding in report.failures if finding.name == "ssh"]
    return {
        finding.hosts[0]: f"{finding.hosts[0]}: {finding.got}; {finding.fix}".rstrip("; ")
        for finding in failed
    }


def _tell(report: Report, *, verbose: bool) -> None:
    if verbose:
        print(preflight.render_report(report), file=sys.stderr)
    elif report.ok:
        for line in preflight.render_troubles(report):
            print(f"weft: {line}", file=sys.stderr)
