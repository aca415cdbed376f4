"""The preflight on the virtual cluster: every mishap is seen, and called by its name."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from testing.cluster.cluster import VirtualCluster
from testing.cluster.waiting import PATIENCE_S
from testing.shell import WEFT

from weft.launch.preflight import progress_on

HELLO = "print('hello', flush=True)\n"


class Bench:
    """`weft` on the head of a cluster, with a folder and a cache of its own."""

    def __init__(self, cluster: VirtualCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.names = ",".join(host.name for host in cluster.hosts)
        (folder / "train.py").write_text(HELLO)

    def weft(self, verb: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        # /run is a host's own, so that clusters of other tests share no connection with this one.
        variables = {"XDG_CACHE_HOME": str(self.folder / "cache"), "XDG_RUNTIME_DIR": "/run", **env}
        return self.cluster.run([WEFT, verb, *args], env=variables, cwd=self.folder, check=False, timeout=120)

    def check(self, *args: str, code: int, hosts: str | None = None, **env: str) -> dict[str, Any]:
        done = self.weft("check", "-H", hosts or self.names, "--json", *args, **env)
        assert done.returncode == code, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def kept(self) -> list[Path]:
        return list((self.folder / "cache/weft/links").glob("*"))


@pytest.fixture
def shared(shared_cluster: VirtualCluster, tmp_path: Path) -> Bench:
    return Bench(shared_cluster, tmp_path)


@pytest.fixture
def bench(cluster: VirtualCluster, tmp_path: Path) -> Bench:
    return Bench(cluster, tmp_path)


# Hosts share all files but a few: what lies here is one host's own.
OWN = "/dev/shm"


def on_its_own(bench: Bench, host: str, name: str, text: str) -> None:
    """Write a file that only this host sees, where its Python looks first."""
    script = f'mkdir -p "$(dirname {OWN}/{name})" && cat >{OWN}/{name}'
    bench.cluster.run(["sh", "-c", script], on=host, input=text)


def troubles(report: dict[str, Any]) -> list[tuple[str, list[str], str]]:
    return [(f["name"], f["hosts"], f["status"]) for f in report["findings"] if f["status"] != "ok"]


def trouble(report: dict[str, Any]) -> dict[str, Any]:
    (found,) = [finding for finding in report["findings"] if finding["status"] != "ok"]
    return dict(found)


def test_healthy_hosts_are_ready(new_cluster: Callable[..., VirtualCluster], tmp_path: Path) -> None:
    bench = Bench(new_cluster(3, rate="100mbit"), tmp_path)
    report = bench.check(code=0)
    assert troubles(report) == []
    assert len(report["links"]) == 6
    assert all(5 < link["mbps"] < 150 and link["rtt_ms"] > 0 for link in report["links"])
    assert len(bench.kept()) == 1


def test_a_table_for_people(shared: Bench) -> None:
    done = shared.weft("check", "-H", "h1,h2")
    assert done.returncode == 0, done.stderr
    rows = [line.split(maxsplit=3) for line in done.stdout.splitlines()]  # a slow link makes a column wider
    assert ["✓", "card", "all", "eth0, 10 Gbit/s, MTU 1500"] in rows
    assert "bit/s, from row to column" in done.stdout
    assert done.stderr == ""  # progress is for terminals


@pytest.mark.smoke
def test_quick_checks_measure_nothing(shared: Bench) -> None:
    report = shared.check("--no-links", code=0)
    assert report["links"] == []
    assert {"ssh", "connects", "clock"} <= {finding["name"] for finding in report["findings"]}
    assert shared.kept() == []


def test_one_host_and_this_one(shared: Bench) -> None:
    assert {f["name"] for f in shared.check(code=0, hosts="h1")["findings"]} >= {"ssh", "torch"}
    report = shared.check("--no-links", code=0, hosts="head,h1")
    assert report["hosts"] == ["head", "h1"]


def test_an_unreachable_host_does_not_hide_the_others(bench: Bench) -> None:
    bench.cluster.kill("h2")
    report = bench.check("--no-links", code=2)
    found = trouble(report)
    assert (found["name"], found["hosts"]) == ("ssh", ["h2"])
    assert found["got"] == "the host must answer, got silence"
    connecting = [f["hosts"][0] for f in report["findings"] if f["name"] == "connects"]
    assert connecting == ["h1", "h3", "h4"]


def test_a_lost_leader_is_a_row_too(bench: Bench) -> None:
    bench.cluster.forget_host_key("h1")
    assert troubles(bench.check(code=2)) == [("ssh", ["h1"], "fail")]


def test_stale_and_unknown_keys_have_their_own_messages(bench: Bench) -> None:
    bench.cluster.swap_host_key("h2")
    bench.cluster.forget_host_key("h3")
    report = bench.check("--no-links", code=2)
    stale, unknown = [finding for finding in report["findings"] if finding["status"] == "fail"]
    assert stale["hosts"] == ["h2"]
    assert "its host key must be the one we know" in stale["got"]
    assert stale["fix"] == "if the host was reinstalled: ssh-keygen -R h2"
    assert unknown["hosts"] == ["h3"]
    assert unknown["fix"] == "check it and accept it once: ssh h3 true"


def test_another_torch_stops_a_run(bench: Bench) -> None:
    on_its_own(bench, "h3", "torch-9.9.9.dist-info/METADATA", "Name: torch\nVersion: 9.9.9\n")
    found = trouble(bench.check("--no-links", code=2, PYTHONPATH=OWN))
    assert (found["name"], found["hosts"]) == ("torch", ["h3"])
    assert "got 9.9.9 where others have" in found["got"]

    done = bench.weft("run", "-H", bench.names, "train.py", PYTHONPATH=OWN)
    assert (done.returncode, done.stdout) == (2, "")
    first, last = done.stderr.splitlines()
    assert first.startswith("weft: ✗ torch h3: torch must be the same on every host, got 9.9.9")
    assert last.startswith(
        "weft: every check must pass before a run, got 1 that did not; nothing was started"
    )
    assert not (bench.folder / "weft-runs").exists()

    assert bench.weft("run", "-H", bench.names, "--skip-checks", "train.py", PYTHONPATH=OWN).returncode == 0


def test_a_wrong_card_is_answered_with_the_right_one(bench: Bench) -> None:
    for host in bench.cluster.hosts:
        bench.cluster.add_card(host.name, "docker0", "172.17.0.1/16")
    bench.cluster.add_card("h2", "eth1", "192.168.9.2/24")
    wrong = bench.check("--no-links", code=2, GLOO_SOCKET_IFNAME="docker0")
    assert troubles(wrong) == [("named card", [host.name], "fail") for host in bench.cluster.hosts]
    missing = bench.check("--no-links", code=2, GLOO_SOCKET_IFNAME="eth1")["findings"]
    named = {finding["hosts"][0]: finding for finding in missing if finding["name"] == "named card"}
    assert "must be a card that is up, got none such among eth0, docker0" in named["h1"]["got"]
    assert "must lead to the leader h1" in named["h2"]["got"]
    assert named["h2"]["fix"].startswith("the card to use is eth0: ")
    assert troubles(bench.check("--no-links", code=0, GLOO_SOCKET_IFNAME="eth0")) == []


def test_a_slow_host_is_accused_and_the_run_goes_on(
    new_cluster: Callable[..., VirtualCluster], tmp_path: Path
) -> None:
    bench = Bench(new_cluster(3, rate="200mbit"), tmp_path)
    bench.cluster.slow("h2", "10mbit")
    done = bench.weft("run", "-H", bench.names, "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("hello") == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("weft: ! links h2: h2 must be as fast as the others, got links of ")
    assert line.endswith("check the cable, the card and the switch port of h2")


def test_a_firewall_between_two_hosts(bench: Bench) -> None:
    there = f"{bench.cluster.host('h3').address}/32"
    bench.cluster.run(["ip", "route", "add", "unreachable", there], on="h2")
    report = bench.check(code=2)
    assert ("connects", ["h2", "h3"], "fail") in troubles(report)
    assert report["links"] == []
    assert bench.kept() == []


def test_a_taken_port_and_a_missing_card(shared: Bench) -> None:
    report = shared.check("--no-links", "--port", "22", "--interface", "ib0", code=2)
    assert troubles(report) == [
        ("port", ["h1"], "fail"),
        ("named card", ["h1"], "fail"),
        *(("named card", [host], "warn") for host in ("h2", "h3", "h4")),
    ]


def test_only_the_first_run_measures(shared: Bench) -> None:
    def links_of(*args: str) -> str:
        done = shared.weft("run", "-H", "h1,h2", "--verbose", *args, "train.py")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("hello") == 2
        return done.stderr.partition("from row to column")[2].partition("hosts are ready")[0]

    first = links_of()
    (kept,) = shared.kept()
    written = kept.stat().st_mtime_ns
    assert links_of() == first
    assert kept.stat().st_mtime_ns == written
    shared.check(code=0, hosts="h1,h2")
    assert kept.stat().st_mtime_ns > written
    assert shared.kept() == [kept]


def test_a_missing_script_is_found_before_anything_starts(bench: Bench, tmp_path: Path) -> None:
    bench.cluster.run(["mount", "-t", "tmpfs", "tmpfs", str(tmp_path)], on="h2")
    done = bench.weft("run", "-H", "h1,h2", "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "weft: ✗ files h2: every host must have train.py, got none; copy it there" in done.stderr


def test_a_clock_that_is_off(bench: Bench) -> None:
    ahead = "import time\nreal = time.time\ntime.time = lambda: real() + 5.0\n"
    on_its_own(bench, "h2", "sitecustomize.py", ahead)
    found = trouble(bench.check("--no-links", code=0, PYTHONPATH=OWN))
    assert (found["name"], found["hosts"], found["status"]) == ("clock", ["h2"], "warn")
    assert found["got"] == "clocks must be within 0.5 s, got one 5.0 s ahead"


WAITING = """
from weft.launch.preflight import check
from weft.launch.preflight.report import render_report

waited = []

def progress(done, total):
    if not waited:
        waited.append(input("measuring\\n"))

print(render_report(check("h1,h2,h3", progress=progress)))
"""


def test_a_host_lost_while_links_are_measured(bench: Bench) -> None:
    variables = {"XDG_RUNTIME_DIR": "/run", "XDG_CACHE_HOME": str(bench.folder / "cache")}
    command = [sys.executable, "-c", WAITING]
    with bench.cluster.popen(command, env=variables, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "measuring\n"
        (agent,) = [pid for pid, argv in bench.cluster.processes("h3") if "weft.launch.agent.agent" in argv]
        psutil.Process(agent).kill()
        report, complaints = process.communicate("go on\n", timeout=PATIENCE_S)
    (failure,) = [line for line in report.splitlines() if line.startswith("✗ ssh  ")]
    assert "h3      the agent must stay, got its end" in failure, complaints
    assert report.endswith("\n1 failure; a run would not start\n")
    assert bench.kept() == []


def test_python_gets_the_same_report(shared: Bench) -> None:
    code = "from weft.launch.preflight import check; print(check('h1,h2', measure='never').ok)"
    variables = {"XDG_RUNTIME_DIR": "/run"}
    assert shared.cluster.run([sys.executable, "-c", code], env=variables).stdout == "True\n"


def test_progress_is_shown_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert progress_on(io.StringIO()) is None
    terminal = Terminal()
    show = progress_on(terminal)
    assert show is not None
    show(0, 3)
    show(3, 3)
    assert terminal.getvalue() == "\r\x1b[2Kweft: measuring links, round 1 of 3\r\x1b[2K"


def test_a_host_behind_nat_is_named(bench: Bench) -> None:
    bench.cluster.behind_nat("h3", inside="192.168.50.2")
    report = bench.check("--no-links", code=2)
    (found,) = [finding for finding in report["findings"] if finding["status"] == "fail"]
    assert found["hosts"] == ["h3"]
    assert "192.168.50.2" in found["got"]
    assert "behind address translation (NAT)" in found["got"]
