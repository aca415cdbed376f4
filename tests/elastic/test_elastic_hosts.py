"""Elastic runs on several hosts: agents, hosts, cables and the launcher are lost, and come back."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.elastic.watched import Watched

OnHosts = Callable[[int], Watched]


def test_an_agent_that_is_killed_takes_its_workers_along_and_is_started_again(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "2:3", "-H", "h1,h2,h3")
    run.stands("h1/0", "h2/0", "h3/0")
    killed = run.kill(run.agent("h2"))
    lost = run.sees("its loss", lambda e: e.event == "detected" and e.kind == "host" and e.who == ("h2/0.0",))
    stepped = run.stands("h1/0", "h3/0", after=killed)
    print("agent killed: detected", lost.t - killed, "stepped", stepped.t - killed)
    run.stands("h1/0", "h2/0", "h3/0", after=stepped.t)
    run.ends()
    run.is_sound(finished=3)


def test_a_host_whose_cable_is_cut_waits_and_comes_back_with_the_same_processes(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "2:3", "-H", "h1,h2,h3")
    run.stands("h1/0", "h2/0", "h3/0")
    workers = run.workers("h2")
    cut = time.time()
    run.cluster.cut("h2")
    stepped = run.stands("h1/0", "h3/0", after=cut)
    print("cut: stepped", stepped.t - cut)
    behind = run.committed("h2")
    # Long enough for the launcher to lose it as well.
    run.sees_said("h2 is lost")
    run.steps("h1", behind + 10)
    assert run.committed("h2") == behind, "who is cut off commits nothing"
    assert run.workers("h2") == workers
    run.cluster.heal("h2")
    run.stands("h1/0", "h2/0", "h3/0", after=stepped.t)
    assert run.workers("h2") == workers
    run.sees_said("h2 is back")
    run.ends()
    run.is_sound(finished=3)


def test_a_lost_host_and_the_leader_after_it(on_hosts: OnHosts) -> None:
    run = on_hosts(4)
    run.start("--elastic", "2:4", "-H", "h1,h2,h3,h4")
    run.stands("h1/0", "h2/0", "h3/0", "h4/0")
    killed = time.time()
    run.cluster.kill("h3")
    first = run.stands("h1/0", "h2/0", "h4/0", after=killed)
    print("host killed: stepped", first.t - killed)
    leader = time.time()
    run.cluster.kill("h1")  # the first voter, and rank 0
    second = run.stands("h2/0", "h4/0", after=leader)
    print("leader killed: stepped", second.t - leader)
    run.cluster.start("h3")  # it comes up again, and joins
    run.stands("h2/0", "h3/0", "h4/0", after=second.t)
    run.ends()
    run.is_sound(finished=3)


def test_either_of_two_hosts_may_be_lost_while_the_launcher_sees_the_other(on_hosts: OnHosts) -> None:
    run = on_hosts(2)
    run.start("--elastic", "1:2", "-H", "h1,h2")
    run.stands("h1/0", "h2/0")
    killed = time.time()
    run.cluster.kill("h1")  # the first voter: without the launcher's vote, h2 could not know who was cut off
    stepped = run.stands("h2/0", after=killed)
    print("first of two killed: stepped", stepped.t - killed)
    run.ends()
    run.is_sound(finished=1)
