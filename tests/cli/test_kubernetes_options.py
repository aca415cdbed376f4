"""The options of `weft run --engine kubernetes`: how many pods they ask for, and what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from weft.cli import group
from weft.errors import WeftError


def dry_run(*words: str) -> Any:
    """Return the objects of a run, or the sentence by which it is refused."""
    argv = ["run", "--engine", "kubernetes", "--image", "none:1", "--dry-run", "--json", *words, "train.py"]
    done = CliRunner().invoke(group, argv)
    if isinstance(done.exception, WeftError):
        assert done.exception.exit_code == 2
        return str(done.exception)
    return json.loads(done.stdout) if done.exit_code == 0 else done.stderr


def pods_of(*words: str) -> int:
    """Return how many pods a run asks for."""
    spec = dry_run(*words)[-1]["spec"]
    assert spec["completions"] == spec["parallelism"]
    pods: int = spec["completions"]
    return pods


@pytest.mark.parametrize(
    ("words", "pods"),
    [
        ((), 1),
        (("--nnodes", "4", "--nproc-per-node", "2"), 4),
        (("--nnodes", "3:3"), 3),
        (("--pods", "2", "--nnodes", "2"), 2),
        (("--elastic", "2:4"), 4),
        (("--elastic", "1:3"), 3),
        (("--elastic", "2:8", "--resource", "nvidia.com/gpu=4"), 2),
        (("--elastic", "2:8", "--per-host", "3"), 3),
        (("--elastic", "2:8", "--pods", "2"), 2),
        (("--elastic", "2:8", "-n", "8"), 1),
    ],
)
def test_pods_are_as_many_as_were_named_or_hold_the_workers(words: tuple[str, ...], pods: int) -> None:
    assert pods_of(*words) == pods


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--nnodes", "2", "--pods", "3"), "--nnodes must equal --pods, got 2 and 3"),
        (("--nnodes", "2:4"), "write --elastic 2:4"),
        (("--nnodes", "none"), "--nnodes must be a whole number of at least 1, got none"),
        (("--elastic", "3:4", "--pods", "1", "--per-host", "2"), "got 1 with 2 each; use --pods 2 or more"),
        (("--name", "Train"), "--name must be small letters, digits and hyphens, at most 63, got 'Train'"),
        (("--namespace", "a.b"), "--namespace must be small letters"),
        (("--resource", "memory=32GB"), "--resource must look like cpu=8, memory=32Gi"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(words: tuple[str, ...], refusal: str) -> None:
    assert refusal in dry_run(*words)
