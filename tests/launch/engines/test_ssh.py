"""The ssh engine on the virtual cluster: real sshd, real hosts that die, real cables that are cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.cluster.cluster import VirtualCluster
from testing.cluster.waiting import PATIENCE_S, wait_until
from testing.shell import WEFT

from weft.launch.engines.local import agent_argv
from weft.launch.engines.ssh import explain_ssh, remote_command, ssh_argv

SLEEPER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print("up", os.environ["RANK"], flush=True)
time.sleep(300)
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


class Launcher:
    """`weft` on the head of a cluster, in a folder of its own that all hosts see."""

    def __init__(self, cluster: VirtualCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.env = {**cluster.environment, "XDG_CACHE_HOME": str(folder / "cache")}
        self.names = ",".join(host.name for host in cluster.hosts)
        self._open: list[subprocess.Popen[str]] = []

    def script(self, text: str) -> str:
        (self.folder / "train.py").write_text(text)
        return "train.py"

    def run(self, *args: str, timeout: float = 50, **env: str) -> subprocess.CompletedProcess[str]:
        return self.cluster.run(
            [WEFT, *args], env={**self.env, **env}, cwd=self.folder, timeout=timeout, check=False
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        process = self.cluster.popen(
            [WEFT, *args], env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._open.append(process)
        return process

    def start_sleepers(self, text: str, workers: int, *args: str) -> subprocess.Popen[str]:
        """Start a run and wait until every worker is up."""
        process = self.start("run", "-H", self.names, "--skip-checks", *args, self.script(text))
        assert process.stdout is not None
        for _ in range(workers):
            line = process.stdout.readline()
            assert " up " in line, line + process.communicate()[1]
        return process

    def left(self) -> list[str]:
        """What still runs on the hosts."""
        return [str(line) for host in self.cluster.hosts for _, line in self.cluster.processes(host.name)]

    def close(self) -> None:
        for process in self._open:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def on_four(shared_cluster: VirtualCluster, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(shared_cluster, tmp_path)
    yield launcher
    launcher.close()


@pytest.fixture
def on_own_four(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(cluster, tmp_path)
    yield launcher
    launcher.close()


@pytest.mark.smoke
def test_four_hosts_by_two_reduce_together(on_four: Launcher) -> None:
    script = on_four.script(
        "import torch, weft\nworld = weft.init()\nt = torch.tensor([1.0 + world.rank])\n"
        "torch.distributed.all_reduce(t)\nprint(world.host, world.local_rank, world.num_hosts, t.item())\n"
        "weft.shutdown()\n"
    )
    done = on_four.run("run", "-H", on_four.names, "--per-host", "2", "--skip-checks", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[{rank}] h{rank // 2 + 1} {rank % 2} 4 36.0" for rank in range(8)
    ]


def test_ranks_can_be_dealt_and_hosts_uneven(on_four: Launcher) -> None:
    script = on_four.script("import os\nprint(os.environ['WEFT_HOST'], os.environ['LOCAL_WORLD_SIZE'])\n")
    done = on_four.run(
        "run", "-H", "h1:2,h3:1", "--allow-uneven", "--rank-order", "round-robin", "--skip-checks", script
    )
    assert sorted(done.stdout.splitlines()) == ["[0] h1 2", "[1] h3 1", "[2] h1 2"], done.stderr


def test_the_card_is_the_one_that_routes_to_the_leader(on_four: Launcher) -> None:
    done = on_four.run("run", "-H", "h2,h4", "--dry-run", "--json", on_four.script(""))
    plan = json.loads(done.stdout)
    addresses = {host.name: host.address for host in on_four.cluster.hosts}
    assert plan["leader"] == addresses["h2"]
    assert [(host["address"], host["interface"]) for host in plan["hosts"]] == [
        (addresses["h2"], "eth0"),
        (addresses["h4"], "eth0"),
    ]
    assert plan["hosts"][1]["workers"][0]["env"]["GLOO_SOCKET_IFNAME"] == "eth0"


def test_folder_and_variables_travel(on_four: Launcher) -> None:
    script = on_four.script(
        "import os\nprint(os.getcwd(), os.environ['TORCH_X'], os.environ['MINE'], os.getenv('NOT'))\n"
    )
    done = on_four.run(
        "run", "-H", "h3", "--env", "MINE=a b'c", "--skip-checks", script, TORCH_X="carried", NOT="carried"
    )
    assert done.stdout == f"[0] {on_four.folder} carried a b'c None\n", done.stderr


def test_topology_of_other_hosts(on_four: Launcher) -> None:
    text = on_four.run("topology", "-H", "h1,h2", "--per-host", "2").stdout
    assert "h1 (leader)" in text
    assert "routes to the leader" in text
    assert "dimensions 2x2x1x1" in text
    data = json.loads(on_four.run("topology", "-H", "h1,h2", "--json").stdout)
    assert [host["name"] for host in data["hosts"]] == ["h1", "h2"]


def test_an_exception_on_rank_3_is_named_with_its_host(on_four: Launcher) -> None:
    script = on_four.script(
        "import os, time\nif os.environ['RANK'] == '3':\n    raise RuntimeError('lost the plot')\ntime.sleep(300)\n"
    )
    done = on_four.run("run", "-H", on_four.names, "--per-host", "2", "--skip-checks", script)
    assert done.returncode == 1
    assert "weft: failed: rank 3 on h2: RuntimeError: lost the plot" in done.stderr
    assert "rank-3.log" in done.stderr


def test_the_exit_code_travels(on_four: Launcher) -> None:
    script = on_four.script(
        "import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '2' else time.sleep(300)\n"
    )
    done = on_four.run("run", "-H", on_four.names, "--skip-checks", script)
    assert done.returncode == 7
    assert "rank 2 on h3: exit code 7" in done.stderr


def test_a_missing_script_on_one_host_starts_nothing(on_own_four: Launcher) -> None:
    # The folder is shared; what only the head has is its own /run.
    done = on_own_four.run("run", "-H", "h1,h2", "--skip-checks", "--", "true")
    assert done.returncode == 0
    on_own_four.cluster.run(["mkdir", "/run/only-here"])
    on_own_four.cluster.run(["cp", str(on_own_four.folder / on_own_four.script("")), "/run/only-here/"])
    done = on_own_four.run("run", "-H", "h1,h2", "--skip-checks", "/run/only-here/train.py")
    assert done.returncode == 2
    assert "every host must have /run/only-here/train.py, got none on h1" in done.stderr
    assert not list(on_own_four.folder.glob("weft-runs/*-train"))


def test_a_host_that_is_down_is_named_and_nothing_starts(on_own_four: Launcher) -> None:
    on_own_four.cluster.kill("h3")
    done = on_own_four.run("run", "-H", on_own_four.names, on_own_four.script("print('ran')"))
    assert done.returncode == 2
    assert "h3: the host must answer, got silence" in done.stderr
    assert "ran" not in done.stdout
    assert "h1" not in done.stderr


def test_a_host_that_was_restarted_is_reached_again(on_own_four: Launcher) -> None:
    args = ("run", "-H", "h1,h2", "--skip-checks", on_own_four.script("print('ran')"))
    assert on_own_four.run(*args).returncode == 0
    on_own_four.cluster.kill("h2")  # with the connection of the first run still open
    assert "h2: the host must answer" in on_own_four.run(*args).stderr
    on_own_four.cluster.start("h2")
    assert on_own_four.run(*args).returncode == 0


def test_an_unknown_host_is_refused(on_four: Launcher) -> None:
    done = on_four.run("run", "-H", "h1,nowhere", on_four.script(""))
    assert done.returncode == 2
    assert "nowhere: a host must be known" in done.stderr


def test_a_port_in_use_on_the_leader_is_refused(on_four: Launcher) -> None:
    done = on_four.run("run", "-H", "h1,h2", "--skip-checks", "--port", "22", on_four.script(""))
    assert done.returncode == 2
    assert "--port must be free on h1, got 22" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_launcher_on_any_host(on_four: Launcher, number: int) -> None:
    process = on_four.start_sleepers(STUBBORN + SLEEPER, 8, "--per-host", "2")
    assert len(on_four.left()) >= 16
    process.send_signal(number)
    wait_until(lambda: not on_four.left(), "every process of the run to end")


def test_a_cut_cable_ends_the_run_at_both_ends(on_own_four: Launcher) -> None:
    process = on_own_four.start_sleepers(STUBBORN + SLEEPER, 4)
    on_own_four.cluster.cut("h2")
    # The host that is cut off ends its own workers.
    wait_until(lambda: not on_own_four.left(), "every process of the run to end")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "host h2 (ranks 1): lost: no sign of life" in err


def test_a_host_that_loses_power_ends_the_run(on_own_four: Launcher) -> None:
    process = on_own_four.start_sleepers(SLEEPER, 4)
    on_own_four.cluster.kill("h4")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "host h4 (ranks 3): lost" in err
    survivors = [line for name in ("h1", "h2", "h3") for _, line in on_own_four.cluster.processes(name)]
    assert survivors == []


RESTARTED = """
import os, time
count, world = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["WORLD_SIZE"]
print("up", os.environ["RANK"], flush=True)
if count == "0":
    time.sleep(300)
print(f"restart {count} rank {os.environ['RANK']} of {world} at {os.environ['MASTER_ADDR']}")
"""


@pytest.mark.parametrize("lost", ["h1", "h3"])
def test_a_restart_goes_on_without_a_host_that_is_lost(on_own_four: Launcher, lost: str) -> None:
    """As torchrun does with --nnodes MIN:MAX, but as soon as the host is known to be lost; the leader's, too."""
    process = on_own_four.start_sleepers(RESTARTED, 4, "--nnodes", "3:4", "--max-restarts", "1")
    on_own_four.cluster.kill(lost)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "restart 1 of 1 with 3 workers" in err
    said = sorted(line.partition("] ")[2] for line in out.splitlines() if "restart 1" in line)
    assert [line.partition(" at ")[0] for line in said] == [
        f"restart 1 rank {rank} of 3" for rank in range(3)
    ]
    assert len({line.partition(" at ")[2] for line in said}) == 1


def test_a_restart_needs_as_many_hosts_as_were_asked_for(on_own_four: Launcher) -> None:
    process = on_own_four.start_sleepers(RESTARTED, 4, "--nnodes", "3:4", "--max-restarts", "3")
    on_own_four.cluster.kill("h4")
    on_own_four.cluster.kill("h3")
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "lost" in err


def test_a_killed_agent_leaves_nothing_on_its_host(on_own_four: Launcher) -> None:
    process = on_own_four.start_sleepers(SLEEPER, 4)
    agents = [pid for pid, line in on_own_four.cluster.processes("h2") if "weft.launch.agent.agent" in line]
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert "host h2 (ranks 1): lost" in err
    wait_until(lambda: not on_own_four.left(), "every process of the run to end")


@pytest.mark.parametrize(
    ("complaint", "sentence"),
    [
        ("ssh: Could not resolve hostname b: Name or service not known", "a name that does not resolve"),
        (
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "ssh-keygen -R b",
        ),
        ("No ED25519 host key is known for b\nHost key verification failed.", "one never seen"),
        ("me@b: Permission denied (publickey).", "ssh-copy-id me@b"),
        ("ssh: connect to host b port 22: Connection refused", "sshd must be listening"),
        ("ssh: connect to host b port 22: No route to host", "is it up"),
        ("mux_client_request_session: read from master failed: Broken pipe", "is it up"),
        ("/usr/bin/python3: No module named weft", "weft must be installed"),
        ("bash: line 1: /x/python: No such file or directory", "Python must be at the same path"),
        ("", "got its end (exit code 255) without a word; is the host up"),
        ("gibberish", "the agent ended (exit code 255): gibberish; try: ssh me@b true"),
    ],
)
def test_each_cause_has_its_own_sentence(complaint: str, sentence: str) -> None:
    assert sentence in explain_ssh("me@b", 255, complaint)


def test_the_python_that_was_asked_for_is_named() -> None:
    complaint = "bash: line 1: /x/python: No such file or directory"
    assert "got no /x/python there" in explain_ssh("b", 127, complaint, "/x/python")


def test_sockets_lie_in_a_folder_we_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nobody's")
    assert any(part.startswith(f"ControlPath=/tmp/weft-ssh-{os.getuid()}/") for part in ssh_argv("b", "true"))


def test_ssh_never_asks_and_shares_its_connection() -> None:
    argv = ssh_argv("b", "true", config_file="cfg")
    assert argv[:3] == ("ssh", "-F", "cfg")
    assert {"BatchMode=yes", "ControlMaster=auto"} < set(argv)


@pytest.mark.parametrize(("lost_after_s", "silences"), [(0.5, 3), (2.5, 4), (30.0, 31)])
def test_ssh_does_not_give_a_silent_host_up_before_the_launcher_does(
    lost_after_s: float, silences: int
) -> None:
    assert f"ServerAliveCountMax={silences}" in ssh_argv("b", "true", lost_after_s=lost_after_s)


def test_a_connection_is_shared_only_with_runs_of_the_same_patience() -> None:
    impatient, patient = (
        next(part for part in ssh_argv("b", "true", lost_after_s=seconds) if part.startswith("ControlPath="))
        for seconds in (2.0, 30.0)
    )
    assert impatient != patient


def test_a_path_with_a_space_survives_the_remote_shell() -> None:
    assert (
        remote_command(agent_argv("/my env/bin/python"))
        == "exec '/my env/bin/python' -P -m weft.launch.agent.agent"
    )
