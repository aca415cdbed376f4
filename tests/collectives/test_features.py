"""Features of torch.distributed that ask about backends and devices: under "weft" as under Gloo."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import pytest
from testing.forking.server import ForkServer
from testing.shell import Shell
from tests.collectives.conftest import WORKERS, Bench

FEATURES = re.findall(r"^@feature\ndef (\w+)", (WORKERS / "features.py").read_text(), re.MULTILINE)
WORKERS_COUNT = 2
Told = Callable[..., dict[tuple[int, str], str]]


@pytest.fixture(scope="module")
def told(forks: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Return what the script says under a backend: by rank and feature; each backend is run once."""

    @cache
    def run(backend: str, *options: str) -> dict[tuple[int, str], str]:
        shell = Shell(tmp_path_factory.mktemp("features"))
        try:
            bench = Bench(shell, forks)
            output = bench.passes(
                "features.py", WORKERS_COUNT, backend, str(shell.folder), options=("--mode", "shm", *options)
            )
        finally:
            shell.close()
        lines = re.findall(r"\[(\d)\] (?:feature )?(\w+) (.*)", output)
        return {(int(rank), name): said for rank, name, said in lines}

    return run


@pytest.mark.parametrize("name", FEATURES)
def test_feature(told: Told, name: str) -> None:
    ours, theirs = told("weft"), told("gloo")
    assert ours[0, "group"] == "weft as weft"
    for rank in range(WORKERS_COUNT):
        assert "raised" not in theirs[rank, name]
        assert ours[rank, name] == theirs[rank, name]


def test_every_feature_of_a_script_that_asks_for_gloo(told: Told) -> None:
    ours, theirs = told("gloo", "--replace", "gloo"), told("gloo")
    for rank in range(WORKERS_COUNT):
        assert ours[rank, "group"] == "weft as gloo"
        assert {name: ours[rank, name] for name in FEATURES} == {
            name: theirs[rank, name] for name in FEATURES
        }
