"""Plans carried out: the same training in every way, and runs with a plan."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from testing.forking.server import TRAINERS, ForkServer
from testing.shell import Shell
from tests.parallel.test_prediction import GIGABIT, cluster, step

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.underlying import underlying_launch
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.environment import PLAN_VARIABLE, common_variables
from weft.parallel.applying.apply import apply
from weft.parallel.applying.comparing import COMPARED_STEPS, SKIPPED_STEPS, StepTimer, comparison
from weft.parallel.applying.from_launcher import plan_from_env
from weft.parallel.applying.launching import planned_launch
from weft.parallel.planning import plan_file
from weft.parallel.planning.choice import choose
from weft.parallel.planning.plan_file import ParallelPlan, make_plan
from weft.parallel.prediction.way import Way
from weft.topology.dimensions import Dimensions
from weft.topology.hostlist import parse_hosts

WORKERS = Path(__file__).parent / "workers"


@pytest.fixture
def forked_shell(shell: Shell, forks: ForkServer) -> Shell:
    """A folder in which `weft` and its workers are forks, which do not load our backend by importing torch."""
    shell.command = forks.load(*TRAINERS).weft
    return shell


def plan_for(hosts: int = 2, workers: int = 1) -> ParallelPlan:
    facts = cluster(hosts, workers)
    return make_plan(step(), facts, choose(step(), facts, kinds=("ddp",)), "rounding")


@pytest.mark.parametrize(
    ("workers", "arguments"), [(2, ()), pytest.param(4, ("two-hosts",), marks=pytest.mark.long)]
)
def test_every_way_trains_as_one_process_does(
    forked_shell: Shell, workers: int, arguments: tuple[str, ...]
) -> None:
    done = forked_shell.weft("run", "-n", str(workers), str(WORKERS / "kinds.py"), *arguments, timeout=250)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("same:") == 14


@pytest.mark.long
def test_models_as_users_bring_them_train_as_one_process_does(forked_shell: Shell) -> None:
    done = forked_shell.weft("run", "-n", "2", str(WORKERS / "odd_models.py"), timeout=250)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("same:") == 12
    assert done.stdout.count("refused:") == 4


@pytest.mark.long
def test_every_way_goes_on_from_a_checkpoint(forked_shell: Shell) -> None:
    worker = str(WORKERS / "checkpoints.py")
    done = forked_shell.weft("run", "-n", "3", worker, str(forked_shell.folder / "kept"), timeout=250)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("same:") == 12


def test_a_plan_travels_to_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("train.py").write_text("")
    plan = replace(plan_for(), way=Way(wire="bf16", bucket_bytes=5 << 20))
    plan_file.write_plan(plan, Path("plan.json"))
    config = LaunchConfig(command=Command("script", "train.py"), hosts=parse_hosts("a:1,b:1"))
    planned, told = planned_launch(config, "plan.json")
    assert planned.wire == "bf16"
    assert "predicted to take" in told
    dimensions_of_two = Dimensions(accelerators=1, hosts_per_rack=2, racks=1, aisles=1, per_host=(1, 1))
    variables = dict(common_variables(planned, {}, leader="a", port=1, dimensions=dimensions_of_two))
    assert variables["WEFT_WIRE"] == "bf16"
    assert plan_from_env(variables) == plan
    assert plan_from_env({}) is None
    assert len(variables[PLAN_VARIABLE]) < len(plan.to_text())


def test_an_elastic_run_keeps_whole_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    facts = cluster(1, 2)
    sharded = make_plan(step(), facts, choose(step(), facts, kinds=("fsdp-keep",)), "rounding")
    plan_file.write_plan(sharded, Path("plan.json"))
    config = LaunchConfig(command=Command("script", "train.py"))
    launch = underlying_launch(config, ElasticConfig(least=1, most=2))
    planned, told = planned_launch(launch, "plan.json", elastic=True)
    assert "ddp is planned for in place of fsdp-keep" in told
    assert planned.parallel_plan is not None
    assert json.loads(planned.parallel_plan)["way"]["kind"] == "ddp"


def test_a_plan_for_other_hosts_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    plan_file.write_plan(plan_for(4, 2), Path("plan.json"))
    for hosts in ("a,b", "a:2,b:1"):
        config = LaunchConfig(command=Command("script", "train.py"), hosts=parse_hosts(hosts))
        with pytest.raises(UsageError, match=r"made for the hosts of the run|equally many workers"):
            planned_launch(config, "plan.json")
    with pytest.raises(UsageError, match="check the path"):
        planned_launch(LaunchConfig(command=Command("script", "train.py")), "nowhere.json")


def test_other_links_are_planned_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.parallel.test_recording import links

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    plan_file.write_plan(plan_for(), Path("plan.json"))
    slower = links(("a", "b", 100.0), ("b", "a", 100.0))
    monkeypatch.setattr("weft.parallel.applying.launching.kept_links", lambda: slower)
    config = LaunchConfig(command=Command("script", "train.py"), hosts=parse_hosts("a:1,b:1"))
    planned, told = planned_launch(config, "plan.json")
    assert told.startswith("links carry 0.1 Gbit/s where the plan has 1: planned anew")
    assert planned.parallel_plan is not None
    assert json.loads(planned.parallel_plan)["cluster"]["card_bps"] == GIGABIT / 10


def test_a_run_says_where_prediction_and_measurement_part() -> None:
    plan = plan_for()
    near = comparison(plan, plan.predicted.step_s * 1.05)
    assert "(+5%)" in near
    assert "plan anew" not in near
    assert "measure the links again" in comparison(plan, plan.predicted.step_s * 2)
    assert "computing takes another time" in comparison(plan, plan.predicted.step_s * 0.5)


def test_a_rank_that_is_given_late_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WEFT_RUN_DIR", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    timers = [StepTimer(plan_for()) for _ in range(2)]
    for rank, timer in enumerate(timers):
        monkeypatch.setenv("RANK", str(rank))
        for _ in range(SKIPPED_STEPS + COMPARED_STEPS + 1):
            timer.stepped()
    assert capsys.readouterr().err.count("a step takes") == 1


DDP = """
import torch, weft
weft.init()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(16):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
print("buckets of", model.bucket_bytes_cap)
"""


def test_a_plain_script_runs_by_a_plan(shell: Shell) -> None:
    if "weft_parallel" not in {entry.name for entry in entry_points(group="torch.backends")}:
        pytest.skip("install weft again: it has another entry point than when it was installed")
    (shell.folder / "train.py").write_text(DDP)
    plan = replace(plan_for(1, 2), way=Way(bucket_bytes=5 << 20))
    plan_file.write_plan(plan, shell.folder / "plan.json")
    done = shell.weft("run", "-n", "2", "--plan", "plan.json", "--run-dir", "run", "train.py", timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"buckets of {5 << 20}") == 2
    assert "a step takes" in done.stdout + done.stderr
    assert plan_file.read_plan(shell.folder / "run" / "parallel.json") == plan
    assert json.loads((shell.folder / "run" / "parallel-measured.json").read_text())["measured_s"] > 0


@pytest.mark.long
def test_a_plain_script_is_told_that_a_plan_needs_code(shell: Shell) -> None:
    if "weft_parallel" not in {entry.name for entry in entry_points(group="torch.backends")}:
        pytest.skip("install weft again: it has another entry point than when it was installed")
    (shell.folder / "train.py").write_text(DDP)
    plan = replace(plan_for(1, 2), way=Way(kind="fsdp"))
    plan_file.write_plan(plan, shell.folder / "plan.json")
    done = shell.weft("run", "-n", "2", "--plan", "plan.json", "train.py", timeout=200)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert said.count("the plan of this run is fsdp, which needs weft.parallel.apply") == 1


SHARDED = """
import torch, weft, weft.parallel
weft.init()
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
model, optimizer = weft.parallel.apply(net, torch.optim.SGD(net.parameters(), 0.1))
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
print("goes on as", model.weft_way.kind)
"""


@pytest.mark.long
def test_a_run_that_lost_hosts_keeps_the_kind_of_its_plan(shell: Shell) -> None:
    (shell.folder / "train.py").write_text(SHARDED)
    facts = cluster(4, 2)
    plan = make_plan(step(), facts, choose(step(), facts, kinds=("fsdp-keep",)), "rounding")
    script = str(shell.folder / "train.py")
    config = LaunchConfig(command=Command("script", script), parallel_plan=plan.to_text())
    four = Dimensions(accelerators=2, hosts_per_rack=4, racks=1, aisles=1, per_host=(2, 2, 2, 2))
    variables = dict(common_variables(config, {}, leader="a", port=1, dimensions=four))
    packed = f"{PLAN_VARIABLE}={variables[PLAN_VARIABLE]}"
    done = shell.weft("run", "-n", "2", "--env", packed, "train.py", timeout=200)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.count("goes on as fsdp-keep") == 2


def test_a_plan_needs_a_world() -> None:
    net = torch.nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"call weft.init\(\) first"):
        apply(net, torch.optim.SGD(net.parameters(), 0.1), Way())
