"""Judgements about each host by itself and against the others: versions, hardware, files, clock, limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import weft
from weft.launch.preflight.facts import CheckFinding, Facts, most_common
from weft.text import format_size
from weft.topology.alike import differences

# Linux's own default. Gloo keeps a connection to every peer for every group, and a DataLoader passes each
# tensor between processes as an open file.
MIN_OPEN_FILES = 1024
# RDMA cards pin the buffers they send from; gradients of a large model are of this order.
MIN_LOCKED_BYTES = 1 << 30
# Time-outs, leases and the order of log lines tolerate less than a second.
MAX_CLOCK_S = 0.5


def ssh(facts: Facts) -> Iterator[CheckFinding]:
    for host in facts.hosts:
        if host in facts.troubles:
            # The sentences of the ssh engine say: what must hold, got what; what to do next.
            got, _, fix = facts.troubles[host].removeprefix(f"{host}: ").partition("; ")
            yield CheckFinding(
                name="ssh", hosts=(host,), status="fail", got=got, fix=fix or f"try: ssh {host} true"
            )
        else:
            yield CheckFinding(name="ssh", hosts=(host,), got="answers")


def python(facts: Facts) -> Iterator[CheckFinding]:
    versions = {host: ".".join(survey.python.split(".")[:2]) for host, survey in facts.surveys.items()}
    usual = most_common(versions.values(), "")
    for host, version in versions.items():
        got = facts.surveys[host].python
        if version == usual:
            yield CheckFinding(name="python", hosts=(host,), got=version)
        else:
            yield CheckFinding(
                name="python",
                hosts=(host,),
                status="fail",
                got=f"Python must be the same on every host, got {got} where others have {usual}",
                fix="make the same environment there, or name another with --python",
            )


def torch(facts: Facts) -> Iterator[CheckFinding]:
    versions = {host: survey.torch or "none" for host, survey in facts.surveys.items()}
    usual = most_common(versions.values(), "")
    release, _, build = usual.partition("+")
    for host, version in versions.items():
        if version == usual:
            yield CheckFinding(name="torch", hosts=(host,), got=version)
            continue
        # Builds of one release (cpu, cu128) talk to each other, but compute on different devices.
        same_release = version.partition("+")[0] == release
        yield CheckFinding(
            name="torch",
            hosts=(host,),
            status="warn" if same_release else "fail",
            got=f"torch must be the same on every host, got {version} where others have {usual}",
            fix=_install(facts, host, f"torch=={release}", f" (build {build})" if build else ""),
        )


def weft_version(facts: Facts) -> Iterator[CheckFinding]:
    ours = weft.__version__
    for host, survey in facts.surveys.items():
        if survey.weft == ours:
            yield CheckFinding(name="weft", hosts=(host,), got=ours)
        else:
            yield CheckFinding(
                name="weft",
                hosts=(host,),
                status="fail",
                got=f"weft must be the same on every host as here, got {survey.weft} and {ours} here",
                fix=_install(facts, host, f"weft=={ours}"),
            )


def _install(facts: Facts, host: str, package: str, note: str = "") -> str:
    return (
        f"install the same there: ssh {host} {facts.surveys[host].executable} -m pip install {package}{note}"
    )


def hardware(facts: Facts) -> Iterator[CheckFinding]:
    hosts = [replace(survey.host, name=host) for host, survey in facts.surveys.items()]
    if len(hosts) < 2:
        return
    found = differences(hosts)
    for host in facts.surveys:
        told = [f"{d.what} {d.got} where {hosts[0].name} has {d.expected}" for d in found if d.host == host]
        if not told:
            yield CheckFinding(name="hardware", hosts=(host,), got="alike")
        elif facts.allow_uneven:
            yield CheckFinding(name="hardware", hosts=(host,), got=f"allowed to differ: {', '.join(told)}")
        else:
            yield CheckFinding(
                name="hardware",
                hosts=(host,),
                status="fail",
                got=f"hosts must be alike, got {', '.join(told)}",
                fix="mend the host list or use --allow-uneven",
            )


def files(facts: Facts) -> Iterator[CheckFinding]:
    for host, missing in (facts.missing or {}).items():
        if not missing:
            yield CheckFinding(name="files", hosts=(host,), got="present")
        for path in missing:
            yield CheckFinding(
                name="files",
                hosts=(host,),
                status="fail",
                got=f"every host must have {path}, got none",
                fix="copy it there or share the folder",
            )


def clock(facts: Facts) -> Iterator[CheckFinding]:
    """Compare clocks with the median, so that one bad clock is one finding."""
    if len(facts.clocks) < 2:
        return
    middle = sorted(clock.ahead_s for clock in facts.clocks.values())[(len(facts.clocks) - 1) // 2]
    for host, clock in facts.clocks.items():
        apart = clock.ahead_s - middle
        if abs(apart) - clock.error_s <= MAX_CLOCK_S:
            yield CheckFinding(name="clock", hosts=(host,), got="in step")
        else:
            yield CheckFinding(
                name="clock",
                hosts=(host,),
                status="warn",
                got=f"clocks must be within {MAX_CLOCK_S:g} s, got one {abs(apart):.1f} s "
                + ("ahead" if apart > 0 else "behind"),
                fix="start a time service there: chrony or systemd-timesyncd",
            )


def open_files(facts: Facts) -> Iterator[CheckFinding]:
    for host, survey in facts.surveys.items():
        limit = survey.open_files
        if limit < 0 or limit >= MIN_OPEN_FILES:
            yield CheckFinding(
                name="open files", hosts=(host,), got="unlimited" if limit < 0 else f"up to {limit}"
            )
        else:
            yield CheckFinding(
                name="open files",
                hosts=(host,),
                status="warn",
                got=f"a process must be allowed {MIN_OPEN_FILES} open files, got {limit}",
                fix="raise `nofile` in /etc/security/limits.conf there",
            )


def locked_memory(facts: Facts) -> Iterator[CheckFinding]:
    """Check the limit of locked memory, which only hosts with an RDMA card need."""
    for host, survey in facts.surveys.items():
        limit = survey.locked_bytes
        if not survey.rdma:
            continue
        if limit < 0 or limit >= MIN_LOCKED_BYTES:
            got = "unlimited" if limit < 0 else f"up to {format_size(limit, unit='GiB')}"
            yield CheckFinding(name="locked memory", hosts=(host,), got=got)
        else:
            yield CheckFinding(
                name="locked memory",
                hosts=(host,),
                status="warn",
                got=f"RDMA must be allowed to lock {format_size(MIN_LOCKED_BYTES, unit='GiB')}, got {limit} bytes",
                fix="set `memlock unlimited` in /etc/security/limits.conf there, or run with --tcp",
            )
