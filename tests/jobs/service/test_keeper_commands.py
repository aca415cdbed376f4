from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.jobs.scheduler.model import Resources
from weft.jobs.service.actions import merged_spec
from weft.jobs.service.attempts.command import AttemptPlan, KeeperCommand, inherited, keeper_command
from weft.jobs.service.attempts.records import held_meanwhile
from weft.jobs.service.attempts.shares import share_out
from weft.jobs.service.index import needs_of
from weft.jobs.service.usage import decayed
from weft.jobs.spec.read import SpecError, read_spec, resolve
from weft.jobs.store.attempts import AttemptShare
from weft.topology.host import Accelerator, Core, Host


def command(text: str, **more: Any) -> KeeperCommand:
    plan = AttemptPlan(
        job_id=7,
        number=2,
        name="digits",
        resolved=resolve(read_spec(text)),
        shares=(AttemptShare("a", 2, (0, 1), (3,)), AttemptShare("b", 1, (5,))),
        folder=Path("/data/jobs/7/attempt-2"),
        checkpoints=Path("/data/jobs/7/checkpoints"),
        token="t0",
        **more,
    )
    return keeper_command(plan, python="py", environ={"PATH": "/bin", "DB_PASSWORD": "x"}, grace_s=60)


def test_a_command_runs_the_script_on_its_parts_of_hosts() -> None:
    found = command("run: train.py --lr 1\nenv: {A: 1}\nresources: {memory: 1GiB, lms: 2GiB}")
    assert found.argv[:5] == ("py", "-P", "-m", "weft", "run")
    assert found.argv[-3:] == ("train.py", "--lr", "1")
    text = " ".join(found.argv)
    assert "--run-dir /data/jobs/7/attempt-2/run --hostfile /data/jobs/7/attempt-2/hosts" in text
    assert "--memory 1073741824" in text
    assert "--lms 2147483648" in text
    assert "--elastic" not in text
    assert found.hostfile == "a slots=2 cpus=0,1 gpus=3\nb slots=1 cpus=5 gpus=none\n"
    assert found.cwd == Path("/data/jobs/7/attempt-2/code")


def test_values_are_in_the_environment_and_not_on_the_command_line() -> None:
    found = command("run: -m package.train", variables={"HF_TOKEN": "secret"})
    assert found.argv[-2:] == ("-m", "package.train")
    assert "secret" not in " ".join(found.argv)
    assert found.env["HF_TOKEN"] == "secret"
    assert found.env["_WEFT_KEEPER"] == "t0"
    assert found.env["WEFT_JOB_ID"] == "7"
    named = {found.argv[index + 1] for index, word in enumerate(found.argv) if word == "--env"}
    assert named >= {"HF_TOKEN", "WEFT_JOB_ID", "WEFT_ATTEMPT", "WEFT_OUTPUTS", "WEFT_CHECKPOINT"}
    assert "DB_PASSWORD" not in found.env


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("workers: 1:3", "--elastic 1:3 --checkpoint /data/jobs/7/checkpoints"),
        ("engine: mpi\nworkers: 3", "--engine mpi"),
    ],
)
def test_sizes_and_engines(text: str, part: str) -> None:
    assert part in " ".join(command(f"run: ./program\n{text}").argv)


def test_kubernetes_places_its_own_workers() -> None:
    found = command(
        "run: a.py\nengine: kubernetes\nworkers: 2:8\nresources: {cpus: 2, gpus: 1, memory: 1GiB}\n"
        "kubernetes: {image: x, pods: 4, code: snapshot}"
    )
    text = " ".join(found.argv)
    assert "--engine kubernetes --kubernetes /data/jobs/7/attempt-2/kubernetes.json --elastic 2:8" in text
    assert "--hostfile" not in text
    assert found.pods is not None
    assert found.pods.name == "weft-7-2"
    # Two workers in each of four pods.
    assert found.pods.resources == {"cpu": "4000m", "memory": 2 << 30, "nvidia.com/gpu": 2}
    assert needs_of(resolve(read_spec("run: a\nengine: kubernetes\nkubernetes: {image: x}"))) == Resources()


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("engine: kubernetes", "kubernetes.image"),
        ("kubernetes: {image: x}", "kubernetes"),
        (
            "engine: kubernetes\nkubernetes: {image: x, kubeconfig: /root/.kube/config}",
            "kubernetes.kubeconfig",
        ),
    ],
)
def test_what_a_job_may_not_ask_of_kubernetes_is_told(text: str, field: str) -> None:
    with pytest.raises(SpecError) as refused:
        resolve(read_spec(f"run: a.py\n{text}"))
    assert [problem.path for problem in refused.value.problems] == [field]


def test_slurm_places_its_own_workers() -> None:
    found = command(
        "run: a.py\nengine: slurm\nworkers: 4\nresources: {cpus: 2, gpus: 1}\nqueue: {max_time: 90m}"
    )
    assert found.argv[0] == "salloc"
    for option in ("--ntasks=4", "--cpus-per-task=2", "--gpus-per-task=1", "--time=90", "--engine"):
        assert option in found.argv


def test_jobs_inherit_nothing_of_the_services_own() -> None:
    given = {"PATH": "/bin", "WEFT_X": "1", "AWS_KEY": "1", "API_TOKEN": "1", "SSH_AUTH_SOCK": "s"}
    assert inherited(given) == {"PATH": "/bin", "SSH_AUTH_SOCK": "s"}


CORES = tuple(Core(socket=n // 2, index=n % 2, numa=n // 2, cpus=(n, n + 4)) for n in range(4))
HOST = Host(
    name="a",
    cores=CORES,
    accelerators=tuple(Accelerator(index=n, model="x", memory_bytes=1, socket=n) for n in range(2)),
)


def shares(workers: int, each: Resources, *held: tuple[AttemptShare, Resources], **more: Any) -> AttemptShare:
    (found,) = share_out((("a", workers),), each, {"a": HOST}, {"a": held}, **more)
    return found


def test_jobs_get_devices_of_their_own_near_each_other() -> None:
    each = Resources(2, 0, 1)
    first = shares(1, each)
    assert (first.cpus, first.gpus) == ((0, 4), (0,))  # both threads of a core, on the accelerator's socket
    second = shares(1, each, (first, each))
    assert (second.cpus, second.gpus) == ((2, 6), (1,))


def test_parts_of_devices_are_packed() -> None:
    half = Resources(0.5, 0, 0.5)
    first = shares(1, half)
    second = shares(1, half, (first, half))
    assert (first.gpus, second.gpus, first.cpus, second.cpus) == ((0,), (0,), (0,), (0,))
    whole = shares(1, Resources(1, 0, 1), (first, half), (second, half))
    assert (whole.gpus, whole.cpus) == ((1,), (2,))


def test_a_job_that_changes_its_size_keeps_its_first_devices() -> None:
    each = Resources(2, 0, 0)
    three = shares(3, each)
    one = shares(1, each, before=(three,))
    assert one.cpus == three.cpus[:2]
    grown = shares(2, each, before=(one,))
    assert grown.cpus[:2] == one.cpus
    assert held_meanwhile((three,), (one,)) == (three,)
    assert held_meanwhile((one,), (grown, AttemptShare("b", 1))) == (grown, AttemptShare("b", 1))


def test_use_decays_by_half_in_a_half_life() -> None:
    assert decayed(8.0, 20.0, 10.0) == pytest.approx(2.0)
    assert decayed(8.0, -5.0, 10.0) == 8.0  # a clock that was set back


def test_changes_are_merged_field_by_field() -> None:
    spec = read_spec("run: a.py\nqueue: {priority: 30, max_time: 1h}\nenv: {A: a}")
    merged = merged_spec(spec, {"queue": {"max_time": None}, "env": {"B": 2}})
    assert (merged.queue.priority, merged.queue.max_time, merged.env) == (30, None, {"A": "a", "B": 2})
    with pytest.raises(SpecError, match="priority"):
        merged_spec(spec, {"queue": {"priority": 1000}})
