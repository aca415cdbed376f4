from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from testing.cluster.cluster import VirtualCluster
from testing.cluster.namespaces import entered
from testing.cluster.waiting import PATIENCE_S, wait_until

PYTHON = sys.executable

ECHO = """
import socket
with socket.create_server(("0.0.0.0", 5000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(1 << 16):
        connection.sendall(data)
"""

SINK = """
import socket, time
with socket.create_server(("0.0.0.0", 5000)) as server:
    print("listening", flush=True)
    connection, _ = server.accept()
    connection.recv(1)
    start, total = time.perf_counter(), 1
    while data := connection.recv(1 << 16):
        total += len(data)
    print(total / (time.perf_counter() - start))
"""


def ssh(
    cluster: VirtualCluster, host: str, *command: str, on: str | None = None
) -> subprocess.CompletedProcess[str]:
    argv: list[str | Path] = ["ssh", "-F", cluster.ssh_config, "-o", "ConnectTimeout=5", host, *command]
    return cluster.run(argv, on=on, check=False, timeout=PATIENCE_S)


def serve(cluster: VirtualCluster, host: str, code: str) -> subprocess.Popen[str]:
    server = cluster.popen([PYTHON, "-c", code], on=host)
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    return server


def connect(cluster: VirtualCluster, host: str) -> socket.socket:
    """A connection from the head, held by the test itself."""
    with entered(cluster.head.running.pid, "net"):
        connection = socket.socket()
    connection.settimeout(5)
    connection.connect((cluster.host(host).address, 5000))
    return connection


def bytes_per_second(cluster: VirtualCluster, host: str, size: int) -> float:
    with serve(cluster, host, SINK) as server, connect(cluster, host) as connection:
        connection.sendall(bytes(size))
        connection.close()
        return float(server.communicate(timeout=120)[0])


@pytest.mark.parametrize("start", ["head", "h1", "h4"])
def test_ssh_works_from_everywhere_and_hosts_have_names(shared_cluster: VirtualCluster, start: str) -> None:
    code = "import socket; print(socket.gethostname())"
    done = ssh(shared_cluster, "h2", PYTHON, "-c", f"'{code}'", on=start)
    assert (done.stdout, done.stderr) == ("h2\n", "")


@pytest.mark.smoke
def test_names_resolve(shared_cluster: VirtualCluster) -> None:
    code = "import socket; print(*map(socket.gethostbyname, ['head', 'h1', 'h3']))"
    done = shared_cluster.run([PYTHON, "-c", code], on="h1")
    assert done.stdout.split() == [shared_cluster.host(name).address for name in ("head", "h1", "h3")]


def test_a_command_keeps_folder_environment_input_and_status(
    shared_cluster: VirtualCluster, tmp_path: Path
) -> None:
    script = "pwd; echo $COLOUR $WEFT_SSH_CONFIG; cat; exit 7"
    done = shared_cluster.run(
        ["sh", "-c", script], on="h1", cwd=tmp_path, env={"COLOUR": "red"}, input="hello", check=False
    )
    assert done.returncode == 7
    assert done.stdout == f"{tmp_path}\nred {shared_cluster.ssh_config}\nhello"
    with pytest.raises(subprocess.CalledProcessError, match="exit status 7"):
        shared_cluster.run(["sh", "-c", "exit 7"])


def test_a_signal_reaches_the_command_itself(shared_cluster: VirtualCluster) -> None:
    with shared_cluster.popen(["sleep", "60"], on="h1") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == -signal.SIGINT
    assert shared_cluster.processes("h1") == []


def test_hosts_do_not_see_each_others_cards_memory_or_processes(shared_cluster: VirtualCluster) -> None:
    with shared_cluster.popen(
        ["sh", "-c", "echo secret >/dev/shm/note; echo; exec sleep 60"], on="h1"
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert shared_cluster.run(["ls", "/dev/shm"], on="h1").stdout == "note\n"
        assert shared_cluster.run(["ls", "/dev/shm"], on="h2").stdout == ""
        assert "sleep" not in shared_cluster.run(["ps", "ax"], on="h2").stdout
        assert shared_cluster.processes("h1") == [(process.pid, ["sleep", "60"])]
        process.kill()
    shared_cluster.run(["rm", "/dev/shm/note"], on="h1")
    assert shared_cluster.run(["ls", "/sys/class/net"], on="h2").stdout.split() == ["eth0", "lo"]


def test_runtime_files_stay_on_their_host(shared_cluster: VirtualCluster) -> None:
    shared_cluster.run(["sh", "-c", "touch $XDG_RUNTIME_DIR/socket"], on="h1")
    assert ssh(shared_cluster, "h1", "ls $XDG_RUNTIME_DIR").stdout == "socket\n"
    assert ssh(shared_cluster, "h2", "ls $XDG_RUNTIME_DIR").stdout == ""
    shared_cluster.run(["sh", "-c", "rm $XDG_RUNTIME_DIR/socket"], on="h1")


def test_a_process_left_by_ssh_is_seen(shared_cluster: VirtualCluster) -> None:
    ssh(shared_cluster, "h3", "sleep 60 >/dev/null 2>&1 </dev/null &")
    wait_until(lambda: len(shared_cluster.processes("h3")) == 1, "only the orphan is left")
    ((pid, command),) = shared_cluster.processes("h3")
    assert command == ["sleep", "60"]
    psutil.Process(pid).kill()
    wait_until(lambda: shared_cluster.processes("h3") == [], "the orphan is gone")


def test_a_cut_cable_loses_packets_and_a_healed_one_delivers_them(cluster: VirtualCluster) -> None:
    with serve(cluster, "h1", ECHO) as server, connect(cluster, "h1") as connection:
        connection.sendall(b"one")
        assert connection.recv(3) == b"one"
        cluster.cut("h1")
        connection.settimeout(0.5)
        connection.sendall(b"two")
        with pytest.raises(TimeoutError):
            connection.recv(3)
        cluster.heal("h1")
        connection.settimeout(20)
        assert connection.recv(3) == b"two"
        server.kill()


def test_a_cut_host_cannot_be_reached_while_others_can(cluster: VirtualCluster) -> None:
    cluster.cut("h1")
    assert ssh(cluster, "h1", "true").returncode == 255
    assert ssh(cluster, "h2", "true").returncode == 0


def test_slow_changes_the_throughput(new_cluster: Callable[..., VirtualCluster]) -> None:
    cluster = new_cluster(1, rate="400mbit")
    size = 4 << 20
    fast = bytes_per_second(cluster, "h1", size)
    cluster.slow("h1", "40mbit")
    slow = bytes_per_second(cluster, "h1", size)
    assert fast < 400e6 / 8 * 1.5
    assert fast > 3 * slow
    cluster.slow("h1", None)
    assert bytes_per_second(cluster, "h1", size) > 3 * slow


def test_kill_is_a_power_loss(cluster: VirtualCluster) -> None:
    with serve(cluster, "h1", ECHO) as server, connect(cluster, "h1") as connection:
        on_host = [process.pid for process in cluster.host("h1").running.processes()]
        cluster.kill("h1")
        assert server.wait(PATIENCE_S) == -signal.SIGKILL
        assert not any(map(psutil.pid_exists, on_host))
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):  # nobody said good-bye
            connection.recv(1)
    assert ssh(cluster, "h2", "hostname").stdout == "h2\n"
    cluster.start("h1")
    assert ssh(cluster, "h1", "hostname").stdout == "h1\n"


def test_host_keys_can_be_unknown_or_stale(cluster: VirtualCluster) -> None:
    cluster.forget_host_key("h1")
    assert "No ED25519 host key is known" in ssh(cluster, "h1", "true").stderr
    cluster.swap_host_key("h2")
    assert "IDENTIFICATION HAS CHANGED" in ssh(cluster, "h2", "true").stderr
    assert ssh(cluster, "h3", "true").returncode == 0


def test_a_second_card_is_on_another_network(cluster: VirtualCluster) -> None:
    for host in ("h1", "h2"):
        cluster.add_card(host, "eth1", f"192.168.9.{host[1:]}/24", network="storage")
        cluster.add_card(host, "docker0", "172.17.0.1/16")
    knock = "import socket, sys; socket.create_connection((sys.argv[1], 22), float(sys.argv[2]))"
    assert cluster.run([PYTHON, "-c", knock, "192.168.9.2", "60"], on="h1", check=False).returncode == 0
    assert cluster.run([PYTHON, "-c", knock, "172.17.0.2", "1"], on="h1", check=False).returncode == 1
    assert cluster.run([PYTHON, "-c", knock, "192.168.9.2", "1"], on="h3", check=False).returncode == 1


def test_a_host_behind_nat_is_seen_under_another_address(cluster: VirtualCluster) -> None:
    cluster.behind_nat("h2")
    listen = "import socket; s = socket.create_server(('', 7000)); print('up', flush=True); print(s.accept()[1][0])"
    call = "import socket, sys; print(socket.create_connection((sys.argv[1], 7000), 5).getsockname()[0])"
    with cluster.popen([PYTHON, "-c", listen], on="h1") as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        inside = cluster.run([PYTHON, "-c", call, cluster.host("h1").address], on="h2").stdout
        assert (inside, server.communicate()[0]) == ("192.168.50.2\n", f"{cluster.host('h2').address}\n")
    assert ssh(cluster, "h2", "hostname").stdout == "h2\n"


def test_two_clusters_do_not_meet(cluster: VirtualCluster, shared_cluster: VirtualCluster) -> None:
    assert cluster.host("h1").address == shared_cluster.host("h1").address
    cluster.kill("h1")
    assert ssh(shared_cluster, "h1", "hostname").stdout == "h1\n"
    assert ssh(cluster, "h1", "hostname").returncode == 255


CRASH = """
import time
from testing.cluster.cluster import VirtualCluster
cluster = VirtualCluster(2)
cluster.popen(["sleep", "3600"], on="h1")
print(cluster.folder, flush=True)
time.sleep(60)
"""


@pytest.fixture
def own_temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files that no cluster of another test sweeps meanwhile."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


def test_nothing_outlives_a_crash(own_temporary: None, new_cluster: Callable[..., VirtualCluster]) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen([PYTHON, "-c", CRASH], cwd=root, stdout=subprocess.PIPE, text=True) as crashing:
        assert crashing.stdout is not None
        folder = Path(crashing.stdout.readline().strip())
        tree = psutil.Process(crashing.pid).children(recursive=True)
        crashing.kill()
    assert len(tree) >= 8  # a holder and a first process for each machine, and the command
    assert psutil.wait_procs(tree, timeout=PATIENCE_S)[1] == []
    assert folder.is_dir()
    alive = new_cluster(1)
    assert not folder.exists()
    new_cluster(1)
    assert alive.folder.exists()


def test_a_closed_cluster_leaves_nothing(new_cluster: Callable[..., VirtualCluster]) -> None:
    cluster = new_cluster(2)
    pids = [process.pid for host in cluster.hosts for process in host.running.processes()]
    cluster.close()
    assert not cluster.folder.exists()
    assert not any(map(psutil.pid_exists, pids))


def test_building_is_quick(new_cluster: Callable[..., VirtualCluster]) -> None:
    start = time.perf_counter()
    new_cluster(4, rate="1gbit")
    assert time.perf_counter() - start < 10  # only a guard against a forgotten time-out


@pytest.mark.parametrize("rate", ["fast", "10", "1.5gbit"])
def test_a_rate_must_be_readable(cluster: VirtualCluster, rate: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"got '{rate}'")):
        cluster.slow("h1", rate)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from testing.cluster.require import missing_tools, require

    monkeypatch.setattr(shutil, "which", lambda tool: None)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert missing_tools("tc", "sshd") == "not installed: tc, sshd"
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        require("not installed: tc")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        require("not installed: tc")
    require(None)


def test_racks_are_joined_by_shaped_uplinks(new_cluster: Callable[..., VirtualCluster]) -> None:
    cluster = new_cluster(3, racks=(2, 1), uplink="100mbit")
    cluster.run(["ssh", "-F", cluster.ssh_config, "h3", "hostname"], on="h1")
    assert cluster._switch is not None
    with entered(cluster._switch.pid, "net"):
        shown = subprocess.run(["tc", "qdisc"], capture_output=True, text=True, check=True).stdout
    assert shown.count("tbf") == 4
    with pytest.raises(ValueError, match=r"must hold all hosts, got 2 \+ 2 for 3"):
        VirtualCluster(3, racks=(2, 2))
