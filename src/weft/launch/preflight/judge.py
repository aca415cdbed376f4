"""The conclusions of a preflight: facts about some hosts go in, findings come out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.launch.preflight import hostchecks, netchecks
from weft.launch.preflight.facts import CheckFinding, Facts

# In the order of the table. A new check is one function and one line here.
CHECKS: tuple[Callable[[Facts], Iterator[CheckFinding]], ...] = (
    hostchecks.ssh,
    hostchecks.python,
    hostchecks.torch,
    hostchecks.weft_version,
    hostchecks.hardware,
    hostchecks.files,
    netchecks.port,
    netchecks.leader,
    netchecks.cards,
    netchecks.named_cards,
    netchecks.connects,
    netchecks.links,
    hostchecks.clock,
    hostchecks.open_files,
    hostchecks.locked_memory,
)


def judge(facts: Facts) -> tuple[CheckFinding, ...]:
    """Every finding, in the order of the checks."""
    return tuple(finding for check in CHECKS for finding in check(facts))
