r"""The expressions of FfDL's regex_extractor, as regular expressions whose named groups are metrics. Pure.

groups:
  train: {regex: "step %{INT:s} loss %{FLOAT:l}", scalars: {loss: {type: FLOAT, value: $l}},
          etimes: {iteration: {type: INT, value: $s}}}

becomes  step (?P<step>\d+) loss (?P<loss>[-+]?...).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SHORTHANDS: Mapping[str, str] = {
    "INT": r"\d+",
    "INT_ANY": r"[-+]?\d+",
    "FLOAT": r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?",
    "HEX": r"(?:0x)?[0-9a-fA-F]+",
    "TIMESTAMP": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[-+]\d\d:?\d\d)?",
    "GLOG_STAMP": r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+",
}
_SHORT = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_NAMED = re.compile(r"\(\?P?<(\w+)>")
_NUMBERS = ("INT", "FLOAT")
_STEPS = ("iteration", "step", "global_step", "epoch")


class PatternError(ValueError):
    """An expression that cannot be translated."""


def translate_group(label: str, group: Any) -> str:
    """Return the expression of one group: names that FfDL knows as scalars are metrics, its iteration is the step."""
    if not isinstance(group, dict) or not isinstance(group.get("regex"), str):
        raise PatternError(f"the group {label} has no regex")
    pattern = _SHORT.sub(_expanded, group["regex"])
    names = _names(group.get("scalars"), number=True)
    times = _names(group.get("etimes"), number=False)
    step = next((times[name] for name in _STEPS if name in times), None)
    metrics = {group_name: name for name, group_name in names.items()}
    if not metrics:
        raise PatternError(f"the group {label} has no scalars that are numbers")

    def renamed(match: re.Match[str]) -> str:
        if match[1] == step:
            return "(?P<step>"
        return f"(?P<{metrics[match[1]]}>" if match[1] in metrics else "(?:"

    pattern = _NAMED.sub(renamed, pattern)
    try:
        found = set(re.compile(pattern).groupindex)
    except re.error as error:
        raise PatternError(f"the group {label}: {error}") from None
    if not found - {"step"}:
        raise PatternError(f"the group {label} names no scalar in its regex")
    return pattern


def _expanded(match: re.Match[str]) -> str:
    if match[1] not in SHORTHANDS:
        raise PatternError(f"%{{{match[1]}}} is not among {', '.join(SHORTHANDS)}")
    return f"(?P<{match[2]}>{SHORTHANDS[match[1]]})" if match[2] else f"(?:{SHORTHANDS[match[1]]})"


def _names(given: Any, *, number: bool) -> dict[str, str]:
    """Return the group that each name takes its value from: `loss: {type: FLOAT, value: $l}` gives loss: l."""
    found: dict[str, str] = {}
    for name, one in (given if isinstance(given, dict) else {}).items():
        value = one.get("value") if isinstance(one, dict) else None
        wanted = not number or (isinstance(one, dict) and str(one.get("type", "FLOAT")).upper() in _NUMBERS)
        if isinstance(value, str) and value.startswith("$") and wanted and str(name).isidentifier():
            found[str(name)] = value[1:].strip("{}")
    return found
