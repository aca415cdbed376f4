"""Runs on a cluster of our own: real pods' processes, a real launcher among them, and faults of all kinds."""

from __future__ import annotations

import json
import random
import re
import signal
from functools import partial
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from tests.launch.engines.kubernetes.conftest import ClusterShell

from weft.launch.engines.kubernetes.objects.snapshot import PART_BYTES
from weft.launch.engines.kubernetes.permissions import rules_for

HELLO = """
import os, sys, time
rank = os.environ["RANK"]
for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
    print(f"line {number} of {rank} on {os.environ['WEFT_HOST']} of {os.environ['WORLD_SIZE']}", flush=True)
"""
FAILS = """
import os, sys
print("bad" if os.environ["RANK"] == "1" else "good", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("the second one fails")
"""
WAITS = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


def test_a_run_in_two_pods_prints_ends_and_leaves_nothing(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script(HELLO)
    (on_cluster.shell.folder / "words.bin").write_bytes(
        random.Random(0).randbytes(PART_BYTES)
    )  # two ConfigMaps
    done = on_cluster.run("--pods", "2", "--env", "HF_TOKEN=hush", script)
    made = [path.rsplit("/", 1)[1] for method, path, _ in on_cluster.cluster.requests if method == "POST"]
    assert made == ["secrets", "configmaps", "configmaps", "services", "jobs"]
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] line 0 of 0 on train-0 of 2",
        "[1] line 0 of 1 on train-1 of 2",
    ]
    for kind in ("jobs", "pods", "services", "secrets", "configmaps"):
        assert on_cluster.cluster.objects(kind) == []
    folder = on_cluster.shell.run_dir()
    assert (folder / "rank-1.log").read_text() == "line 0 of 1 on train-1 of 2\n"
    assert json.loads((folder / "outcome.json").read_text())["codes"] == {"0": 0, "1": 0}
    # What the pods planned, not what was guessed before.
    hosts = json.loads((folder / "plan.json").read_text())["hosts"]
    assert [host["name"] for host in hosts] == ["train-0", "train-1"]
    assert hosts[0]["workers"][0]["placement"] is not None
    everything = "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert "hush" not in everything + done.stdout + done.stderr


def test_a_run_as_a_job_set_is_the_same_run(on_cluster: ClusterShell) -> None:
    """Whose Job and Service others make: the first failure comes back, and a run that succeeds leaves nothing."""
    done = on_cluster.run("--as", "jobset", "--pods", "2", on_cluster.shell.script(HELLO))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0] line 0 of 0 on train-worker-0-0 of 2",
        "[1] line 0 of 1 on train-worker-0-1 of 2",
    ]
    failed = on_cluster.run(
        "--as", "jobset", "--pods", "2", "--per-host", "1", on_cluster.shell.script(FAILS)
    )
    assert failed.returncode == 1
    assert "weft: failed: rank 1 on train-worker-0-1: ValueError: the second one fails" in failed.stderr
    made = [path.rsplit("/", 1)[1] for method, path, _ in on_cluster.cluster.requests if method == "POST"]
    once = [kind for kind, _ in groupby(made)]  # an answer that takes too long is asked for again
    assert once == ["secrets", "configmaps", "jobsets"] * 2
    for kind in ("jobsets", "jobs", "pods", "secrets", "configmaps"):
        assert on_cluster.cluster.objects(kind) == []


@pytest.mark.parametrize("kind", ["job", "jobset"])
def test_a_run_in_an_app_wrapper_is_the_same_run(on_cluster: ClusterShell, kind: str) -> None:
    """The code and the secret stand beside it, since its controller may not make those."""
    on_cluster.set(app_wrapper=True)
    script = on_cluster.shell.script(HELLO)
    done = on_cluster.run("--as", kind, "--pods", "2", script, "2")
    assert done.returncode == 0, done.stderr
    assert sorted(line.split(" on ")[0] for line in done.stdout.splitlines()) == [
        f"[{rank}] line {n} of {rank}" for rank in range(2) for n in range(2)
    ]
    for left in ("appwrappers", "jobsets", "jobs", "secrets", "configmaps", "services"):
        on_cluster.cluster.wait_for(f"no {left}", partial(on_cluster.cluster.has_none, left))


def test_what_is_applied_is_what_a_dry_run_prints(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script(HELLO)
    dry = on_cluster.run("--pods", "2", "--dry-run", script)
    assert on_cluster.run("--pods", "2", script).returncode == 0
    sent = [body for method, _, body in on_cluster.cluster.requests if method == "POST"]
    printed = dry.stdout.split("---\n")[1:]
    drawn = [yaml.safe_load(texts[0])["stringData"]["door"] for texts in (sent, printed)]
    assert len(set(drawn)) == 2  # a secret is drawn for each
    # One that begins with a digit has quotes.
    whole = [re.sub(r"door: '?[0-9a-zA-Z_-]+'?", "door: -", "---".join(texts)) for texts in (sent, printed)]
    assert whole[0] == whole[1]


def test_the_first_failure_and_its_exit_code_come_back(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script(FAILS)
    done = on_cluster.run("--pods", "2", "--per-host", "1", script)
    assert done.returncode == 1
    assert "weft: failed: rank 1 on train-1: ValueError: the second one fails" in done.stderr
    assert done.stderr.count("weft: failed") == 1
    assert f"log {Path('weft-runs')}" in done.stderr
    assert on_cluster.cluster.objects("pods") == []


def test_no_line_is_lost_or_doubled_over_broken_connections(on_cluster: ClusterShell) -> None:
    """The log breaks again and again, the watch expires, and the server is busy now and then."""
    cluster = on_cluster.cluster
    cluster.break_logs_every, cluster.busy = 40, 3
    script = on_cluster.shell.script(HELLO + "    time.sleep(0.001)\n")
    process = on_cluster.start("--pods", "2", script, "500")
    cluster.wait_for("some lines", lambda: "line 20 of" in cluster.log(0))
    cluster.expire()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    for rank in range(2):
        mine = [line for line in out.splitlines() if line.startswith(f"[{rank}]")]
        assert mine == [f"[{rank}] line {number} of {rank} on train-{rank} of 2" for number in range(500)]
    logs = [path for method, path, _ in cluster.requests if path.endswith("/log")]
    lists = [path for method, path, _ in cluster.requests if path.endswith("/pods")]
    assert len(logs) > 4  # two without a break
    assert len(lists) >= 4  # list and watch, and both again


def test_a_lost_pod_ends_a_run_of_a_fixed_size(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(WAITS))
    cluster.wait_for("the workers", lambda: "[1] here" in cluster.log(0))
    cluster.kill_pod(1)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert "train-1" in err
    assert "weft: failed" in err
    assert cluster.objects("pods") == []


def test_ctrl_c_ends_the_pods_and_leaves_nothing(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(WAITS))
    cluster.wait_for("the workers", lambda: "[1] here" in cluster.log(0))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "stopped by SIGINT" in err
    cluster.wait_for("no pods", lambda: not cluster.objects("pods"))
    assert cluster.objects("jobs") == cluster.objects("secrets") == []


def test_a_run_whose_client_has_died_ends_and_leaves_nothing(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    on_cluster.set(client_s=30)
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(WAITS))
    cluster.wait_for("the workers", lambda: "[1] here" in cluster.log(0))
    cluster.wait_for("a deadline", lambda: "activeDeadlineSeconds" in cluster.objects("jobs")[0]["spec"])
    process.kill()
    process.communicate()
    cluster.hasten(3600)
    cluster.wait_for("no pods", lambda: not cluster.objects("pods"))
    (condition,) = [
        one for one in cluster.objects("jobs")[0]["status"]["conditions"] if one["type"] == "Failed"
    ]
    assert condition["reason"] == "DeadlineExceeded"
    cluster.hasten(3600)
    for kind in ("jobs", "secrets", "services", "configmaps"):
        cluster.wait_for(f"no {kind}", lambda kind=kind: not cluster.objects(kind))  # type: ignore[misc]


def test_a_run_that_is_left_alone_has_no_deadline(on_cluster: ClusterShell) -> None:
    assert on_cluster.run("--detach", on_cluster.shell.script(WAITS)).returncode == 0
    (job,) = on_cluster.cluster.objects("jobs")
    assert "activeDeadlineSeconds" not in job["spec"]


def test_a_run_that_its_queue_takes_out_begins_again_once_it_is_let_in(on_cluster: ClusterShell) -> None:
    """A run of a fixed size, whose Job allows no failure: Kueue preempts by suspending it."""
    cluster = on_cluster.cluster
    go = on_cluster.shell.folder.parent / "pod" / "go"
    waits = "import os, time\nprint('begins', flush=True)\n"
    waits += f"while not os.path.exists({str(go)!r}):\n    time.sleep(0.05)\n"
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(waits))
    cluster.wait_for("both workers", lambda: cluster.log(0).count("begins") == 2)
    cluster.patch("jobs", "team", "train", {"spec": {"suspend": True}})
    cluster.wait_for("no pods", lambda: cluster.has_none("pods"))
    assert process.stderr is not None
    assert any(line == "weft: the run is suspended\n" for line in process.stderr)
    cluster.patch("jobs", "team", "train", {"spec": {"suspend": False}})
    go.touch()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == ["[0] begins", "[0] begins", "[1] begins", "[1] begins"]
    assert cluster.has_none("jobs")


def test_ctrl_c_while_objects_are_made_leaves_none(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    cluster.silent_kind = "services"  # it is made, and the answer does not come
    process = on_cluster.start(on_cluster.shell.script(WAITS))
    cluster.wait_for("a Service", lambda: bool(cluster.objects("services")))
    cluster.silent_kind = ""
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 143, err
    for kind in ("jobs", "secrets", "services", "configmaps"):
        assert cluster.objects(kind) == []


def test_pods_of_an_earlier_run_of_the_same_name_are_another_runs(on_cluster: ClusterShell) -> None:
    """They may take their time to end, while the next run has begun."""
    cluster = on_cluster.cluster
    stubborn = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('old', flush=True)\ntime.sleep(600)\n"
    )
    assert on_cluster.run("--detach", on_cluster.shell.script(stubborn)).returncode == 0
    cluster.wait_for("the old run", lambda: "old" in cluster.log(0))
    cluster.freeze_pod(0)  # it hears no signal
    assert on_cluster.weft("kubernetes", "delete", "latest").returncode == 0
    assert len(cluster.objects("pods")) == 1
    done = on_cluster.run(on_cluster.shell.script(HELLO))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0] line 0 of 0 on train-0 of 1\n"


def test_pods_that_the_cluster_will_refuse_are_told_at_once(on_cluster: ClusterShell) -> None:
    on_cluster.set(host_network=True)
    process = on_cluster.start(on_cluster.shell.script(HELLO))
    assert process.stderr is not None
    warned, refused = process.stderr.readline(), process.stderr.readline()
    assert (
        warned == 'weft: the cluster warns: would violate PodSecurity "restricted:latest": host namespaces\n'
    )
    # Once, though the cluster judges each change of the Job anew: its lease is renewed meanwhile.
    assert 'weft: no pods yet: FailedCreate: Error creating: pods "train-0-" is forbidden' in refused
    process.kill()


def test_a_log_that_may_not_be_read_is_told_and_the_exit_code_comes_all_the_same(
    on_cluster: ClusterShell,
) -> None:
    on_cluster.cluster.rules[("", "pods/log")] = ()
    done = on_cluster.run("--pods", "2", "--per-host", "1", on_cluster.shell.script(FAILS))
    assert done.returncode == 1
    assert "can be shown: the cluster must read the log of train-0-" in done.stderr
    assert 'cannot get resource "pods/log"' in done.stderr


def test_a_run_ends_although_its_log_cannot_be_read(on_cluster: ClusterShell) -> None:
    """Its node is cut off from the API server, say."""
    on_cluster.cluster.unreachable_kubelets = True
    done = on_cluster.run("--pods", "2", "--per-host", "1", on_cluster.shell.script(FAILS))
    assert done.returncode == 1
    assert (
        "cannot be read, which is not tried again: it has ended: the cluster must read the log of"
        in done.stderr
    )
    assert "no route to host" in done.stderr
    assert on_cluster.cluster.objects("jobs") == []


def test_why_a_pod_waits_is_told(on_cluster: ClusterShell) -> None:
    cluster = on_cluster.cluster
    cluster.unschedulable = {1}
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(HELLO))
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "train-1 waits: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu." in line
    process.kill()


def test_a_name_that_is_taken_is_refused_and_nothing_is_left_half_done(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script(WAITS)
    left = on_cluster.run("--detach", "--name", "one", script)
    assert left.returncode == 0
    assert "weft kubernetes attach" in left.stderr
    before = {kind: len(on_cluster.cluster.objects(kind)) for kind in ("jobs", "secrets", "services")}
    done = on_cluster.run("--name", "one", script)
    assert done.returncode == 2
    assert 'a name that is free in the namespace team, got secrets "one" already exists; use' in done.stderr
    assert before == {kind: len(on_cluster.cluster.objects(kind)) for kind in ("jobs", "secrets", "services")}


def test_an_answer_that_is_lost_makes_no_conflict_of_a_run_with_itself(on_cluster: ClusterShell) -> None:
    """Each object is created, and the connection breaks before the server has said so."""
    on_cluster.cluster.drop_answers = 4
    done = on_cluster.run(on_cluster.shell.script(HELLO))
    assert done.returncode == 0, done.stderr
    posts = [path for method, path, _ in on_cluster.cluster.requests if method == "POST"]
    assert len(posts) == 8  # Secret, ConfigMap, Service and Job, each twice


def test_objects_that_collide_with_somebody_elses_changes_are_sent_again(on_cluster: ClusterShell) -> None:
    """A quota of the namespace counts another run's objects at the same moment, say."""
    on_cluster.cluster.conflicts = 6
    done = on_cluster.run(on_cluster.shell.script(HELLO))
    assert done.returncode == 0, done.stderr
    assert on_cluster.cluster.conflicts == 0


def test_the_objects_of_another_run_are_not_taken_for_ours_after_a_broken_answer(
    on_cluster: ClusterShell,
) -> None:
    script = on_cluster.shell.script(WAITS)
    assert on_cluster.run("--detach", "--name", "one", script).returncode == 0
    on_cluster.cluster.drop_refusals = 1
    done = on_cluster.run("--name", "one", script)
    assert done.returncode == 2
    assert 'a name that is free in the namespace team, got secrets "one" already exists; use' in done.stderr
    assert [len(on_cluster.cluster.objects(kind)) for kind in ("jobs", "secrets", "services")] == [1, 1, 1]


def test_a_quota_that_allows_too_few_pods_is_told(on_cluster: ClusterShell) -> None:
    on_cluster.cluster.quota = 1
    process = on_cluster.start("--pods", "2", on_cluster.shell.script(HELLO))
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "1 pods are missing: FailedCreate: " in line
    assert "exceeded quota: compute" in line
    process.kill()


def test_a_run_that_was_left_alone_is_followed_later(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script(HELLO)
    assert on_cluster.run("--detach", "--pods", "1", script, "3").returncode == 0
    cluster = on_cluster.cluster
    cluster.wait_for("its end", lambda: "line 2 of 0" in cluster.log(0))
    done = on_cluster.weft("kubernetes", "attach", "latest")
    assert done.returncode == 0, done.stderr
    assert [line.split(" on ")[0] for line in done.stdout.splitlines()] == [
        f"[0] line {n} of 0" for n in range(3)
    ]
    assert cluster.objects("jobs") == []


def test_a_run_that_was_left_alone_goes_on_when_its_follower_leaves(on_cluster: ClusterShell) -> None:
    script = on_cluster.shell.script("import time\nprint('begins', flush=True)\ntime.sleep(600)\n")
    assert on_cluster.run("--detach", script).returncode == 0
    follower = on_cluster.shell.start("kubernetes", "attach", "latest", **on_cluster.env)
    assert follower.stdout is not None
    assert follower.stdout.readline() == "[0] begins\n"
    follower.send_signal(signal.SIGINT)
    _, told = follower.communicate(timeout=240)
    assert follower.returncode == 130
    assert "the run goes on; end it: weft kubernetes delete" in told
    assert "deletionTimestamp" not in on_cluster.cluster.pod(0)["metadata"]
    assert on_cluster.weft("kubernetes", "delete", "latest").returncode == 0
    on_cluster.cluster.wait_for("no pods", lambda: not on_cluster.cluster.objects("pods"))


def test_a_run_is_deleted_by_its_directory(on_cluster: ClusterShell) -> None:
    assert on_cluster.run("--detach", on_cluster.shell.script(WAITS)).returncode == 0
    assert on_cluster.weft("kubernetes", "delete", "latest").returncode == 0
    on_cluster.cluster.wait_for("no pods", lambda: not on_cluster.cluster.objects("pods"))


def test_what_is_not_allowed_is_told_by_the_check_and_by_the_run(on_cluster: ClusterShell) -> None:
    assert on_cluster.weft("check", "--engine", "kubernetes").returncode == 0
    on_cluster.cluster.forbidden = {"services"}
    checked = on_cluster.weft("kubernetes", "check", "--json")
    assert checked.returncode == 2
    denied = [row["permission"] for row in json.loads(checked.stdout) if not row["allowed"]]
    assert denied == ["create services", "patch services", "delete services"]
    done = on_cluster.run(on_cluster.shell.script(HELLO))
    assert done.returncode == 2
    assert "create Service train, got 403" in done.stderr
    assert "weft kubernetes role" in done.stderr
    assert on_cluster.cluster.objects("secrets") == []


def test_a_cluster_tells_beforehand_what_it_would_refuse(on_cluster: ClusterShell) -> None:
    """What rights do not tell: kinds that are not installed, and rules of the cluster; nothing is made."""
    good = on_cluster.weft("check", "--engine", "kubernetes")
    assert good.returncode == 0, good.stderr
    assert re.search(r"a Job is taken +yes", good.stdout)
    settings = on_cluster.shell.folder / "settings.yaml"
    settings.write_text("host_network: true\nlabels: {team: vision}\n")
    warned = on_cluster.weft("kubernetes", "check", "--kubernetes", str(settings))
    assert warned.returncode == 0
    assert "the cluster warns: would violate PodSecurity" in warned.stderr
    on_cluster.cluster.rules |= dict(rules_for("trainjob"))
    refused = on_cluster.weft("kubernetes", "check", "--as", "trainjob")
    assert refused.returncode == 2
    assert re.search(r"a TrainJob is taken +NO", refused.stdout)
    assert "must take a TrainJob, got 404" in refused.stderr
    assert "is the kind installed in this cluster" in refused.stderr
    for kind in ("secrets", "services", "jobs"):
        assert on_cluster.cluster.objects(kind) == []


@pytest.mark.parametrize("command", [("role", "--as", "jobset"), ("runtime",)])
def test_what_a_cluster_needs_once_is_printed(on_cluster: ClusterShell, command: tuple[str, ...]) -> None:
    text = on_cluster.weft("kubernetes", *command).stdout
    data = on_cluster.weft("kubernetes", *command, "--json").stdout
    assert yaml.safe_load(text) == json.loads(data)


def test_torchruns_variables_are_enough(on_cluster: ClusterShell) -> None:
    """As in a TrainJob or a PyTorchJob of somebody else, whose command is `weft run`."""
    shell, script = on_cluster.shell, on_cluster.shell.script(HELLO)
    common = {
        "PET_NNODES": "2",
        "PET_MASTER_ADDR": "127.0.78.1",
        "PET_NPROC_PER_NODE": "2",
        "WEFT_POD_PORT": "29477",
    }
    pods = [
        shell.start(
            *("run", "--skip-checks", "--run-dir", f"run-{index}", script),
            **common,
            PET_NODE_RANK=str(index),
            WEFT_POD_BIND=f"127.0.78.{index + 1}",
        )
        for index in range(2)
    ]
    out, err = pods[0].communicate(timeout=240)
    assert pods[0].returncode == 0, err
    hosts = sorted(line.split(" on ")[1] for line in out.splitlines())
    assert hosts == ["pod-0 of 4"] * 2 + ["pod-1 of 4"] * 2
    assert pods[1].wait(60) == 0
