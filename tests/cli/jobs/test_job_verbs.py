"""`weft jobs`, `weft job`, `weft logs`, `weft hosts`: tables, data, actions, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from testing.jobs.fake_service import NOW_MS, FakeService
from tests.cli.jobs.conftest import Weft

from weft.cli.jobs.printing import about, duration, moment
from weft.jobs.api.types.cluster import HostJob, HostView, ResourceView
from weft.jobs.api.types.files import CodeDiff, DiffAnswer, ValueDiff
from weft.jobs.api.types.jobs import Headline, ReasonView


def test_waiting_jobs_say_why_their_place_and_when(weft: Weft, service: FakeService) -> None:
    service.add_job(
        name="first", state="running", workers=2, progress=0.4, headline=Headline("loss", 0.25, ())
    )
    soon = int(time.time() * 1000) + 125_000
    service.add_job(name="second", reason=ReasonView("shortage", "2 GPUs are missing", 3, soon))
    service.add_job(name="third", state="failed", cause="error", message="rank 1: ValueError")
    code, out, _ = weft("jobs")
    assert code == 0
    head, third, second, first = out.splitlines()
    assert head.split()[:5] == ["id", "name", "project", "user", "state"]
    assert "error: rank 1: ValueError" in third
    assert "place 3, in 2m0" in second
    assert "at the earliest: 2 GPUs are missing" in second
    assert first.endswith("40%, loss 0.25")


def test_jobs_are_filtered_and_printed_as_data(weft: Weft, service: FakeService) -> None:
    for state in ("running", "failed", "stopped"):
        service.move(service.add_job(), state)
    page = json.loads(weft("jobs", "--json", "--state", "failed,active")[1])
    assert [job["state"] for job in page["jobs"]] == ["failed", "running"]
    assert "and 2 more jobs; --limit shows more" in weft("jobs", "-n", "1")[1]
    assert weft("jobs", "--state", "lost")[0] == 2
    assert weft("jobs", "--user", "nobody")[1] == "no jobs; submit one with weft submit train.py\n"


def test_names_of_others_cannot_change_the_terminal(weft: Weft, service: FakeService) -> None:
    service.add_job(name="\x1b[2Jevil", message="\x1b]0;x\x07", state="failed")
    assert "\x1b" not in weft("jobs")[1]
    assert "\x1b" not in weft("job", "show", "1")[1]


def test_watching_prints_changes(weft: Weft, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.add_job()
    told = []

    def echo(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            threading.Thread(target=service.move, args=(1, "running")).start()
        if len(told) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("weft.cli.jobs.jobs.click.echo", lambda text, **_: echo(text))
    from weft import cli

    cli.call(["jobs", "--watch"])
    assert [text.split()[4] for text in told[:2]] == ["queued:", "running"]


def test_a_job_is_shown(weft: Weft, service: FakeService) -> None:
    service.add_job(name="digits", tags={"lr": "0.1"}, state="failed", cause="error", message="rank 0: boom")
    code, out, err = weft("job", "show", "1")
    assert code == 0
    assert "job        1 digits" in out
    assert "error: rank 0: boom" in out
    assert "tags       lr=0.1" in out
    assert "weft logs 1 --tail 50 shows why" in err
    assert json.loads(weft("job", "show", "job-1", "--json")[1])["spec"]["run"] == "train.py"


def test_actions_and_their_refusals(weft: Weft, service: FakeService) -> None:
    service.add_job()
    service.add_job()
    assert weft("job", "hold", "1")[1].startswith("job 1 (train) is held")
    assert weft("job", "release", "1")[1].startswith("job 1 (train) is queued")
    assert [job["state"] for job in json.loads(weft("job", "stop", "1", "2", "--json")[1])] == ["stopped"] * 2
    code, _, err = weft("job", "pause", "1")
    assert code == 2
    assert "a job must be starting or running to pause, got one that is stopped; it has ended" in err
    assert weft("job", "retry", "1")[0] == 0
    assert weft("job", "priority", "1", "90")[0] == 0
    assert service.jobs[1].priority == 90
    assert weft("job", "scale", "1", "4")[0] == 0
    assert service.jobs[1].workers == 4


def test_a_job_that_is_not_there_is_named(weft: Weft) -> None:
    code, _, err = weft("job", "show", "99")
    assert code == 2
    assert "got 99" in err
    assert weft("job", "show", "x")[2].startswith(
        "weft: JOB must be the number of a job, as weft jobs shows it, got 'x'"
    )


def test_cloning_with_changes(weft: Weft, service: FakeService) -> None:
    service.add_job()
    code, out, _ = weft("job", "clone", "1", "--set", "workers=2:4", "--set", "env={LR: 0.1}")
    assert code == 0
    assert out.startswith("job 2 ")
    assert (service.jobs[2].spec.workers, service.jobs[2].spec.env) == ("2:4", {"LR": 0.1})
    assert service.jobs[2].parent_id == 1


def test_removing_asks_first(weft: Weft, service: FakeService) -> None:
    service.add_job()
    code, _, err = weft("job", "rm", "1")
    assert code == 2
    assert "write --yes" in err
    assert 1 in service.jobs
    assert weft("job", "rm", "1", "--yes")[1] == "removed 1\n"
    assert service.jobs == {}


def test_outputs_are_pulled(weft: Weft, service: FakeService, folder: Path) -> None:
    files = {
        "attempt-2/outputs/model.pt": b"abc",
        "attempt-2/outputs/deep/x": b"d",
        "checkpoints/step-1": b"x",
    }
    service.files[service.add_job(attempt=2)] = files
    code, out, _ = weft("job", "pull", "1")
    assert code == 0
    assert out == "2 files in weft-jobs/1\n"
    assert (folder / "weft-jobs" / "1" / "outputs" / "model.pt").read_bytes() == b"abc"
    assert (folder / "weft-jobs" / "1" / "outputs" / "deep" / "x").read_bytes() == b"d"
    assert weft("job", "pull", "1", "model.pt", "-o", "one")[1] == "1 file in one\n"
    assert (folder / "one" / "model.pt").is_file()
    assert len(json.loads(weft("job", "pull", "1", "--all", "-o", "all", "--json")[1])) == 3
    assert (folder / "all" / "checkpoints" / "step-1").is_file()
    assert weft("job", "pull", "1", "--list", "--all", "checkpoints")[1] == "checkpoints/step-1\n"
    assert weft("job", "pull", "1", "nothing", "-o", "none")[2].startswith("weft: job 1 has no files there")


def test_events_are_listed_and_followed(weft: Weft, service: FakeService) -> None:
    service.add_job()
    service.move(1, "starting")
    service.move(1, "running")
    assert [line.split()[-2:] for line in weft("job", "events", "1")[1].splitlines()] == [
        ["state", "starting"],
        ["state", "running"],
    ]
    ending = threading.Timer(0.1, service.move, (1, "completed"))
    ending.start()
    followed = weft("job", "events", "1", "-f", "--json")[1].splitlines()
    ending.join()
    assert [json.loads(line)["data"]["state"] for line in followed] == ["starting", "running", "completed"]


def test_differences_are_printed(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, versions = ValueDiff("run", "a.py", "b.py"), ValueDiff("torch", None, "2.11")
    found = DiffAnswer((spec,), (CodeDiff("b.py", "added", "+print()"),), (versions,), False)
    monkeypatch.setattr("weft.jobs.client.job.JobHandle.diff", lambda *_: found)
    assert weft("job", "diff", "1", "2")[1].splitlines() == [
        "spec  run: a.py -> b.py",
        "environment  torch: nothing -> 2.11",
        "code  b.py added",
        "    +print()",
    ]


def test_logs_are_printed_with_their_ranks(weft: Weft, service: FakeService) -> None:
    service.add_job(state="completed")
    service.write(1, "loss 1", "note")
    service.write(1, "starting", rank=-1)
    assert weft("logs", "1")[1].splitlines() == ["[0] loss 1", "[0] note", "[launcher] starting"]
    assert weft("logs", "1", "--grep", "loss", "--rank", "0")[1] == "[0] loss 1\n"
    assert weft("logs", "1", "--rank", "launcher")[1] == "[launcher] starting\n"
    assert weft("logs", "1", "--tail", "1")[1] == "[launcher] starting\n"
    assert json.loads(weft("logs", "1", "--json", "--tail", "1")[1])["text"] == "starting"
    assert weft("logs", "1", "--grep", "(")[0] == 2


@pytest.mark.parametrize(("end", "code"), [("completed", 0), ("failed", 1), ("stopped", 1)])
def test_following_logs_ends_as_the_job_does(weft: Weft, service: FakeService, end: str, code: int) -> None:
    service.add_job()

    def run() -> None:
        while service.seen.count("GET /jobs/1") < 2:  # it has said once why the job waits
            time.sleep(0.01)
        service.move(1, "running", attempt=1)
        service.write(1, "one")
        service.move(1, end)  # type: ignore[arg-type]

    running = threading.Thread(target=run)
    running.start()
    found, out, err = weft("logs", "-f", "1")
    running.join()
    assert (found, out) == (code, "[0] one\n")
    assert "weft: job 1 waits: place 1, " in err
    assert f"weft: job 1 (train) is {end}" in err


def test_hosts_are_listed(weft: Weft, service: FakeService) -> None:
    assert weft("hosts")[1] == "no hosts; add one with weft hosts add NAME\n"
    service.hosts["a"] = HostView(
        name="a", state="up", labels=("a100",), rack="", message=None, seen_ms=NOW_MS, jobs=(HostJob(3, "x", 2),),
        total=ResourceView(8, 32 << 30, 2), used=ResourceView(2, 1 << 30, 1),
    )  # fmt: skip
    row = weft("hosts", "list")[1].splitlines()[1]
    assert row == "a     up     2 of 8  1 of 2  1.0 GiB of 32.0 GiB  a100    3:2"
    assert json.loads(weft("hosts", "--json")[1])[0]["labels"] == ["a100"]
    assert weft("hosts", "label", "a")[0] == 2
    assert weft("hosts", "--json", "list")[0] == 2


def test_times_are_short() -> None:
    assert [duration(ms) for ms in (-5, 45_000, 192_000, 7_500_000, 90_000_000)] == [
        "0s", "45s", "3m12s", "2h05m", "1d01h",
    ]  # fmt: skip
    assert moment(None) == "-"


def test_a_job_that_is_asked_to_stop_says_so(service: FakeService) -> None:
    job = service.jobs[service.add_job(state="running", wanted="stop")]
    assert about(job, NOW_MS) == "stop asked for"
