"""The part `advice` of a job specification: thresholds of rules, rules that are off, and rules that may act.

advice:
  overfitting: {gap: 0.2}              a threshold, by its name without that of the rule
  not-a-number: {act: true}            pause the job in place of only telling
  divergence: {act: halve-rate}        ask the script for that, in place of what the service can do by itself
  plateau: {off: true}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from weft.errors import UsageError
from weft.jobs.advice.model import ACTIONS, SCRIPT_ACTIONS, ActionName, Thresholds
from weft.jobs.advice.rules import RULES

SWITCHES = ("act", "off")
RULE_NAMES = tuple(rule.__name__.replace("_", "-") for rule in RULES)
# Begins the names of a rule's thresholds.
_PREFIXES = {
    "exploding-gradients": "explosion",
    "vanishing-gradients": "vanishing",
    "slow-loader": "loader",
    "busy-processors": "gpu",
    "idle-accelerator": "gpu_idle",
    "exposed-communication": "exposed",
    "tight-memory": "memory",
    "spare-memory": "device",
    "leaking-memory": "leak",
}


@dataclass(frozen=True)
class AdviceSettings:
    """The wishes of a job's owner about advice."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    acting: Mapping[str, ActionName] = field(
        default_factory=dict
    )  # the action of each rule that may take one
    off: frozenset[str] = frozenset()

    def action_of(self, rule: str, actions: tuple[ActionName, ...]) -> ActionName | None:
        """Return the action to take on a finding, if its rule may act."""
        action = self.acting.get(rule)
        return action if action in actions else None


def settings_of(advice: Mapping[str, Mapping[str, float | bool | str]]) -> AdviceSettings:
    """Read the part `advice`; UsageError for a rule or a threshold that there is not."""
    changed: dict[str, float] = {}
    acting: dict[str, ActionName] = {}
    off: set[str] = set()
    for rule, entries in advice.items():
        if rule not in RULE_NAMES:
            raise UsageError(
                f"advice must name rules, got {rule!r}; {_meant(rule, RULE_NAMES)}the rules are {', '.join(RULE_NAMES)}"
            )
        for name, value in entries.items():
            if name == "act" and value:
                acting[rule] = _action(rule, value)
            elif name == "off" and value:
                off.add(rule)
            elif name not in SWITCHES:
                changed[_threshold(rule, name)] = _number(rule, name, value)
    whole = {
        name: int(value) for name, value in changed.items() if isinstance(getattr(Thresholds(), name), int)
    }
    thresholds = replace(Thresholds(), **{**changed, **whole})  # type: ignore[arg-type]
    return AdviceSettings(thresholds, acting, frozenset(off))


def _action(rule: str, given: float | bool | str) -> ActionName:
    """Return the action that `act` means: the one that is named, or the first that the service can take by itself."""
    known = ACTIONS.get(rule, ())
    named = next((action for action in known if action == given), None)
    if named is not None:
        return named
    if given is True and known:
        return next((action for action in known if action not in SCRIPT_ACTIONS), known[0])
    allowed = f"true or {' or '.join(known)}" if known else "left out, as the rule only tells"
    raise UsageError(f"advice.{rule}.act must be {allowed}, got {given!r}; mend it")


def _number(rule: str, name: str, given: float | bool | str) -> float:
    if isinstance(given, bool | str):
        raise UsageError(f"advice.{rule}.{name} must be a number, got {given!r}; write {name}: 0.2")
    return float(given)


def _threshold(rule: str, name: str) -> str:
    known = Thresholds.__dataclass_fields__
    prefix = _PREFIXES.get(rule, rule.replace("-", "_"))
    for full in (f"{prefix}_{name}", name):
        if full in known and full.startswith(prefix.split("_")[0]):
            return full
    mine = [full.removeprefix(f"{prefix}_") for full in known if full.startswith(f"{prefix}_")]
    raise UsageError(
        f"advice.{rule} must have {', '.join([*mine, *SWITCHES])}, got {name!r}; {_meant(name, mine)}leave it out"
    )


def _meant(given: str, known: tuple[str, ...] | list[str]) -> str:
    close = get_close_matches(given, known, 1)
    return f"did you mean {close[0]}? " if close else ""
