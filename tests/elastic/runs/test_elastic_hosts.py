"""Elastic runs on several hosts: agents, hosts, cables and the launcher are lost, and come back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from testing.cluster.waiting import wait_until
from testing.elastic.watched import Watched

from weft.elastic.history import ledger
from weft.elastic.launcher.control import FOLDER, SCALE_FILE

OnHosts = Callable[[int], Watched]


def test_an_agent_that_is_killed_is_started_again_and_one_that_was_stopped_goes_on(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "2:3", "-H", "h1,h2,h3")
    run.stands("h1/0", "h2/0", "h3/0")
    killed = run.kill(run.agent("h2"))
    lost = run.sees("its loss", lambda e: e.event == "detected" and e.kind == "host" and e.who == ("h2/0.0",))
    stepped = run.stands("h1/0", "h3/0", after=killed)
    print("agent killed: detected", lost.t - killed, "stepped", stepped.t - killed)
    back = run.stands("h1/0", "h2/0", "h3/0", after=stepped.t)
    workers = run.workers("h1")
    stopped = run.agent("h1")
    run.kill(stopped, signal.SIGSTOP)
    alone = run.stands("h2/0", "h3/0", after=back.t)
    run.kill(stopped, signal.SIGCONT)
    run.stands("h1/0", "h2/0", "h3/0", after=alone.t)
    assert run.workers("h1") == workers
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
    cut = time.time()
    run.cluster.cut("h1")  # the first voter, which still believes that it leads
    stepped = run.stands("h2/0", "h3/0", after=cut)
    print("leader cut off: stepped", stepped.t - cut)
    run.cluster.heal("h1")
    run.stands("h1/0", "h2/0", "h3/0", after=stepped.t)
    run.ends()
    run.is_sound(finished=3)


def test_a_host_that_is_cut_off_for_long_ends_its_workers_and_may_come_back(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "2:3", "-H", "h1,h2,h3", "--alone", "3")
    run.stands("h1/0", "h2/0", "h3/0")
    cut = time.time()
    run.cluster.cut("h2")
    stepped = run.stands("h1/0", "h3/0", after=cut)
    wait_until(lambda: not run.left_on("h2"), "that nothing is left on a host that is cut off", 30.0)
    run.cluster.heal("h2")  # the run goes on, so the host is called again
    back = run.stands("h1/0", "h2/0", "h3/0", after=stepped.t)
    run.cluster.cut("h2")
    run.stands("h1/0", "h3/0", after=back.t)
    run.ends()
    wait_until(lambda: not run.left_on("h2"), "that nothing is left where nothing was heard of the end", 30.0)
    run.is_sound(finished=2)
    gave_up = [event for event in run.events() if event.event == "gave-up"]
    assert [event.host for event in gave_up] == ["h2", "h2"]


def test_a_lost_host_that_comes_back_and_then_two_of_four_at_once(on_hosts: OnHosts) -> None:
    run = on_hosts(4)
    run.start("--elastic", "2:4", "-H", "h1,h2,h3,h4")
    run.stands("h1/0", "h2/0", "h3/0", "h4/0")
    killed = time.time()
    run.cluster.kill("h3")
    first = run.stands("h1/0", "h2/0", "h4/0", after=killed)
    print("host killed: stepped", first.t - killed)
    run.cluster.start("h3")  # it comes up again, and joins
    run.stands("h1/0", "h2/0", "h3/0", "h4/0", after=first.t)
    killed = time.time()
    run.cluster.kill("h1")  # the first voter, and rank 0
    run.cluster.kill("h2")
    second = run.stands("h3/0", "h4/0", after=killed)
    print("two of four killed: stepped", second.t - killed)
    run.ends()
    run.is_sound(finished=2)


@pytest.mark.smoke
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


def test_a_witness_tells_which_of_two_hosts_is_lost_when_the_launcher_goes_with_it(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "1:2", "-H", "h1,h2", "--witness", "h3", on="h1")
    run.stands("h1/0", "h2/0")
    killed = time.time()
    run.cluster.kill("h1")  # the first voter, and the launcher
    stepped = run.stands("h2/0", after=killed)
    print("first of two killed with the launcher: stepped", stepped.t - killed)
    assert run.workers("h3") == []
    run.hurry()
    run.sees("the end on h2", lambda e: e.event == "finished" and e.host == "h2")
    run.leaves_nothing()
    run.is_sound(finished=1)


def test_the_run_outlives_its_launcher_and_the_host_it_was_on(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "1:3", "-H", "h1,h2,h3", on="h1")
    run.stands("h1/0", "h2/0", "h3/0")
    killed = time.time()
    run.cluster.kill("h1")
    stepped = run.stands("h2/0", "h3/0", after=killed)
    print("host of the launcher killed: stepped", stepped.t - killed)
    run.hurry()
    run.sees("the end on h2", lambda e: e.event == "finished" and e.host == "h2")
    run.sees("the end on h3", lambda e: e.event == "finished" and e.host == "h3")
    run.leaves_nothing()
    run.is_sound(finished=2)


def test_a_new_launcher_finds_the_hosts_and_brings_back_one_that_was_lost(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "1:3", "-H", "h1,h2,h3", "--env", "SPOKEN=word")
    run.stands("h1/0", "h2/0", "h3/0")
    run.kill_launcher()
    killed = run.kill(run.agent("h2"))
    behind = run.committed("h3")
    run.steps("h3", behind + 5)  # they go on
    run.adopt()
    back = run.stands("h1/0", "h2/0", "h3/0", after=killed)
    assert b"SPOKEN=word" in Path(f"/proc/{run.workers('h2')[0]}/environ").read_bytes().split(b"\0")
    (run.run_dir / FOLDER / SCALE_FILE).write_text("h1\nh3\n")
    run.stands("h1/0", "h3/0", after=back.t)
    said = run.ends()
    assert "h1 is back" in said
    assert "h2 is no longer wanted; its workers leave" in said
    run.is_sound(finished=2)
    assert json.loads((run.run_dir / "outcome.json").read_text())["code"] == 0


def test_a_host_that_was_down_comes_late_and_others_are_added_and_removed(on_hosts: OnHosts) -> None:
    run = on_hosts(4)
    run.cluster.kill("h3")
    run.start("--elastic", "1:3", "-H", "h1,h2,h3", "--start-within", "0", "--detect-within", "5")
    began = run.stands("h1/0", "h2/0")
    run.cluster.start("h3")
    late = run.stands("h1/0", "h2/0", "h3/0", after=began.t)
    asked = time.time()
    run.kill(run.agent("h1"), signal.SIGTERM)  # its host is taken away
    left = run.stands("h2/0", "h3/0", after=late.t)
    (run.run_dir / "elastic" / "hosts").write_text("h3\nh4\n")
    run.stands("h3/0", "h4/0", after=left.t)
    stderr = run.ends()
    assert "h3: the host must answer, got silence; is it up" in stderr
    assert "h2 is no longer wanted; its workers leave" in stderr
    faults = [event for event in run.events() if event.event == "detected" and event.t > asked]
    # On a busy machine one of them may well be slow.
    assert {event.kind for event in faults} - {"slow"} == {"leave", "join"}, run.told()
    run.is_sound(finished=2)
    assert not ledger.check(run.run_dir).redone


def test_a_watched_hostfile_may_break_and_is_followed_when_it_is_whole(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    hostfile = run.folder / "hosts"
    hostfile.write_text("h1\nh2\n")
    run.start("--elastic", "1:2", "--hostfile", str(hostfile), "--per-host", "1", "--detect-within", "5")
    began = run.stands("h1/0", "h2/0")
    hostfile.write_text("")
    run.sees_said("; the run keeps h1, h2")
    hostfile.write_text("h1:many\n")
    run.sees_said("many")
    hostfile.write_text("h2\nh3\n")
    run.stands("h2/0", "h3/0", after=began.t)
    assert run.process is not None
    run.process.send_signal(signal.SIGINT)
    stderr = run.ends(code=130)
    assert "SIGINT: ending the run" in stderr
    run.leaves_nothing()


def test_hosts_found_by_a_script_come_and_go(on_hosts: OnHosts) -> None:
    run = on_hosts(2)
    found = run.folder / "found"
    found.write_text("h1\n")
    run.start("--elastic", "1:1", "--discover", f"cat {found}", "--per-host", "1", "--detect-within", "5")
    began = run.stands("h1/0")
    found.write_text("h2\n")
    run.stands("h2/0", after=began.t)
    run.ends()
    run.is_sound(finished=1)


def test_a_script_that_cannot_run_fails_quickly_and_says_why(on_hosts: OnHosts) -> None:
    run = on_hosts(2)
    script = run.folder / "broken.py"
    script.write_text("this is no Python\n")
    run.start("--elastic", "1:2", "-H", "h1,h2", script=script)
    stderr = run.ends(code=1)
    assert "SyntaxError" in stderr
    run.leaves_nothing()


def test_what_cannot_begin_is_refused(on_hosts: OnHosts) -> None:
    run = on_hosts(2)
    run.start("--elastic", "3:2", "-H", "h1,h2")
    assert "--elastic must be MIN:MAX with 1 <= MIN <= MAX <= 65536, got '3:2'" in run.ends(code=2)
    run.start("--elastic", "2:2", "-H", "h1,nowhere")
    stderr = run.ends(code=2)
    assert "an elastic run must have at least 2 workers to begin, got 1 on h1" in stderr
    assert "nowhere: a host must be known" in stderr
    run.start("--elastic", "1:2", "-H", "h1,h2", "--witness", "h2")
    assert "--witness must be a machine beside the hosts of the run, got h2 with h1, h2" in run.ends(code=2)
    run.cluster.kill("h1")
    run.start("--elastic", "1:2", "-H", "h1")
    assert "h1: the host must answer, got silence" in run.ends(code=2)
    run.leaves_nothing()


def test_hosts_that_are_there_are_checked_first(on_hosts: OnHosts) -> None:
    """The first that is named is not there, so that another leads the checks."""
    run = on_hosts(2)
    request = ("--elastic", "1:3", "-H", "nowhere,h1,h2", "--per-host", "1", "--detect-within", "5")
    there = f"{run.cluster.host('h1').address}/32"
    run.cluster.run(["ip", "route", "add", "unreachable", there], on="h2")
    run.start(*request, checks=True)
    stderr = run.ends(code=2)
    assert "weft: ✗ leader h2: every host must reach the leader h1 at one same address, got" in stderr
    assert "every check must pass before a run, got 1 that did not; nothing was started" in stderr
    assert not (run.folder / "weft-runs").exists()
    run.cluster.run(["ip", "route", "del", "unreachable", there], on="h2")
    run.start(*request, checks=True)
    run.stands("h1/0", "h2/0")
    assert "nowhere: a host must be known, got a name that does not resolve; check" in run.ends()
    run.is_sound(finished=2)


def test_a_slow_link_is_told_of(on_hosts: OnHosts) -> None:
    run = on_hosts(3)
    run.start("--elastic", "2:3", "-H", "h1,h2,h3", "--slow", "evict", more=("--width", "1000"), pause=0.02)
    run.steps("h1", 5)
    slowed = run.committed("h1")
    run.cluster.slow("h3", "4mbit")
    slow = run.sees("a slow link", lambda e: e.event == "detected" and e.kind == "slow")
    assert slow.who == ("h3/0.0",)
    assert "behind a slow link" in slow.cause
    print("slow link:", slow.cause, "after", run.committed("h1") - slowed, "steps")
    assert run.committed("h1") - slowed <= 20
    run.stands("h1/0", "h2/0", after=slow.t)
    run.ends()
    run.is_sound(finished=2)


def test_hosts_that_are_all_lost_begin_again_and_a_launcher_that_was_cut_off_hears_of_the_end(
    on_hosts: OnHosts,
) -> None:
    run = on_hosts(2)
    run.start("--elastic", "1:2", "-H", "h1,h2")
    began = run.stands("h1/0", "h2/0")
    run.cluster.kill("h1")
    run.cluster.kill("h2")
    run.cluster.start("h1")
    run.cluster.start("h2")
    run.stands("h1/0", "h2/0", after=began.t + 0.1)
    run.cluster.cut("head")
    run.hurry()
    run.sees("the end on h1", lambda e: e.event == "finished" and e.host == "h1")
    run.sees("the end on h2", lambda e: e.event == "finished" and e.host == "h2")
    run.sees_said("h2 is lost")
    run.cluster.heal("head")
    said = run.ends()
    # Hosts that are back tell the witness that what ran on them has ended; if both do so soon, it goes on with them.
    assert "all hosts were lost" in said or "(lost h1/0.0, h2/0.0)" in said, said
    run.is_sound(finished=2)


def test_a_host_whose_worker_fails_is_barred_for_a_while(on_hosts: OnHosts) -> None:
    run = on_hosts(2)
    run.start("--elastic", "1:2", "-H", "h1,h2", "--bar-hosts", "3:60")
    both = run.stands("h1/0", "h2/0")
    (worker,) = run.workers("h2")
    killed = run.kill(worker)
    run.sees_said("h2 is barred for 3 s: a worker failed there")
    wait_until(lambda: not run.left_on("h2"), "that nothing is left on a host that is barred", 30.0)
    alone = run.stands("h1/0", after=max(killed, both.t))
    run.stands("h1/0", "h2/0", after=alone.t)
    run.ends()
    run.is_sound(finished=2)
