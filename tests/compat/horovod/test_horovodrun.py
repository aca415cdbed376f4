"""`horovodrun` and `horovod.run`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.compat.horovod.conftest import NAMES, HorovodRuns

from weft.compat.horovod.launcher import beside
from weft.compat.horovod.launcher.arguments import HorovodArguments, parse_args
from weft.compat.horovod.launcher.command import main, translate
from weft.compat.horovod.launcher.flags import parse
from weft.compat.horovod.launcher.places import (
    get_env_rank_and_size,
    get_host_assignments,
    parse_host_files,
    parse_hosts,
    parse_hosts_and_slots,
)
from weft.compat.horovod.launcher.variables import set_env_from_args
from weft.compat.horovod.settings import decided_elsewhere, settings_from
from weft.errors import UsageError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("-np 2 python x.py --lr 1", "run -n 2 x.py --lr 1"),
        ("-np 8 -H a:4,b:4 python x.py", "run -H a:4,b:4 -n 8 --allow-uneven x.py"),
        (
            "--num-proc 2 -hostfile h --verbose python x.py",
            "run --hostfile h -n 2 --allow-uneven -v x.py",
        ),
        (
            "-np 4 --min-np 2 --max-np 8 --host-discovery-script ./d.sh --slots-per-host 4 ./x",
            "run --elastic 2:8 --discover ./d.sh --engine ssh --per-host 4 --bar-hosts forever -- ./x",
        ),
        (
            "-np 2 --min-np 1 --reset-limit 3 ./x",
            "run --elastic 1:2 --bar-hosts forever --env HOROVOD_ELASTIC_RESET_LIMIT=3 -- ./x",
        ),
        (
            "-np 2 --elastic-timeout 9 --max-np 3 ./x",
            "run --elastic 2:3 --bar-hosts forever --env HOROVOD_ELASTIC_TIMEOUT=9 -- ./x",
        ),
        (
            "-np 2 --max-np 3 --blacklist-cooldown-range 10 100 ./x",
            "run --elastic 2:3 --bar-hosts 10:100 -- ./x",
        ),
        ("-np 2 --network-interfaces eth0,eth1 --tcp ./x", "run -n 2 --interface eth0 --tcp -- ./x"),
        ("-np 2 --network-interface eth1 --network-interface eth0 ./x", "run -n 2 --interface eth1 -- ./x"),
        ("-np 2 --mpi-threads-disable python x.py", "run -n 2 x.py"),
        ("-np 2 --no-mpi-threads-disable --no-torus-allreduce --no-autotune python x.py", "run -n 2 x.py"),
        ("-np 2 -prefix-timestamp --log-without-timestamp ./x", "run -n 2 -- ./x"),
        ("-np 2 --log-hide-timestamp --no-log-hide-timestamp --disable-cache ./x", "run -n 2 -- ./x"),
        ("-np 2 --autotune --autotune-log-file a.csv --num-nccl-streams 2 ./x", "run -n 2 -- ./x"),
        ("-np 2 --mpi --mpi-args='-x A' ./x", "run -n 2 --engine mpi --mpiarg=-x --mpiarg=A -- ./x"),
        ("-np 1 python -u -m package.train --lr 1", "run -n 1 -m package.train --lr 1"),
        ("-np 1 -- python -c pass", "run -n 1 -- python -c pass"),
        ("-np 2 --gloo --output-filename out ./x", "run -n 2 --run-dir out -- ./x"),
        (
            "-np 1 --fusion-threshold-mb 32 --cycle-time-ms 3.5 --cache-capacity 8 --timeline-filename t.json ./x",
            "run -n 1 --env HOROVOD_FUSION_THRESHOLD=33554432 --env HOROVOD_CYCLE_TIME=3.5 "
            "--env HOROVOD_CACHE_CAPACITY=8 --env HOROVOD_TIMELINE=t.json -- ./x",
        ),
        (
            "-np 1 --no-stall-check --timeline-mark-cycles --log-level INFO ./x",
            "run -n 1 --env HOROVOD_LOG_LEVEL=INFO --env HOROVOD_TIMELINE_MARK_CYCLES=1 "
            "--env HOROVOD_STALL_CHECK_DISABLE=1 -- ./x",
        ),
    ],
)
def test_flags_become_those_of_weft_run(given: str, expected: str) -> None:
    import shlex

    assert list(translate(shlex.split(given)).args) == expected.split()


@pytest.mark.parametrize(
    "given",
    [
        "python x.py",
        "-np 2",
        "-np 0 ./x",
        "-np two ./x",
        "-np 2 --jsrun ./x",
        "-np 2 -p 2222 ./x",
        "-np 2 -i key ./x",
        "-np 2 -H a -hostfile b ./x",
        "-np 2 --gloo --mpi ./x",
        "-np 2 --reset-limit 3 ./x",
        "-np 2 --min-np 3 --max-np 2 ./x",
        "-np 2 --no-such-flag ./x",
        "-np 2 --config-file nowhere.yaml ./x",
    ],
)
def test_what_cannot_be_done_is_refused(given: str) -> None:
    with pytest.raises(UsageError) as caught:
        translate(given.split())
    assert "Traceback" not in str(caught.value)
    assert main(given.split(), lambda args: pytest.fail("it must not be carried out")) == 2


def test_what_weft_decides_itself_is_told() -> None:
    made = translate(["-np", "2", "--autotune", "--hierarchical-allreduce", "--num-nccl-streams", "2", "./x"])
    assert made.args == ("run", "-n", "2", "--", "./x")
    assert len(made.notes) == 3
    assert all("has no effect" in note for note in made.notes)


def test_a_configuration_file_sets_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "verbose: true\ntensor-fusion: {threshold-mb: 16, cycle-time-ms: 2}\nlogging: {level: debug}\n"
    )
    made = translate(["-np", "1", "--config-file", str(path), "--cycle-time-ms", "7", "./x"])
    text = " ".join(made.args)
    assert "-v " in text
    assert "HOROVOD_FUSION_THRESHOLD=16777216" in text
    assert "HOROVOD_CYCLE_TIME=7" in text
    path.write_text(
        "controller: gloo\nparams: {fusion_threshold_mb: 8, hierarchical_allreduce: true}\n"
        "autotune: {enabled: true, log_file: a.csv, warmup_samples: 3}\n"
        "timeline: {filename: t.json, mark_cycles: true}\n"
        "stall_check: {enabled: false, warning_time_seconds: 9}\n"
        "library_options: {mpi_threads_disable: true, num_nccl_streams: 2}\n"
        "logging: {level: INFO, hide_timestamp: true}\n"
    )
    found = parse(["-np", "1", "--config-file", str(path), "--fusion-threshold-mb", "4"])
    assert (found.use_gloo, found.no_stall_check, found.log_with_timestamp) == (True, True, False)
    assert (found.fusion_threshold_mb, found.autotune_warmup_samples) == (4, 3)
    told = set_env_from_args({"HOROVOD_GLOO_TIMEOUT_SECONDS": "30"}, found)
    assert told == {
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "30",
        "HOROVOD_FUSION_THRESHOLD": str(4 << 20),
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "9",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "a.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "3",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
    }
    path.write_text("controller: smoke\n")
    with pytest.raises(UsageError, match="controller"):
        parse(["-np", "1", "--config-file", str(path)])
    path.write_text("tensor-fusion: {thresh: 16}\n")
    with pytest.raises(UsageError, match=r"tensor-fusion\.thresh"):
        translate(["-np", "1", "--config-file", str(path), "./x"])


def test_arguments_are_an_object_with_horovods_names(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "horovodrun -np 2 --min-np 1 --cooldown-range 1 2 --network-interfaces a,b python x.py"
    monkeypatch.setattr("sys.argv", line.split())
    found = parse_args()
    assert (found.num_proc, found.min_num_proc, found.cooldown_range) == (2, 1, [1, 2])
    assert found.command == ["python", "x.py"]
    monkeypatch.setattr("sys.argv", ["horovodrun", "-np", "2", "--cycle-time-ms", "-1"])
    with pytest.raises(ValueError, match="cycle-time-ms"):
        parse_args()
    made = HorovodArguments()
    assert (made.num_proc, made.hosts, made.autotune_log_file, made.run_func) == (1, None, None, None)


def test_ranks_are_dealt_to_hosts_in_their_order(tmp_path: Path) -> None:
    dealt = get_host_assignments(parse_hosts("a:2,b:1"), 3)
    assert [slot.to_response_string() for slot in dealt] == ["0,3,0,2,0,2", "1,3,1,2,0,1", "2,3,0,1,1,2"]
    assert [slot.hostname for slot in get_host_assignments(parse_hosts("a:2,b:4"), 1, 3)] == ["a", "a", "b"]
    with pytest.raises(ValueError, match="4"):
        get_host_assignments(parse_hosts("a:2,b:1"), 4)
    assert parse_hosts_and_slots("a:2, b-1.c:1") == (["a", "b-1.c"], {"a": 2, "b-1.c": 1})
    with pytest.raises(ValueError, match="worker-0:2"):
        parse_hosts_and_slots("a")
    hostfile = tmp_path / "hosts"
    hostfile.write_text("a slots=2\n\nb slots=1\n")
    assert parse_host_files(str(hostfile)) == "a:2,b:1"


def test_the_place_is_read_from_the_launchers_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD", "OMPI_COMM_WORLD", "PMI"):
        monkeypatch.delenv(f"{name}_RANK", raising=False)
        monkeypatch.delenv(f"{name}_SIZE", raising=False)
    assert get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv("PMI_RANK", "3")
    with pytest.raises(RuntimeError, match="PMI_SIZE"):
        get_env_rank_and_size()
    monkeypatch.setenv("PMI_SIZE", "4")
    assert get_env_rank_and_size() == (3, 4)


def test_variables_are_read_once_and_checked() -> None:
    found = settings_from(
        {
            "HOROVOD_FUSION_THRESHOLD": "1024",
            "HOROVOD_CYCLE_TIME": "5",
            "HOROVOD_STALL_CHECK_DISABLE": "1",
            "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
            "HOROVOD_GLOO_IFACE": "eth1",
        }
    )
    assert (found.fusion_bytes, found.cycle_s, found.stall_warn_s) == (1024, 0.005, 0.0)
    assert found.dynamic_sets
    assert found.interface == "eth1"
    for name, value in {"CYCLE_TIME": "soon", "CACHE_CAPACITY": "-1", "LOG_LEVEL": "loud"}.items():
        with pytest.raises(UsageError):
            settings_from({f"HOROVOD_{name}": value})
    assert (
        len(decided_elsewhere({"HOROVOD_AUTOTUNE": "1", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_RANK": "0"}))
        == 2
    )


def test_two_horovods_beside_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert beside.conflict() is None or "horovod" in str(beside.conflict())
    monkeypatch.setattr("importlib.metadata.version", lambda name: "1.0")
    monkeypatch.syspath_prepend(NAMES)
    assert "pip uninstall horovod" in str(beside.conflict())


SCRIPT = """
import os, sys
assert os.environ["HOROVOD_SIZE"] == "2"
rank = int(os.environ["HOROVOD_RANK"])
import horovod.torch as hvd, torch
hvd.init()
assert hvd.rank() == rank
print("sum", int(hvd.allreduce(torch.tensor(rank + 1), op=hvd.Sum)), sys.argv[1], flush=True)
"""

FUNCTION = """
import horovod

def work(base, add=0):
    import horovod.torch as hvd
    hvd.init()
    return base + add + hvd.rank(), hvd.size()

if __name__ == "__main__":
    print("results", horovod.run(work, args=(10,), kwargs={"add": 5}, num_proc=2), flush=True)
    try:
        horovod.run(lambda: 1 / 0, num_proc=1)
    except RuntimeError as error:
        begins = str(error).startswith("Horovod detected that one or more processes exited")
        print(type(error).__name__, begins, "ZeroDivisionError" in str(error), flush=True)
    for wrong in ({"hosts": "a:1", "hostfile": "b"}, {"use_gloo": True, "use_mpi": True}):
        try:
            horovod.run(work, args=(1,), **wrong)
        except ValueError as error:
            print("refused arguments", flush=True)
    from horovod.runner.common.util.env import get_env_rank_and_size
    print("elastic", horovod.run(get_env_rank_and_size, num_proc=2, min_num_proc=2, max_num_proc=2), flush=True)
    print("elastic", horovod.run(work, args=(1,), num_proc=2, min_num_proc=1), flush=True)
    from horovod.runner import _HorovodArgs
    from horovod.runner.launch import _run
    given = _HorovodArgs()
    given.num_proc, given.run_func = 2, get_env_rank_and_size
    print("by arguments", _run(given), flush=True)
    given.run_func, given.command = None, ["false"]
    try:
        _run(given)
    except RuntimeError as error:
        print("command", str(error).startswith("Horovod detected"), flush=True)
    for name in ("spark", "ray", "mxnet"):
        try:
            __import__(f"horovod.{name}")
        except ImportError as error:
            print("refused", error, flush=True)
"""


def test_the_command_and_the_function_run_workers(horovod_runs: HorovodRuns) -> None:
    horovod_runs.shell.script(SCRIPT, "train.py")
    done = horovod_runs.python("-m", "horovod.runner.launch", "-np", "2", "python", "train.py", "word")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 3 word") == 2
    horovod_runs.shell.script(FUNCTION, "function.py")
    done = horovod_runs.python("function.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "results [(15, 2), (16, 2)]" in done.stdout
    assert "HorovodRunError True True" in done.stdout
    assert done.stdout.count("refused arguments") == 2
    assert "elastic [(0, 2), (1, 2)]" in done.stdout
    assert "elastic [(1, 2), (2, 2)]" in done.stdout
    assert "by arguments [(0, 2), (1, 2)]" in done.stdout
    assert "command True" in done.stdout
    assert done.stdout.count("refused horovod.") == 3
    assert not list(horovod_runs.folder.glob(".weft-horovod*"))
