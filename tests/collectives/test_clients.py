"""Programs that know Gloo alone, under `--replace gloo`: Accelerate and Hugging Face's Trainer, as installed."""

from __future__ import annotations

import re

import pytest
from tests.collectives.conftest import Bench

# Its imports take 15 CPU seconds, several times as long on a busy machine.
pytestmark = [pytest.mark.clients, pytest.mark.long, pytest.mark.timeout(900)]


def test_accelerate_and_trainer_train_as_with_gloo(bench: Bench) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    lines = {}
    for replaced in ((), ("--replace", "gloo")):
        folder = str(bench.shell.folder / f"out{len(replaced)}")
        done = bench.runs("hugging_face.py", 2, folder, options=("--mode", "shm", *replaced))
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        told = done.stdout + done.stderr
        lines[bool(replaced)] = sorted(re.findall(r"\[\d\] trained .*", told))
        assert told.count("weft as gloo" if replaced else "gloo as gloo") == 2
        assert ('"weft" in place of "gloo"' in told) == bool(replaced)
    assert len(lines[True]) == 4
    assert lines[True] == lines[False]
