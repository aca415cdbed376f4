"""`weft up` and everything after it, as a user does it: real service, real jobs, real kills."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.forking.server import ForkServer
from testing.jobs.terminal import ServiceTerminal
from testing.shell import Shell

SCRIPT = """
import os, pathlib, sys, time
print("rank", os.environ["RANK"], "of job", os.environ["WEFT_JOB_ID"], *sys.argv[1:], flush=True)
pathlib.Path(os.environ["WEFT_OUTPUTS"], "result.txt").write_text("done\\n")
gate = pathlib.Path(os.environ["GATE"]) if "GATE" in os.environ else None
step = 0
while gate is not None and not gate.exists():
    print("step", step, flush=True)
    step += 1
    time.sleep(0.05)
print("ends after", "many steps" if step else "no step", flush=True)
sys.exit(int(os.environ.get("CODE", 0)))
"""


@pytest.fixture
def terminal(shell: Shell, tmp_path: Path, forks: ForkServer) -> Iterator[ServiceTerminal]:
    shell.command = forks.load("weft.jobs.client.client").weft
    shell.folder = tmp_path / "here"
    shell.folder.mkdir()
    shell.script(SCRIPT)
    made = ServiceTerminal(shell, tmp_path / "data")
    yield made
    made.end()


@pytest.mark.long
def test_from_up_to_results(terminal: ServiceTerminal, tmp_path: Path) -> None:
    terminal.up()
    assert terminal.data_of("hosts")[0]["state"] == "up"
    followed = terminal.weft("submit", "--follow", "--name", "first", "-n", "2", "train.py", "--lr", "0.1")
    assert "[0] rank 0 of job 1 --lr 0.1" in followed
    assert "[1] rank 1 of job 1 --lr 0.1" in followed
    (job,) = terminal.data_of("jobs")["jobs"]
    assert (job["name"], job["state"]) == ("first", "completed")
    assert "ends after no step" in terminal.weft("logs", "1", "--rank", "1", "--grep", "ends")
    terminal.weft("job", "pull", "1")
    assert (terminal.shell.folder / "weft-jobs" / "1" / "outputs" / "result.txt").read_text() == "done\n"
    (clone,) = terminal.data_of("job", "clone", "1", "--set", "name=second", "--set", "env={CODE: 3}")
    assert terminal.await_state(clone["id"], "failed", "completed") == "failed"
    assert "env" in terminal.weft("job", "diff", "1", "2")
    assert terminal.data_of("job", "diff", "1", "2")["code"] == []
    terminal.weft("job", "retry", "2")
    terminal.await_state(2, "failed")
    assert len(terminal.data_of("job", "show", "2")["attempts"]) == 2
    (terminal.shell.folder / "train.py").write_text("raise ValueError('no')\n")
    failed = terminal.shell.weft("submit", "-f", "train.py", timeout=120, **terminal.variables)
    assert (failed.returncode, "is failed" in failed.stderr) == (1, True)
    assert "ValueError: no" in terminal.weft("logs", "3")
    assert terminal.data_of("job", "diff", "1", "3")["code"][0]["path"] == "train.py"
    assert terminal.weft("retention", "--days", "1") == "all jobs are kept\n"
    assert "3 jobs of " in terminal.weft("retention", "--most", "1")
    assert len(terminal.data_of("jobs")["jobs"]) == 3
    terminal.weft("job", "rm", "--yes", "1", "2")
    assert [
        job["id"] for job in terminal.data_of("retention", "--most", "1", "--apply", "--yes")["jobs"]
    ] == [3]
    assert terminal.data_of("jobs")["jobs"] == []


@pytest.mark.long
def test_jobs_and_those_who_follow_them_outlive_a_killed_service(
    terminal: ServiceTerminal, tmp_path: Path
) -> None:
    terminal.up()
    gate = tmp_path / "gate"
    following = terminal.shell.start(
        "submit", "-f", "--env", f"GATE={gate}", "train.py", **terminal.variables
    )
    assert following.stdout is not None
    lines = iter(following.stdout.readline, "")
    while "step 3" not in next(lines):
        pass
    terminal.kill()
    time.sleep(0.5)
    terminal.up()  # at another port, with another token
    while "step" not in next(lines):
        pass
    assert terminal.state(1) == "running"
    gate.touch()
    rest, errors = following.communicate(timeout=60)
    assert following.returncode == 0, errors
    assert "[0] ends after many steps" in rest
    log = [line.split()[-1] for line in terminal.weft("logs", "1", "--grep", "step \\d").splitlines()]
    assert log == [str(step) for step in range(len(log))]  # none lost, none twice
    assert len(terminal.data_of("job", "show", "1")["attempts"]) == 1


@pytest.mark.long
def test_waiting_holding_and_stopping(terminal: ServiceTerminal, tmp_path: Path) -> None:
    terminal.up()
    (host,) = terminal.data_of("hosts")
    everything = f"{host['total']['cpus']:g}"
    gate = f"GATE={tmp_path / 'gate'}"
    terminal.weft("submit", "--cpus", everything, "--env", gate, "train.py")
    terminal.await_state(1, "running")
    terminal.weft("submit", "--cpus", everything, "--max-time", "1h", "train.py")
    terminal.weft("submit", "--hold", "train.py")
    waiting, held = terminal.data_of("job", "show", "2"), terminal.data_of("job", "show", "3")
    assert (waiting["state"], waiting["reason"]["place"]) == ("queued", 1)
    assert (held["state"], held["reason"]["why"]) == ("held", "held")
    assert "place 1" in terminal.weft("jobs", "--state", "queued")
    assert "must fit onto the hosts" in terminal.refused("submit", "-n", "5000", "train.py")
    assert "to resume, got one that is running" in terminal.refused("job", "resume", "1")
    terminal.weft("job", "priority", "2", "90")
    assert terminal.data_of("job", "show", "2")["priority"] == 90
    terminal.weft("job", "stop", "1")
    assert terminal.await_state(1, "stopped", "completed", "failed") == "stopped"
    terminal.await_state(2, "completed")
    terminal.weft("job", "release", "3")
    terminal.await_state(3, "completed")
    terminal.weft("hosts", "drain", host["name"])
    terminal.weft("submit", "train.py")
    assert terminal.data_of("job", "show", "4")["state"] == "queued"
    terminal.weft("hosts", "undrain", host["name"])
    terminal.await_state(4, "completed")


@pytest.mark.long
def test_others_log_in_by_a_link_and_may_what_their_role_allows(
    terminal: ServiceTerminal, tmp_path: Path
) -> None:
    url = terminal.up()
    link = terminal.weft("user", "add", "bob", "--role", "viewer").strip()
    other = {"WEFT_HOME": str(tmp_path / "nothing"), "XDG_CONFIG_HOME": str(tmp_path / "bob")}
    assert "start one with `weft up`" in terminal.refused("jobs", **other)
    assert "`weft login" in terminal.refused("jobs", "--url", url, **other)
    assert terminal.weft("login", link, **other) == f"logged in to {url} as bob\n"
    assert "no jobs" in terminal.weft("jobs", **other)
    assert "weft: " in terminal.refused("submit", "train.py", **other)
    assert "weft: " in terminal.refused("user", "list", **other)
    assert "must" in terminal.refused("login", link, **other)  # a link counts once
    terminal.weft("user", "disable", "bob")
    assert "weft login" in terminal.refused("jobs", **other)


@pytest.mark.long
def test_one_service_a_folder_and_no_clear_passwords(terminal: ServiceTerminal) -> None:
    url = terminal.up()
    assert f"the service at {url}" in terminal.refused("up", "--port", "0")
    assert "--insecure" in terminal.refused("up", "--host", "0.0.0.0", "--data", "other")
    assert not (terminal.shell.folder / "other").exists()
    assert "must not travel in the clear" in terminal.refused("login", "http://gpu1:8765")


@pytest.mark.long
def test_tls_is_trusted_by_the_commands_of_this_machine(terminal: ServiceTerminal, tmp_path: Path) -> None:
    names = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]
    key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        [*key, "-addext", "subjectAltName=IP:127.0.0.1"], cwd=tmp_path, check=True, capture_output=True
    )
    url = terminal.up("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"))
    assert url.startswith("https://127.0.0.1:")
    assert terminal.weft("jobs") == "no jobs; submit one with weft submit train.py\n"
    link = terminal.weft("user", "add", "bob").strip()
    other = {"WEFT_HOME": str(tmp_path / "nothing"), "XDG_CONFIG_HOME": str(tmp_path / "bob")}
    assert "CERTIFICATE_VERIFY_FAILED" in terminal.refused("login", link, **other)
    terminal.weft("login", link, "--ca", str(tmp_path / "cert.pem"), **other)
    assert terminal.weft("jobs", **other).startswith("no jobs")


@pytest.mark.long
def test_a_backup_made_beside_the_service_is_restored_elsewhere(
    terminal: ServiceTerminal, tmp_path: Path
) -> None:
    terminal.up("--keep-days", "30")
    terminal.weft("submit", "--hold", "--name", "kept", "train.py")
    file, other = str(tmp_path / "kept.tar.gz"), tmp_path / "other"
    assert terminal.weft("backup", file).startswith(f"kept {file}: 1 job, ")
    assert "must be a new file" in terminal.refused("backup", file)
    assert "the data folder must be free" in terminal.refused("restore", file)
    assert terminal.data_of("restore", file, "--data", str(other))["rows"]["job"] == 1
    assert "must" in terminal.refused("restore", file, "--data", str(other))  # it holds something by now
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(Path(file).read_bytes()[:1000])
    assert "must be a whole backup" in terminal.refused(
        "restore", str(damaged), "--data", str(tmp_path / "third")
    )
    assert not (tmp_path / "third").exists()
    terminal.weft("job", "stop", "1")
    terminal.down()
    terminal.data = other
    terminal.up()
    (job,) = terminal.data_of("jobs")["jobs"]
    assert (job["name"], job["state"]) == ("kept", "held")
    terminal.weft("job", "release", "1")
    terminal.await_state(1, "completed")
