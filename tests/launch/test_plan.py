"""The plan is pure: what was asked for and what the hosts are go in, who runs where comes out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.launch.sites import machine, sites

from weft.errors import TopologyError, UsageError, WeftError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.local import lone_site
from weft.launch.plan import LaunchPlan, make_plan
from weft.launch.plan_text import render_plan
from weft.launch.sites import HostSite
from weft.topology.hostlist import HostEntry, parse_hosts
from weft.topology.rankfile import parse_rankfile, render


def plan(where: Sequence[HostSite], carried: dict[str, str] | None = None, **asked: Any) -> LaunchPlan:
    hosts = asked.pop("hosts", ",".join(site.name for site in where))
    config = LaunchConfig(command=Command("command", "true"), hosts=parse_hosts(hosts), **asked)
    return make_plan(config, where, engine="ssh", port=29400, python=sys.executable, carried=carried)


def ranks(made: LaunchPlan) -> dict[str, list[int]]:
    return {host.name: [worker.rank for worker in host.workers] for host in made.hosts}


def variables(made: LaunchPlan, rank: int) -> dict[str, str]:
    (own,) = [worker.env for host in made.hosts for worker in host.workers if worker.rank == rank]
    return {**dict(made.env), **dict(own)}


def test_ranks_come_in_a_block_per_host() -> None:
    assert ranks(plan(sites(2), per_host=2)) == {"h1": [0, 1], "h2": [2, 3]}


def test_ranks_are_dealt_when_asked() -> None:
    assert ranks(plan(sites(2), per_host=2, rank_order="round-robin")) == {"h1": [0, 2], "h2": [1, 3]}


def test_a_total_is_shared_evenly() -> None:
    assert ranks(plan(sites(2), workers=4)) == {"h1": [0, 1], "h2": [2, 3]}


def test_slots_of_the_host_list_count() -> None:
    assert ranks(plan(sites(2), hosts="h1:1,h2:3", allow_uneven=True)) == {"h1": [0], "h2": [1, 2, 3]}


def test_a_host_gets_a_worker_for_each_accelerator() -> None:
    made = plan(sites(1, sockets=2, cores=16, accelerators=4))
    assert [worker.placement.slot for worker in made.hosts[0].workers if worker.placement] == [
        "0:0-7",
        "0:8-15",
        "1:0-7",
        "1:8-15",
    ]


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"workers": 3}, r"3 workers / 2 hosts = 1 rest 1; use -n 2 or --allow-uneven"),
        ({"workers": 1}, r"got -n 1 for 2 hosts"),
        ({"workers": 5, "hosts": "h1:2,h2:2"}, r"got -n 5 for 4 slots \(2 \+ 2\)"),
        ({"workers": 2, "hosts": "h1:2,h2:2"}, r"leaves none for h2"),
        ({"hosts": "h1:1,h2:2"}, r"equal worker counts.*got h1=1, h2=2; .*--allow-uneven"),
        (
            {"per_host": 2, "racks": 3},
            r"2 accelerators x 1 host x 3 racks x 1 aisle = 6 but 2 hosts x 2 workers = 4",
        ),
        ({"per_host": "gpu"}, r"--per-host gpu needs an accelerator on every host, got none on h1"),
    ],
)
def test_a_world_that_cannot_be_says_why(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WeftError, match=complaint) as caught:
        plan(sites(2), **asked)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"workers": 0}, "must be at least 1, got 0"),
        ({"per_host": 0}, "must be at least 1, got 0"),
        ({"port": 0}, "between 1 and 65535, got 0"),
        ({"max_restarts": -1}, "must not be negative, got -1"),
        ({"workers": 2, "per_host": 2}, "got both; drop one"),
        ({"lost_after_s": 0.0}, "more than 0 seconds"),
        ({"lost_after_s": float("nan")}, "more than 0 seconds"),
        ({"grace_s": float("nan")}, "--grace must not be negative"),
        ({"grace_s": float("inf")}, "neither more than 1000000, got inf"),
        ({"grace_s": 1e300}, "neither more than 1000000"),
        ({"workers": 99999999999999999999}, "must be at most 65536"),
        ({"per_host": 65537}, "must be at most 65536"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        LaunchConfig(command=Command("command", "true"), **asked)


def test_a_run_of_more_workers_than_anybody_has_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="at most 65536 workers, got 131072 on 2 hosts"):
        plan(sites(2), hosts="h1:65536,h2:65536")


def test_a_host_alone_uses_loopback_or_the_card_that_was_named() -> None:
    host = machine("h1")
    assert (lone_site("h1", host, None).address, lone_site("h1", host, None).interface) == ("127.0.0.1", "lo")
    assert lone_site("h1", host, "eth0").address == "10.0.0.1"
    with pytest.raises(UsageError, match="must be a card of h1 that is up, got 'nocard'; it has lo, eth0"):
        lone_site("h1", host, "nocard")


def test_hosts_that_differ_are_named() -> None:
    odd = (sites(1)[0], sites(2, cores=2)[1])
    with pytest.raises(TopologyError, match=r"h2.*--allow-uneven"):
        plan(odd, per_host=1)
    assert ranks(plan(odd, per_host=1, allow_uneven=True)) == {"h1": [0], "h2": [1]}


def test_workers_get_torchruns_variables() -> None:
    assert (
        variables(plan(sites(2), per_host=2), 3).items()
        >= {
            "RANK": "3",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "1",
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29400",
            "WEFT_HOST": "h2",
            "OMP_NUM_THREADS": "2",
            "TF_NUM_INTRAOP_THREADS": "2",
            "PJRT_NPROC": "2",
            "GLOO_SOCKET_IFNAME": "eth0",
            "NCCL_SOCKET_IFNAME": "=eth0",
            "WEFT_DIMENSIONS": "2x2x1x1",
        }.items()
    )


def test_workers_are_told_their_rack_where_racks_are_declared() -> None:
    made = plan(sites(4), per_host=1, racks=2)
    assert [variables(made, rank)["WEFT_RACK"] for rank in range(4)] == ["0", "0", "1", "1"]
    assert "WEFT_RACK" not in variables(plan(sites(4), per_host=1), 0)


def test_threads_wait_quietly_only_where_cores_are_shared() -> None:
    assert "OMP_WAIT_POLICY" not in variables(plan(sites(1), per_host=4), 0)
    crowded = variables(plan(sites(1), per_host=8), 0)
    assert (crowded["OMP_WAIT_POLICY"], crowded["OMP_NUM_THREADS"]) == ("PASSIVE", "1")


def test_the_callers_own_choices_win() -> None:
    made = plan(
        sites(1),
        per_host=2,
        carried={"OMP_NUM_THREADS": "3", "GLOO_SOCKET_IFNAME": "eth7", "MASTER_ADDR": "elsewhere"},
        env=(("NCCL_SOCKET_IFNAME", "ib0"),),
    )
    got = variables(made, 1)
    assert (got["OMP_NUM_THREADS"], got["GLOO_SOCKET_IFNAME"], got["NCCL_SOCKET_IFNAME"]) == (
        "3",
        "eth7",
        "ib0",
    )
    assert got["MASTER_ADDR"] == "10.0.0.1"  # who meets where is the run's business


def test_tcp_keeps_nccl_off_infiniband() -> None:
    assert variables(plan(sites(1), tcp=True), 0)["NCCL_IB_DISABLE"] == "1"


def test_a_rank_file_decides_ranks_and_cores() -> None:
    text = "rank 0=h2 slot=0:2-3\nrank 1=h1 slot=0:0\nrank 2=h2 slot=0:0-1\n"
    made = plan(sites(2), rankfile=parse_rankfile(text), allow_uneven=True)
    assert ranks(made) == {"h1": [1], "h2": [0, 2]}
    assert made.leader == "10.0.0.2"  # where rank 0 is
    assert [worker.placement.cpus for worker in made.hosts[1].workers if worker.placement] == [(2, 3), (0, 1)]


def test_a_rank_file_must_name_cores_that_exist() -> None:
    with pytest.raises(TopologyError, match=r"slot=0:0-9 for rank 0 on h1 which has 0:0-3"):
        plan(sites(1), rankfile=parse_rankfile("rank 0=h1 slot=0:0-9\n"))


def test_the_plan_as_a_rank_file_gives_the_same_plan() -> None:
    first = plan(sites(3), per_host=2, rank_order="round-robin")
    assert first.rankfile is not None
    second = plan(sites(3), rankfile=parse_rankfile(render(first.rankfile)))
    assert second.hosts == first.hosts


def test_without_a_survey_nothing_is_pinned() -> None:
    where = [HostSite(name=name, host=None, address=name) for name in ("a", "b")]
    made = plan(where, per_host=2)
    assert (made.world_size, made.rankfile) == (4, None)
    assert "OMP_NUM_THREADS" not in variables(made, 0)


def test_the_plan_is_the_same_every_time() -> None:
    assert plan(sites(4), per_host=2) == plan(sites(4), per_host=2)


def test_a_plan_prints_for_people_and_as_data() -> None:
    made = plan(sites(2), per_host=2)
    text = render_plan(made, [("ssh", "h1", "agent")])
    assert (
        "   2  h2                   0  0:0-1      0-1                  2  -           eth0 10.0.0.2" in text
    )
    assert "+ ssh h1 agent" in text
    data = json.loads(json.dumps(made.to_json()))
    assert data["hosts"][1]["workers"][0]["env"]["RANK"] == "2"


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    order=st.sampled_from(["host", "round-robin"]),
)
def test_every_rank_has_exactly_one_place(counts: list[int], order: Any) -> None:
    where = sites(len(counts))
    config = LaunchConfig(
        command=Command("command", "true"),
        hosts=tuple(HostEntry(site.name, count) for site, count in zip(where, counts, strict=True)),
        rank_order=order,
        allow_uneven=True,
    )
    made = make_plan(config, where, engine="ssh", port=1, python="python")
    assert sorted(rank for host in ranks(made).values() for rank in host) == list(range(sum(counts)))
    assert [len(host) for host in ranks(made).values()] == counts
    assert all(worker.local_rank == index for host in made.hosts for index, worker in enumerate(host.workers))


def shared_host(*gpus: int, workers: int) -> LaunchPlan:
    entry = HostEntry("h1", workers, cpus=tuple(range(4, 8)), gpus=gpus)
    config = LaunchConfig(command=Command("command", "true"), hosts=(entry,))
    where = sites(1, sockets=1, cores=16, accelerators=4)
    return make_plan(config, where, engine="local", port=1, python=sys.executable)


def test_workers_keep_to_their_part_of_a_shared_host() -> None:
    made = shared_host(2, 3, workers=2)
    assert [worker.placement.cpus for worker in made.hosts[0].workers if worker.placement] == [(4, 5), (6, 7)]
    assert variables(made, 1)["OMP_NUM_THREADS"] == "2"
    assert variables(made, 1)["CUDA_VISIBLE_DEVICES"] == "2,3"  # it takes that of its local rank
    assert made.rankfile is None


@pytest.mark.parametrize(("gpus", "seen"), [((0, 1, 2, 3), "2,3"), ((5,), "5"), ((), "")])
def test_a_worker_sees_its_devices(gpus: tuple[int, ...], seen: str) -> None:
    """Its own where each has several, all where there is one for each or fewer."""
    assert variables(shared_host(*gpus, workers=2), 1)["CUDA_VISIBLE_DEVICES"] == seen


def test_devices_that_do_not_divide_are_refused() -> None:
    with pytest.raises(
        UsageError, match="the gpus of a host must divide evenly over its workers, got 3 for 2"
    ):
        shared_host(0, 1, 2, workers=2)
