"""All of torch.distributed under "weft", against Gloo in the same processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from testing.cluster.cluster import VirtualCluster
from tests.collectives.conftest import Bench

THEMES = ("reductions.py", "copies.py", "traffic.py")


def test_two_on_one_host(bench: Bench) -> None:
    bench.passes("several.py", 2, *THEMES, WEFT_MODE="shm")


def test_three_on_one_host_in_the_mode_that_is_best(bench: Bench) -> None:
    bench.passes("several.py", 3, "reductions.py", "traffic.py")


def test_four_on_one_host_with_every_call_compared(bench: Bench) -> None:
    bench.passes("traffic.py", 4, WEFT_DEBUG="1")


@pytest.mark.smoke
def test_on_uneven_hosts(bench: Bench, shared_cluster: VirtualCluster) -> None:
    bench.passes_on(shared_cluster, "h1:2,h2:1", "several.py", *THEMES)


def test_on_four_hosts_of_two(bench: Bench, shared_cluster: VirtualCluster) -> None:
    bench.passes_on(shared_cluster, "h1:2,h2:2,h3:2,h4:2", "main.py")


def test_every_run_gives_the_same_bits(bench: Bench) -> None:
    runs = [sorted(bench.passes("main.py", 3, WEFT_MODE="shm").splitlines()) for _ in range(2)]
    assert runs[0] == runs[1]
    assert "0 failed" in runs[0][0]


def test_initialised_again(bench: Bench) -> None:
    bench.passes("again.py", 3, WEFT_MODE="shm")


def test_in_two_racks(bench: Bench, new_cluster: Callable[..., VirtualCluster]) -> None:
    cluster = new_cluster(4, racks=(2, 2))
    bench.passes_on(cluster, "h1:2,h2:2,h3:2,h4:2", "main.py", options=("--racks", "2", "--mode", "shm,ring"))


def test_in_uneven_racks(bench: Bench, shared_cluster: VirtualCluster) -> None:
    options = ("--hosts-per-rack", "2", "--mode", "shm,ring")
    themes = ("reductions.py", "copies.py")
    bench.passes_on(shared_cluster, "h1:2,h2:1,h3:1", "several.py", *themes, options=options)


def test_racks_by_the_dimensions_of_a_mode(bench: Bench, shared_cluster: VirtualCluster) -> None:
    options = ("--mode", "shm,ring,gloo:1x2x2x1")
    bench.passes_on(shared_cluster, "h1,h2,h3,h4", "main.py", options=options)


# Torch's own groups would end it with SIGABRT every other time.
@pytest.mark.parametrize(
    ("made_by", "options"), [("init", ()), ("torch", ()), ("torch", ("--trace", "out.json"))]
)
def test_a_script_that_just_ends(bench: Bench, made_by: str, options: tuple[str, ...]) -> None:
    bench.passes("abrupt.py", 4, made_by, options=options, WEFT_MODE="shm")
