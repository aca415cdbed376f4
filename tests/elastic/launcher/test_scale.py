"""Other hosts for a run: what is wanted is written down where its launcher looks."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.control import PAUSE_FILE, SCALE_FILE
from weft.elastic.launcher.hosts.wanted import HostsWanted
from weft.elastic.launcher.scale import pause, present_workers, scale, wanted_hosts
from weft.errors import UsageError
from weft.topology.hostlist import HostEntry, parse_hosts


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "elastic").mkdir()
    hosts = [{"name": "a", "workers": None}, {"name": "b", "workers": 2}]
    control = {"launcher": os.getpid(), "hosts": hosts, "least": 2, "most": 4, "per_host": 1}
    (tmp_path / "elastic" / "control.json").write_text(json.dumps(control))
    return tmp_path


def test_hosts_are_named_in_all_or_by_what_changes(run_dir: Path) -> None:
    assert wanted_hosts(run_dir) == parse_hosts("a,b:2")
    assert scale(run_dir, add=parse_hosts("c:4"), remove=parse_hosts("a")) == parse_hosts("b:2,c:4")
    assert wanted_hosts(run_dir) == parse_hosts("b:2,c:4")
    assert scale(run_dir, parse_hosts("d,e")) == parse_hosts("d,e")
    part = (HostEntry("d", 2, cpus=(4, 5), gpus=(1, 0)),)
    assert scale(run_dir, part) == part
    assert wanted_hosts(run_dir) == part


def test_the_launcher_sees_it(run_dir: Path) -> None:
    warnings: list[str] = []
    wanted = HostsWanted(parse_hosts("a,b:2"), ElasticConfig(), warn=warnings.append)
    wanted.scale_file = run_dir / "elastic" / SCALE_FILE
    assert not wanted.look()
    scale(run_dir, parse_hosts("a,c"))
    assert wanted.look()
    assert wanted.hosts == parse_hosts("a,c")
    (run_dir / "elastic" / SCALE_FILE).write_text("")
    assert not wanted.look()
    assert wanted.hosts == parse_hosts("a,c")
    assert "must name at least one host" in warnings[0]
    assert "keeps a, c" in warnings[0]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"remove": (HostEntry("x"),)}, "must name hosts of the run, got x; it has a, b"),
        ({"remove": parse_hosts("a,b")}, "must keep at least one host"),
        ({"hosts": parse_hosts("a:1")}, r"must keep at least 2 workers \(--elastic 2:4\), got 1 with a:1"),
        ({"remove": parse_hosts("b")}, "got 1 with a:1"),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    run_dir: Path, change: dict[str, tuple[HostEntry, ...]], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        scale(run_dir, **change)
    assert not (run_dir / "elastic" / SCALE_FILE).exists()


def test_a_run_that_is_over_or_alone_cannot_be_scaled(run_dir: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    control = run_dir / "elastic" / "control.json"
    control.write_text(json.dumps({"launcher": gone.pid, "hosts": [{"name": "a", "workers": None}]}))
    with pytest.raises(UsageError, match="a run must have its launcher to be paused"):
        pause(run_dir)
    with pytest.raises(UsageError, match=r"whose launcher .* is gone"):
        scale(run_dir, parse_hosts("b"))
    (run_dir / "outcome.json").write_text("{}")
    with pytest.raises(UsageError, match="which has ended"):
        scale(run_dir, parse_hosts("b"))


def test_a_process_with_the_id_of_the_launcher_is_not_the_launcher(run_dir: Path) -> None:
    control = run_dir / "elastic" / "control.json"
    control.write_text(json.dumps({"launcher": os.getpid(), "launcher_ticks": 1, "hosts": []}))
    with pytest.raises(UsageError, match=r"is gone; .* weft run --adopt .* gives it another"):
        scale(run_dir, parse_hosts("b:3"))


def test_a_run_on_this_machine_alone_stays_here(run_dir: Path) -> None:
    control = run_dir / "elastic" / "control.json"
    own = [{"name": "machine", "workers": 3}]
    control.write_text(json.dumps({"launcher": os.getpid(), "hosts": own, "local": True}))
    assert scale(run_dir, parse_hosts("localhost:2")) == parse_hosts("localhost:2")
    assert scale(run_dir, parse_hosts("machine:1")) == parse_hosts("machine:1")
    for hosts in ("other:2", "machine:1,localhost:1"):
        with pytest.raises(UsageError, match=r"must stay here, got .* with --engine ssh, to add hosts later"):
            scale(run_dir, parse_hosts(hosts))


def test_the_workers_that_are_there_are_told_by_host(run_dir: Path) -> None:
    assert present_workers(run_dir) == {"a": 1, "b": 2}  # as they are to begin
    (run_dir / "elastic" / "workers.json").write_text('{"a": 1, "b": 4}')
    assert present_workers(run_dir) == {"a": 1, "b": 4}


def test_a_pause_needs_checkpoints(run_dir: Path) -> None:
    with pytest.raises(
        UsageError, match=r"must save checkpoints to be paused, got .*; start it with --checkpoint"
    ):
        pause(run_dir)
    control = run_dir / "elastic" / "control.json"
    control.write_text(json.dumps({"launcher": os.getpid(), "hosts": [], "checkpoint": True}))
    pause(run_dir)
    assert (run_dir / "elastic" / PAUSE_FILE).exists()
