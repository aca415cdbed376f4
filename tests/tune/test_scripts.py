"""Studies of scripts: processes that report, pause, go on from checkpoints, die, and are found again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from weft.tune.runners.command import merged_config, trial_words
from weft.tune.study.config import StudyError, convert_config
from weft.tune.study.journal import FILE, read_events
from weft.tune.study.requests import post
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.study import Study

# Reads its step from its checkpoint, and notes every step that it trains. It waits for a file where one is named.
TRAIN = """
import json, os, sys, time
from pathlib import Path
x, until, wait = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
home = Path(os.environ["WEFT_CHECKPOINT"])
saved = home / "step"
step = int(saved.read_text()) if saved.exists() else 0
while step < until:
    step += 1
    with (home / "trained").open("a") as file:
        file.write(f"{step}\\n")
    draft = home / "draft"
    draft.write_text(str(step))
    draft.replace(saved)
    print(json.dumps({"step": step, "loss": x * x + 1 / step}), flush=True)
    if wait and step == 2:
        print("waits", flush=True)
        while not Path(wait[0]).exists():
            time.sleep(0.02)
"""


def config(folder: Path, run: str, **more: Any) -> Any:
    (folder / "train.py").write_text(TRAIN)
    return convert_config(
        {
            "space": {"x": "float:-3:3"},
            "minimize": "loss",
            "run": run,
            "search": "random",
            "budget": {"trials": 9},
            "parallel": 2,
            **more,
        }
    )


def trained(folder: Path, number: int) -> list[str]:
    return (folder / "trials" / str(number) / "checkpoints" / "trained").read_text().split()


def test_scripts_told_their_limit_are_promoted_from_checkpoints(tmp_path: Path) -> None:
    settings = config(
        tmp_path,
        f"{tmp_path}/train.py {{x}} {{epochs}}",
        schedule="asha",
        resource={"name": "epochs", "min": 1, "max": 9},
    )
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert study.state.state == "completed"
        for trial in study.trials:  # no step was trained twice, though most were paused
            assert trained(tmp_path / "study", trial.number) == [str(s + 1) for s in range(trial.step)]
        assert {trial.step for trial in study.trials} == {1, 3, 9}
        assert study.best.state == "completed"


def test_scripts_that_are_told_nothing_are_asked_to_end(tmp_path: Path) -> None:
    """A script that waits after step 2 is paused there when the first rung is at 2."""
    settings = config(
        tmp_path,
        f"{tmp_path}/train.py {{x}} 9 {tmp_path}/never",
        schedule="asha",
        resource={"name": "epochs", "min": 2, "max": 6},
        budget={"trials": 2},
        parallel=1,
    )
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert sorted(trial.state for trial in study.trials) == [
            "completed",
            "paused",
        ]  # the best goes on at last
        assert sorted(trial.step for trial in study.trials) == [2, 9]
        assert sorted(trial.starts for trial in study.trials) == [1, 2]


def test_weights_are_copied_in_a_population(tmp_path: Path) -> None:
    settings = config(
        tmp_path,
        f"{tmp_path}/train.py {{x}} {{steps}}",
        schedule={"name": "pbt", "population": 4, "interval": 2},
        resource={"name": "steps", "min": 1, "max": 6},
        budget={"trials": 4},
        parallel=4,
    )
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        clones = [t for t in study.trials if t.parent is not None]
        assert all(t.state == "completed" for t in study.trials)
        assert all(trained(tmp_path / "study", t.number)[-1] == "6" for t in clones)


@pytest.mark.parametrize(
    ("code", "about"),
    [
        ("print('no data')\nraise SystemExit(3)", r"all of the first 3 trials failed.*exit code 3.*no data"),
        ('print(\'{"los": 1.0, "acc": 2}\')', "loss must be reported, got acc, los"),
        ("pass", "loss must be reported, got nothing"),
    ],
)
def test_scripts_that_never_work_end_the_study_with_a_sentence(tmp_path: Path, code: str, about: str) -> None:
    settings = config(tmp_path, f"{tmp_path}/bad.py {{x}}", parallel=1)
    (tmp_path / "bad.py").write_text(code)
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert study.state.state == "failed"
        assert study.state.message
        assert re.search(about, study.state.message)


def test_a_study_without_its_metric_leaves_no_trial_running(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(
        "import json, sys, time\nfrom pathlib import Path\nmark = Path(sys.argv[2])\nfirst = not mark.exists()\n"
        "mark.touch()\nprint(json.dumps({'acc': 1.0}), flush=True)\n"
        "while not first:\n    time.sleep(0.02)\n"
    )
    settings = config(tmp_path, f"{tmp_path}/other.py {{x}} {tmp_path}/mark", budget={"trials": 4})
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert "loss must be reported, got acc" in study.state.message
        assert sorted((t.state, t.cut) for t in study.trials) == [("failed", False), ("stopped", True)]


def test_an_interrupt_pauses_the_study(tmp_path: Path) -> None:
    free = tmp_path / "free"
    settings = config(tmp_path, f"{tmp_path}/train.py {{x}} 4 {free}", budget={"trials": 2})

    def interrupt() -> None:
        if all(trial.step == 2 for trial in study.trials):
            raise KeyboardInterrupt

    with Study.from_config(settings, tmp_path / "study") as study:
        with pytest.raises(KeyboardInterrupt):
            study.run(on_change=interrupt)
        assert study.state.state == "paused"
        assert [(t.state, t.lost) for t in study.trials] == [("paused", 0)] * 2
        free.touch()
        study.run()
        assert [(t.state, t.step) for t in study.trials] == [("completed", 4)] * 2


def test_a_trial_that_is_killed_is_run_again(tmp_path: Path) -> None:
    settings = config(tmp_path, f"{tmp_path}/killed.py {{x}}", parallel=1, budget={"trials": 1})
    (tmp_path / "killed.py").write_text(
        "import json, os, signal\nfrom pathlib import Path\nmark = Path(os.environ['WEFT_CHECKPOINT'], 'mark')\n"
        "if not mark.exists():\n    mark.touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print(json.dumps({'loss': 1.0}))\n"
    )
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert [(t.state, t.lost, t.starts) for t in study.trials] == [("completed", 1, 2)]


DRIVER = """
import sys
from pathlib import Path
from weft.tune.study.config import read_config
from weft.tune.study.study import Study
with Study.from_config(read_config(Path(sys.argv[1])), Path(sys.argv[2])) as study:
    study.run()
"""


def test_kill_9_of_the_study_loses_no_trial_and_leaves_no_process(tmp_path: Path) -> None:
    free = tmp_path / "free"
    settings = config(tmp_path, f"{tmp_path}/train.py {{x}} 4 {free}", budget={"trials": 3}, seed=5)
    file = tmp_path / "study.json"
    file.write_bytes(msgspec.json.encode(settings))
    (tmp_path / "driver.py").write_text(DRIVER)
    folder = tmp_path / "study"
    command = [sys.executable, str(tmp_path / "driver.py"), str(file), str(folder)]
    with subprocess.Popen(command) as driver:
        logs = [folder / "trials" / str(n) / "log.txt" for n in (0, 1)]
        until = time.monotonic() + 60
        while not all(log.exists() and "waits" in log.read_text() for log in logs):
            assert time.monotonic() < until
            time.sleep(0.02)
        left = [json.loads((log.parent / "process.json").read_text())["pid"] for log in logs]
        driver.send_signal(signal.SIGKILL)
    assert all(psutil.pid_exists(pid) for pid in left)  # they outlived it
    free.touch()
    with Study.from_config(settings, folder) as study:
        study.run()
        assert [t.state for t in study.trials] == ["completed"] * 3
        kept = [t.params for t in study.trials]
    for pid in left:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert [trained(folder, n)[-1] for n in range(3)] == ["4"] * 3
    ends = Counter(e.trial for e in read_events(folder) if type(e).__name__ == "TrialEnded")  # type: ignore[union-attr]
    assert dict(ends) == {0: 1, 1: 1, 2: 1}
    with Study.from_config(settings, tmp_path / "other") as whole:
        whole.run()
        assert kept == [t.params for t in whole.trials]


def test_requests_of_other_processes_are_carried_out(tmp_path: Path) -> None:
    settings = config(tmp_path, f"{tmp_path}/train.py {{x}} 4", budget={"trials": 2}, parallel=1)
    folder = tmp_path / "study"
    with Study.from_config(settings, folder) as study:
        post(folder, {"do": "add", "params": {"x": 0.5}})
        post(folder, {"do": "extend", "changes": {"budget": {"trials": 4}}})
        post(folder, {"do": "nonsense"})
        study.run()
        assert len(study.trials) == 4
        assert {"x": 0.5} in [t.params for t in study.trials]
        post(folder, {"do": "extend", "changes": {"budget": {"trials": 99}}})
        post(folder, {"do": "stop"})
        study.core.extend({"budget": {"trials": 99}})
        study.run()
        assert study.state.state == "stopped"
        assert len(study.trials) < 99
    assert SearchState.of(read_events(folder)).inbox == (folder / "inbox.jsonl").stat().st_size
    assert (folder / FILE).exists()


def test_words_of_a_command() -> None:
    settings = convert_config(
        {
            "space": {"o": "a,b", "m": "float:0:1 if o == a"},
            "minimize": "loss",
            "run": "t.py --o {o} --m {m} --tag x{trial} --n {steps}",
            "resource": {"name": "steps", "max": 8},
        }
    )
    one = TrialRecord(3, {"o": "b"}, (True,), until=2)
    assert trial_words(settings, one, {}) == ["t.py", "--o", "b", "--tag", "x3", "--n", "2"]
    other = TrialRecord(4, {"o": "a", "m": 0.5}, (True,))
    assert trial_words(settings, other, {}) == ["t.py", "--o", "a", "--m", "0.5", "--tag", "x4", "--n", "8"]


def test_a_value_that_is_null_leaves_its_flag_out() -> None:
    run = "t.py --shift {shift} {amp} --clip {clip} --layers {layers} --clip={clip}"
    space = {"shift": [-1], "amp": ["--amp", None], "clip": [0.5, None], "layers": [[64], [64, 32]]}
    settings = convert_config({"space": space, "minimize": "loss", "run": run})
    whole = TrialRecord(0, {"shift": -1, "amp": "--amp", "clip": 0.5, "layers": (64, 32)}, (True,))
    words = "t.py --shift -1 --amp --clip 0.5 --layers 64,32 --clip=0.5"
    assert trial_words(settings, whole, {}) == words.split()
    short = TrialRecord(1, {"shift": -1, "amp": None, "clip": None, "layers": (64,)}, (True,))
    assert trial_words(settings, short, {}) == ["t.py", "--shift", "-1", "--layers", "64"]


def test_parameters_in_a_config_file(tmp_path: Path) -> None:
    assert merged_config({"model": {"width": 1}, "seed": 3}, {"model.width": 8, "lr": 0.1}) == {
        "model": {"width": 8},
        "seed": 3,
        "lr": 0.1,
    }
    with pytest.raises(StudyError, match="must be an entry"):
        merged_config({"model": 3}, {"model.width": 8})
    (tmp_path / "base.json").write_text('{"model": {"width": 1}}')
    (tmp_path / "read.py").write_text(
        "import json, sys\nfound = json.load(open(sys.argv[1]))\n"
        "print(json.dumps({'loss': found['model']['width']}))\n"
    )
    settings = convert_config(
        {
            "space": {"model.width": "int:2:9"},
            "minimize": "loss",
            "run": f"{tmp_path}/read.py {{config}}",
            "config": str(tmp_path / "base.json"),
            "search": "grid",
        }
    )
    with Study.from_config(settings, tmp_path / "study") as study:
        study.run()
        assert [t.values for t in study.trials] == [(float(n),) for n in range(2, 10)]
    assert os.environ.get("WEFT_PARAMS") is None
