"""The mpirun line, for each mpirun, word by word. No mpirun is started here."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.launch.sites import sites

from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines import mpi
from weft.launch.engines.mpirun import (
    Mpirun,
    Surroundings,
    common_network,
    mpirun_line,
    mpirun_variables,
    needs_rankfile,
    parse_version,
)
from weft.launch.engines.tags import MPICH, OPENMPI_4, OPENMPI_5
from weft.launch.plan import LaunchPlan, make_plan
from weft.topology.hostlist import HostEntry
from weft.topology.rankfile import parse_rankfile

OPENMPI_4_SAYS = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
DEBIAN_SAYS = "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"
OPENMPI_5_SAYS = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n"
MPICH_SAYS = """HYDRA build details:
    Version:                                 5.0.2
    Release Date:                            Fri Sep 25 20:45:26 UTC 2026
    CC:                              cc
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker
"""
FOUR = Mpirun(path="mpirun", family="openmpi", version=(4, 1, 4))
FIVE = Mpirun(path="mpirun", family="openmpi", version=(5, 0, 11))
HYDRA = Mpirun(path="mpirun", family="mpich", version=(5, 0, 2))
ADOPT = ("python3", "-P", "-m", "weft.launch.engines.adopt", "--", "./train", "--lr", "0.1")
REMOTE = Surroundings(rankfile="/run/RANKFILE", ssh=("ssh", "-F", "file", "-T"), head=("10.0.0.9", "eth0"))


def plan_for(hosts: int = 2, **options: Any) -> LaunchPlan:
    config = LaunchConfig(
        command=Command("command", "./train", ("--lr", "0.1")), **{"per_host": 2, **options}
    )
    carried = {"PATH": "/bin", "PYTHONPATH": "/src", "NCCL_DEBUG": "INFO"}
    return make_plan(config, sites(hosts), engine="mpi", port=29500, python="python3", carried=carried)


def line(mpirun: Mpirun, plan: LaunchPlan, around: Surroundings) -> str:
    words = mpirun_line(mpirun, plan, around)
    assert words[0] == "mpirun"
    assert words[-len(ADOPT) :] == ADOPT
    return " ".join(words[1 : -len(ADOPT)])


@pytest.mark.parametrize(
    ("text", "family", "version", "tags"),
    [
        (OPENMPI_4_SAYS, "openmpi", (4, 1, 4), OPENMPI_4),
        (DEBIAN_SAYS, "openmpi", (4, 1, 4), OPENMPI_4),
        (OPENMPI_5_SAYS, "openmpi", (5, 0, 11), OPENMPI_5),
        (MPICH_SAYS, "mpich", (5, 0, 2), MPICH),
    ],
)
def test_the_version_tells_the_language(
    text: str, family: str, version: tuple[int, ...], tags: object
) -> None:
    found = parse_version("/bin/mpirun", text)
    assert (found.family, found.version, found.tags) == (family, version, tags)


def test_an_unknown_mpirun_is_named() -> None:
    with pytest.raises(UsageError, match=r"Open MPI or MPICH, got /bin/mpirun which says 'Cray MPI 1'"):
        parse_version("/bin/mpirun", "Cray MPI 1\n")


EXPORTS = "-x PATH -x PYTHONPATH -x WEFT_ORDERS -x TORCHELASTIC_RESTART_COUNT -x WEFT_RUN_ID"


def test_open_mpi_4_on_hosts() -> None:
    assert line(FOUR, plan_for(), REMOTE) == (
        "--tag-output -n 4 -H h1:2,h2:2 --rankfile /run/RANKFILE --mca plm rsh --mca plm_rsh_agent ssh -F file -T "
        "--mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 " + EXPORTS
    )


def test_open_mpi_5_on_hosts() -> None:
    assert line(FIVE, plan_for(), REMOTE) == (
        "--output tag -n 4 -H h1:2,h2:2 --map-by rankfile:file=/run/RANKFILE "
        "--prtemca plm ssh --prtemca plm_ssh_agent ssh -F file -T --prtemca plm_ssh_no_tree_spawn 1 "
        "--prtemca prte_if_include eth0 --mca btl_tcp_if_include eth0 " + EXPORTS
    )


def test_mpich_on_hosts() -> None:
    assert line(HYDRA, plan_for(), REMOTE) == (
        "-prepend-pattern [weft %r]  -n 4 -hosts h1:2,h2:2 -launcher ssh -launcher-exec ssh -iface eth0 "
        "-genv FI_TCP_IFACE eth0 -genv UCX_NET_DEVICES eth0 "
        "-genvlist PATH,PYTHONPATH,WEFT_ORDERS,TORCHELASTIC_RESTART_COUNT,WEFT_RUN_ID"
    )
    assert mpirun_variables(HYDRA, REMOTE) == {"HYDRA_LAUNCHER_EXTRA_ARGS": "-F file -T"}
    assert mpirun_variables(FIVE, REMOTE) == {}


def test_mpich_is_given_the_hosts_in_the_order_of_the_ranks() -> None:
    dealt = line(HYDRA, plan_for(rank_order="round-robin"), REMOTE)
    assert "-hosts h1:1,h2:1,h1:1,h2:1 " in dealt


def test_the_ssh_command_is_one_word() -> None:
    assert "ssh -F file -T" in mpirun_line(FIVE, plan_for(), REMOTE)
    assert "[weft %r] " in mpirun_line(HYDRA, plan_for(), REMOTE)


@pytest.mark.parametrize("mpirun", [FOUR, FIVE])
def test_root_tcp_and_the_callers_own_arguments(mpirun: Mpirun) -> None:
    around = Surroundings(rankfile="R", root=True, tcp=True, args=("--report-bindings", "--mca a 'b c'"))
    words = mpirun_line(mpirun, plan_for(1), around)
    assert words[1] == "--allow-run-as-root"
    assert "--mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth0" in " ".join(words)
    assert words[-len(ADOPT) - 4 : -len(ADOPT)] == ("--report-bindings", "--mca", "a", "b c")


def test_mpich_can_be_kept_to_tcp() -> None:
    assert "-genv FI_PROVIDER tcp -genv UCX_TLS tcp,self" in line(HYDRA, plan_for(1), Surroundings(tcp=True))
    assert "-launcher fork" in line(HYDRA, plan_for(1), Surroundings())


@pytest.mark.parametrize(("order", "mapped"), [("host", "slot"), ("round-robin", "node")])
def test_workers_that_share_cores_are_not_bound(order: str, mapped: str) -> None:
    plan = plan_for(per_host=9, rank_order=order)
    assert not needs_rankfile(plan)
    for mpirun in (FOUR, FIVE):
        words = line(mpirun, plan, replace(REMOTE, rankfile=None))
        assert f"-H h1:9,h2:9 --map-by {mapped} --bind-to none" in words


def test_without_pinning_there_is_no_rank_file() -> None:
    assert needs_rankfile(plan_for())
    assert not needs_rankfile(plan_for(pin=False))


def test_one_host_needs_no_ssh_and_no_card() -> None:
    assert line(FIVE, plan_for(1), Surroundings(rankfile="R")) == (
        "--output tag -n 2 -H h1:2 --map-by rankfile:file=R " + EXPORTS
    )


def test_cards_of_different_names_are_given_by_their_network() -> None:
    plan = plan_for()
    other = replace(plan.hosts[1], interface="ens3")
    words = line(FIVE, replace(plan, hosts=(plan.hosts[0], other)), REMOTE)
    assert "--prtemca prte_if_include 10.0.0.0/28 --mca btl_tcp_if_include 10.0.0.0/30" in words


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (("10.0.0.1", "10.0.0.2"), "10.0.0.0/30"),
        (("10.0.0.1",), "10.0.0.1/32"),
        (("10.1.0.1", "10.2.255.1"), "10.0.0.0/14"),
        (("10.0.0.1", "192.168.0.1"), None),
        (("fe80::1", "fe80::2"), None),
        (("h1", "h2"), None),
    ],
)
def test_the_narrowest_network_around_some_addresses(addresses: tuple[str, ...], network: str | None) -> None:
    assert common_network(addresses) == network


def test_how_each_is_asked_to_end_its_workers() -> None:
    assert FIVE.polite(signal.SIGINT) == FOUR.polite(signal.SIGINT) == signal.SIGUSR1
    assert FIVE.polite(signal.SIGTERM) == FIVE.polite(signal.SIGHUP) == signal.SIGUSR2
    assert HYDRA.polite(signal.SIGTERM) == signal.SIGTERM


def test_the_ranks_of_a_file_stay_as_they_are() -> None:
    text = "rank 0=h2 slot=0:0-1\nrank 1=h1 slot=0:0-1\nrank 2=h2 slot=0:2-3\n"
    plan = plan_for(per_host=None, rankfile=parse_rankfile(text))
    assert needs_rankfile(plan)
    assert "-H h1:1,h2:2 " in line(FIVE, plan, REMOTE)
    assert "-hosts h2:1,h1:1,h2:1 " in line(HYDRA, plan, REMOTE)


def test_a_machine_without_mpirun_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"pip install 'weft\[mpi\]'"):
        mpi.find_mpirun()
    fake = tmp_path / "mpirun"
    fake.write_text(f"#!/bin/sh\n/bin/cat <<'EOF'\n{MPICH_SAYS}EOF\n")
    fake.chmod(0o755)
    assert mpi.find_mpirun() == replace(HYDRA, path=str(fake))


def test_hosts_must_be_plain_names() -> None:
    config = LaunchConfig(command=Command("command", "true"), hosts=(HostEntry("me@h1"),), engine="mpi")
    with pytest.raises(UsageError, match="plain host names, got me@h1"):
        mpi.MpiEngine(config)
