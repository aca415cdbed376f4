"""A preflight's result as people and programs read it: a table of ticks and crosses, the fixes, the link speeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from weft.launch.preflight.facts import CheckFinding, Status
from weft.launch.preflight.speeds import MeasuredLink, render_round_trips, render_speeds
from weft.text import plural

MARKS: dict[Status, str] = {"ok": "✓", "warn": "!", "fail": "✗"}
_NAMED_HOSTS = 4  # more are counted


@dataclass(frozen=True, kw_only=True)
class PreflightReport:
    """The findings of a preflight about some hosts."""

    hosts: tuple[str, ...]
    findings: tuple[CheckFinding, ...]
    links: tuple[MeasuredLink, ...] = ()

    @property
    def failures(self) -> tuple[CheckFinding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "fail")

    @property
    def warnings(self) -> tuple[CheckFinding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "warn")

    @property
    def troubles(self) -> tuple[CheckFinding, ...]:
        """The failures, then the warnings."""
        return (*self.failures, *self.warnings)

    @property
    def ok(self) -> bool:
        """Return whether a run may start; warnings do not forbid it."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def render_report(report: PreflightReport, *, verbose: bool = False) -> str:
    """The whole report. Hosts of which the same is said share a row, unless `verbose`."""
    parts = [_table(report, verbose)]
    if report.links:
        measured = [host for host in report.hosts if any(host == link.source for link in report.links)]
        parts.append(render_speeds(measured, report.links))
        if verbose:
            parts.append(render_round_trips(measured, report.links))
    fixes = grouped((replace(finding, got=finding.fix, fix="") for finding in report.troubles), report.hosts)
    if fixes:
        parts.append(
            "\n".join(f"{MARKS[fix.status]} {fix.name} {hosts}: {fix.got}" for fix, hosts in fixes.items())
        )
    return "\n\n".join((*parts, _summary(report)))


def render_troubles(report: PreflightReport) -> list[str]:
    """A line for every failure, then for every warning: what must hold, what was got, what to do next."""
    rows = grouped(report.troubles, report.hosts)
    return [f"{MARKS[row.status]} {row.name} {hosts}: {row.got}; {row.fix}" for row, hosts in rows.items()]


def grouped(findings: Iterable[CheckFinding], everyone: Sequence[str]) -> dict[CheckFinding, str]:
    """Findings that say the same, once, each with the hosts it is about."""
    rows: dict[CheckFinding, list[str]] = {}
    for finding in findings:
        row = replace(finding, hosts=()) if len(finding.hosts) == 1 else finding
        rows.setdefault(row, []).append(" to ".join(finding.hosts))
    return {row: _hosts(hosts, everyone) for row, hosts in rows.items()}


def _table(report: PreflightReport, verbose: bool) -> str:
    if verbose:
        rows = [(finding, _hosts([" to ".join(finding.hosts)], report.hosts)) for finding in report.findings]
    else:
        rows = list(grouped((replace(finding, fix="") for finding in report.findings), report.hosts).items())
    left, middle = max(len(row.name) for row, _ in rows), max(len(hosts) for _, hosts in rows)
    return "\n".join(
        f"{MARKS[row.status]} {row.name:<{left}}  {hosts:<{middle}}  {row.got}" for row, hosts in rows
    )


def _hosts(named: Sequence[str], everyone: Sequence[str]) -> str:
    if len(named) == len(everyone) > 1 or not any(named):
        return "all"
    if len(named) > _NAMED_HOSTS:
        return f"{', '.join(named[: _NAMED_HOSTS - 1])} and {len(named) - _NAMED_HOSTS + 1} more"
    return ", ".join(named)


def _summary(report: PreflightReport) -> str:
    count = len(report.hosts)
    ready = f"{count} hosts are ready" if count > 1 else f"{report.hosts[0]} is ready"
    if not report.ok:
        return f"{plural(len(report.failures), 'failure')}; a run would not start"
    return f"{ready} with {plural(len(report.warnings), 'warning')}" if report.warnings else ready
