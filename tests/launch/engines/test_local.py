"""`weft run` on this machine, with real processes and real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from testing.cluster.waiting import PATIENCE_S
from testing.shell import Shell

from weft.jobs.lifecycle import cause_of

# A worker that says its process id, and sleeps; with a child of its own that would outlive it.
SLEEPER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print("pids", os.getpid(), child.pid, flush=True)
time.sleep(300)
"""

STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
"""


def pids_from(process: subprocess.Popen[str], workers: int) -> list[psutil.Process]:
    """Wait until every worker has said who it and its child are."""
    assert process.stdout is not None
    found: list[int] = []
    while len(found) < 2 * workers:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        if "pids" in line:
            found += map(int, line.split()[-2:])
    return [psutil.Process(pid) for pid in found]


def test_lines_are_prefixed_and_logs_kept(shell: Shell) -> None:
    script = shell.script("import os, sys\nprint('hello', sys.argv[1:])\nprint('oops', file=sys.stderr)\n")
    done = shell.weft("run", "-n", "2", script, "--lr", "0.1", "-n", "7")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] hello ['--lr', '0.1', '-n', '7']" for r in (0, 1)]
    assert sorted(done.stderr.splitlines()) == ["[0] oops", "[1] oops"]
    folder = shell.run_dir()
    assert folder.name.endswith("-train")
    assert "hello" in (folder / "rank-1.log").read_text()
    assert "oops" in (folder / "rank-1.log").read_text()
    assert json.loads((folder / "plan.json").read_text())["world_size"] == 2
    assert json.loads((folder / "outcome.json").read_text())["codes"] == {"0": 0, "1": 0}
    assert (folder / "RANKFILE").read_text().startswith("#host = ")


def test_workers_share_a_secret_that_is_kept_nowhere(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", "--", "printenv", "WEFT_RUN_SECRET", "HF_TOKEN", HF_TOKEN="hunter2")
    assert done.returncode == 0, done.stderr
    folder = shell.run_dir()
    told = [(folder / f"rank-{rank}.log").read_text().split() for rank in range(2)]
    assert told[0] == told[1]
    assert len(told[0][0]) == 32
    assert told[0][1] == "hunter2"
    kept = [path.read_text() for path in folder.iterdir() if path.suffix != ".log"]
    assert kept
    assert not any(secret in text for text in kept for secret in told[0])


def test_workers_are_pinned_to_their_cores(shell: Shell) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("needs two cores to tell two workers apart")
    script = shell.script(
        "import os\nprint(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])\n"
    )
    pinned = shell.weft("run", "-n", "2", script)
    sets = [set(json.loads(line[4:].rpartition(" ")[0])) for line in pinned.stdout.splitlines()]
    assert all(sets)
    assert not sets[0] & sets[1]
    free = shell.weft("run", "-n", "2", "--no-pin", "--env", "OMP_NUM_THREADS=5", script)
    assert {line[4:] for line in free.stdout.splitlines()} == {f"{sorted(cores)} 5"}


def test_an_exception_is_shown_with_its_rank_traceback_and_log(shell: Shell) -> None:
    script = shell.script(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('bad batch')\ntime.sleep(300)\n"
    )
    done = shell.weft("run", "-n", "2", script)
    assert done.returncode == 1
    assert "weft: failed: rank 1 on " in done.stderr
    assert ": ValueError: bad batch\n" in done.stderr
    assert "    Traceback (most recent call last):" in done.stderr
    assert f"weft: log {Path('weft-runs') / shell.run_dir().name / 'rank-1.log'}" in done.stderr


def test_the_exit_code_is_the_scripts(shell: Shell) -> None:
    script = shell.script(
        "import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(300)\n"
    )
    done = shell.weft("run", "-n", "2", script)
    assert done.returncode == 7
    assert "rank 1" in done.stderr
    assert "exit code 7" in done.stderr


def test_a_killed_worker_counts_as_its_signal(shell: Shell) -> None:
    script = shell.script("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    done = shell.weft("run", "-n", "1", script)
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by SIGKILL" in done.stderr


def test_a_module_and_a_command_run_too(shell: Shell) -> None:
    shell.script("print('module')", "job.py")
    assert shell.weft("run", "-m", "job").stdout == "[0] module\n"
    assert shell.weft("run", "-n", "1", "--", "sh", "-c", "echo $WORLD_SIZE").stdout == "[0] 1\n"


def test_torchruns_spellings_work(shell: Shell) -> None:
    script = shell.script("import os, sys\nprint(os.environ['LOCAL_RANK'], sys.argv[1:])\n")
    done = shell.weft(
        "run", "--standalone", "--nnodes=1", "--nproc_per_node", "2", "--max_restarts=0", script, "--use_amp"
    )
    assert sorted(done.stdout.splitlines()) == ["[0] 0 ['--use_amp']", "[1] 1 ['--use_amp']"], done.stderr


def test_failed_workers_are_restarted(shell: Shell) -> None:
    script = shell.script(
        "import os, sys\nattempt = os.environ['TORCHELASTIC_RESTART_COUNT']\nprint('attempt', attempt)\n"
        "sys.exit(attempt == '0' and os.environ['RANK'] == '1')\n"
    )
    done = shell.weft("run", "-n", "2", "--max-restarts", "2", script)
    assert done.returncode == 0, done.stderr
    assert "restart 1 of 2" in done.stderr
    assert done.stdout.count("attempt 1") == 2
    assert json.loads((shell.run_dir() / "outcome.json").read_text())["restarts"] == 1


def test_restarts_run_out(shell: Shell) -> None:
    script = shell.script("import sys\nsys.exit(3)\n")
    done = shell.weft("run", "-n", "1", "--max-restarts", "1", script)
    assert done.returncode == 3
    assert "after 1 restart" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_launcher(shell: Shell, number: int) -> None:
    process = shell.start("run", "-n", "2", shell.script(STUBBORN + SLEEPER))
    started = pids_from(process, workers=2)
    process.send_signal(number)
    gone, alive = psutil.wait_procs(started, timeout=PATIENCE_S)
    assert not alive
    assert len(gone) == 4  # two workers, and a child of each in a session of its own
    code = process.wait(PATIENCE_S)
    assert code == (-signal.SIGKILL if number == signal.SIGKILL else 128 + number)


def test_an_interrupted_worker_may_tidy_up(shell: Shell) -> None:
    script = shell.script(
        "import time\ntry:\n    print('ready', flush=True)\n    while True:\n        time.sleep(0.05)\n"
        "except KeyboardInterrupt:\n    print('saved')\n"
    )
    process = shell.start("run", "-n", "1", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert out == "[0] saved\n"
    assert "SIGINT" in err
    assert process.returncode == 130


def test_a_second_interrupt_ends_a_stubborn_worker_at_once(shell: Shell) -> None:
    process = shell.start("run", "--grace", "100", shell.script(STUBBORN + SLEEPER))
    started = pids_from(process, workers=1)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert "again to end them at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert not psutil.wait_procs(started, timeout=PATIENCE_S)[1]


def test_what_a_finished_worker_leaves_behind_is_ended(shell: Shell) -> None:
    script = shell.script(SLEEPER.replace("time.sleep(300)\n", "", 1).replace("\ntime.sleep(300)", "\n"))
    done = shell.weft("run", script)
    assert done.returncode == 0
    child = int(done.stdout.split()[-1])
    assert not psutil.pid_exists(child)


def test_a_killed_agent_takes_its_workers_along_and_fails_the_run(shell: Shell) -> None:
    process = shell.start("run", "-n", "2", shell.script(STUBBORN + SLEEPER))
    started = pids_from(process, workers=2)
    workers = [found for found in started if found.ppid() != 1][::2]
    workers[0].parent().kill()  # type: ignore[union-attr]
    assert not psutil.wait_procs(started, timeout=PATIENCE_S)[1]
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "lost" in err


def test_a_reader_that_goes_away_ends_the_run(shell: Shell) -> None:
    endless = SLEEPER.replace("time.sleep(300)\n", "while True: print('line', flush=True)\n")
    process = shell.start("run", shell.script(endless))
    started = pids_from(process, workers=1)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.wait(PATIENCE_S) == 1
    assert not psutil.wait_procs(started, timeout=PATIENCE_S)[1]
    _, err = process.communicate()
    assert "Traceback" not in err


def test_a_program_that_cannot_be_started_is_named(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", "--", "no-such-program")
    assert done.returncode == 127
    assert "could not start: [Errno 2] No such file or directory: 'no-such-program'" in done.stderr


def test_what_mpirun_or_an_agent_cannot_say_in_letters_is_still_said(shell: Shell) -> None:
    done = shell.weft("run", "-n", "1", "--", "no-\udcff-program")
    assert done.returncode == 127, done.stderr


def full_disk(folder: Path) -> None:
    """A disk of two pages."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("mounting needs root")


def test_a_full_disk_ends_the_logs_not_the_run(shell: Shell) -> None:
    full_disk(shell.folder / "disk")
    try:
        script = shell.script("for i in range(5000): print('line', i)\n")
        done = shell.weft("run", "--run-dir", "disk/run", script)
        assert done.returncode == 0
        assert done.stdout.endswith("line 4999\n")
        assert "no more logs in disk/run: No space left" in done.stderr
        assert "no outcome in disk/run: No space left" in done.stderr
        refused = shell.weft("run", "--run-dir", "disk/another", script)
        assert refused.returncode == 2
        assert "the run directory must be writable, got disk/another: No space left" in refused.stderr
        assert [path.name for path in (shell.folder / "disk").iterdir()] == ["run"]
    finally:
        subprocess.run(["umount", str(shell.folder / "disk")], check=True)


def test_json_prints_the_outcome_alone_on_stdout(shell: Shell) -> None:
    done = shell.weft("run", "--json", shell.script("print('text')"))
    assert json.loads(done.stdout)["code"] == 0
    assert "[0] text" in done.stderr


def test_a_chosen_run_directory_is_used_once(shell: Shell) -> None:
    script = shell.script("print(1)")
    assert shell.weft("run", "--run-dir", "mine", script).returncode == 0
    assert (shell.folder / "mine" / "outcome.json").exists()
    again = shell.weft("run", "--run-dir", "mine", script)
    assert again.returncode == 2
    assert "must be new, got mine which holds a run" in again.stderr


def test_an_env_script_of_torchrun_runs_unchanged(shell: Shell) -> None:
    script = shell.script(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "t = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(t)\nprint(t.item())\ndist.destroy_process_group()\n"
    )
    done = shell.weft("run", "-n", "2", script)
    assert sorted(done.stdout.splitlines()) == ["[0] 3.0", "[1] 3.0"], done.stderr


def test_init_works_under_weft_and_alone(shell: Shell) -> None:
    script = shell.script(
        "import torch, weft\nworld = weft.init(timeout_s=30)\n"
        "assert weft.init() is world\nt = torch.ones(1)\ntorch.distributed.all_reduce(t)\n"
        "print(world.rank, world.size, weft.local_rank(), weft.num_hosts(), weft.device(), int(t), world.launcher)\n"
        "weft.shutdown()\n"
    )
    done = shell.weft("run", "-n", "2", script)
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2 0 1 cpu 2 weft", "[1] 1 2 1 1 cpu 2 weft"], (
        done.stderr
    )
    alone = subprocess.run(
        [sys.executable, script], cwd=shell.folder, capture_output=True, text=True, timeout=120, check=True
    )
    assert alone.stdout == "0 1 0 1 cpu 1 none\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--interface", "nocard"), "--interface must be a card of "),
        (
            ("--python", "/no/such/python"),
            "--python must be an interpreter of this machine, got /no/such/python",
        ),
    ],
)
def test_what_this_machine_does_not_have_is_refused(shell: Shell, option: tuple[str, str], said: str) -> None:
    refused = shell.weft("run", "-n", "2", *option, shell.script("pass"))
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (shell.folder / "weft-runs").exists()


HOG = """
import os, time
if os.environ["RANK"] == "1":
    block = bytearray(400_000_000)
time.sleep(300)
"""


def test_a_worker_that_holds_too_much_memory_is_ended_and_named(shell: Shell) -> None:
    done = shell.weft("run", "-n", "2", "--memory", "300MB", shell.script(HOG))
    assert done.returncode == 128 + signal.SIGKILL
    assert "weft: out of memory: rank 1 used " in done.stderr
    failure = json.loads((shell.run_dir() / "outcome.json").read_text())["failure"]
    assert failure["rank"] == 1
    assert re.fullmatch(
        r"out of memory: rank 1 used \d+ MiB, its limit is 286 MiB \(--memory\)", failure["reason"]
    )
    assert cause_of({"code": 137, "failure": failure})[0] == "out-of-memory"
