"""Weights that one trial takes from another: its folder of checkpoints is replaced by a copy, once, whatever dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from weft.tune.study.state import TrialRecord

MARK = ".weft-weights-of"  # in a folder that was copied: from which trial, and when


def take_weights(trial: TrialRecord, folder_of: Callable[[int], Path]) -> None:
    """Copy the checkpoints of the trial's parent, unless that was done already."""
    if trial.parent is None:
        return
    target, text = folder_of(trial.number), f"{trial.parent}@{trial.cloned_at}"
    mark = target / MARK
    if mark.exists() and mark.read_text() == text:
        return
    source, draft = folder_of(trial.parent), target.with_name(f"{target.name}.copy")
    shutil.rmtree(draft, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, draft)
    else:
        draft.mkdir(parents=True)
    (draft / MARK).write_text(text)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
