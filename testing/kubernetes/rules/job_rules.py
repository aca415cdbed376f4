"""When a Job has failed, by the rules of the real controller: of all pods together, or of each index; pure."""

from __future__ import annotations

from typing import Any

Data = dict[str, Any]


def why_failed(spec: Data, ends: dict[int, list[str]], failed: set[int], done: set[int]) -> str | None:
    """Return why a Job of these ended pods has failed; None while it goes on.

    An index that fails too often ends the Job only where `maxFailedIndexes` says so, or once all others have ended.
    """
    if "backoffLimitPerIndex" not in spec:
        failures = sum(phases.count("Failed") for phases in ends.values())
        return "BackoffLimitExceeded" if failures > spec.get("backoffLimit", 6) else None
    most = spec["maxFailedIndexes"] if "maxFailedIndexes" in spec else spec["completions"]
    if len(failed) > most:
        return "MaxFailedIndexesExceeded"
    return "FailedIndexes" if failed and len(failed | done) >= spec["completions"] else None
