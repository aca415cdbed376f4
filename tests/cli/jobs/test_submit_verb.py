"""`weft submit`: files, commands, options, plans, and what is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from testing.jobs.fake_service import FakeService
from tests.cli.jobs.conftest import Weft


def test_a_script_with_its_arguments(weft: Weft, service: FakeService) -> None:
    code, out, err = weft(
        "submit", "-n", "2:8", "--gpus", "1", "--name", "digits", "--", "train.py", "--lr", "0.1"
    )
    assert code == 0, err
    assert out.startswith("job 1 (digits) is queued: place 1, ")
    assert f"weft logs -f 1 follows it, {service.url}/jobs/1 shows it" in err
    spec = service.jobs[1].spec
    assert spec.run == ("train.py", "--lr", "0.1")
    assert (spec.workers, spec.resources.gpus) == ("2:8", 1)
    assert service.jobs[1].snapshot in service.snapshots


def test_what_follows_a_script_is_the_scripts(weft: Weft, service: FakeService) -> None:
    assert weft("submit", "train.py", "--name", "x")[0] == 0
    assert service.jobs[1].spec.run == ("train.py", "--name", "x")
    assert service.jobs[1].name == "train"


def test_options_count_more_than_the_file(weft: Weft, service: FakeService) -> None:
    code, _, err = weft(
        "submit", "job.yaml", "--name", "other", "--env", "B=2", "--priority", "80", "--after", "job-7",
        "--tag", "a=b", "--max-time", "4h", "--retries", "2", "--hold", "--on", "a100", "--memory", "1GiB",
    )  # fmt: skip
    assert code == 0, err
    spec = service.jobs[1].spec
    assert (spec.name, spec.run, spec.workers) == ("other", "train.py --epochs 3", "2:8")
    assert spec.env == {"A": 1, "B": "2"}
    assert (spec.queue.priority, spec.queue.after, spec.queue.max_time, spec.queue.hold) == (
        80,
        (7,),
        "4h",
        True,
    )
    assert (spec.tags, spec.retry.max) == ({"a": "b"}, 2)
    assert (spec.resources.hosts, spec.resources.memory) == (("a100",), 1 << 30)


def test_a_specification_from_standard_input(
    weft: Weft, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"run: train.py\nname: piped\n")))
    assert weft("submit", "-")[0] == 0
    assert service.jobs[1].name == "piped"


def test_uploads_are_told_once_and_only_what_is_new_is_sent(weft: Weft, folder: Path) -> None:
    assert "weft: sent 2 of 2 files, " in weft("submit", "job.yaml")[2]
    assert "sent" not in weft("submit", "job.yaml")[2]
    (folder / "train.py").write_text("print('again')\n")
    assert "weft: sent 1 of 1 file, 15 B of 15 B" in weft("submit", "job.yaml")[2]


def test_a_dry_run_sends_and_queues_nothing(weft: Weft, service: FakeService) -> None:
    code, out, err = weft("submit", "--dry-run", "job.yaml")
    assert code == 0
    assert "2:8" in out
    assert "nothing was queued" in err
    assert service.jobs == {}
    assert service.blobs == {}
    plan = json.loads(weft("submit", "--dry-run", "--json", "job.yaml")[1])["plan"]
    assert plan[0]["max_workers"] == 8


def test_following_prints_lines_and_ends_with_the_job(weft: Weft, service: FakeService, folder: Path) -> None:
    original = service._submit

    async def submit_and_run(request):  # type: ignore[no-untyped-def]
        answer = await original(request)
        service.write(1, "epoch 1", "epoch 2")
        service.move(1, "completed")
        return answer

    service._submit = submit_and_run  # type: ignore[method-assign]
    service.end()
    service.start()
    code, out, err = weft("submit", "--follow", "job.yaml")
    assert code == 0, err
    assert out.splitlines()[1:] == ["[0] epoch 1", "[0] epoch 2"]
    assert "weft: job 1 (train) is completed" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: train.py\nworkres: 2", "workres; did you mean workers?"),
        ("workers: 2", "the file must have the field run, got none; add run"),
        ("run: train.py\nresources: {gpus: x}", "resources.gpus must be a number"),
        ("run: train.py\nqueue: {priority: 101}", "queue.priority must be"),
        ("run: [", "the file must be YAML"),
        ("", "the file must be a mapping, got nothing"),
    ],
)
def test_problems_of_a_file_say_path_must_got_next(weft: Weft, folder: Path, text: str, said: str) -> None:
    (folder / "bad.yaml").write_text(text)
    code, _, err = weft("submit", "bad.yaml")
    assert code == 2
    assert "must" in err
    assert "got" in err
    assert said in err


def test_every_problem_is_told_at_once(weft: Weft, folder: Path) -> None:
    (folder / "bad.yaml").write_text(
        "run: train.py\nworkers: 9:2\nresources: {memory: big}\nqueue: {max_time: soon}\n"
    )
    code, _, err = weft("submit", "bad.yaml")
    lines = err.splitlines()
    assert code == 2
    assert [line.split()[1] for line in lines] == ["workers", "resources.memory", "queue.max_time"]
    assert all(" must " in line and ", got " in line and "; " in line for line in lines)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "must have a job.yaml or a script, got none"),
        (("nope.yaml",), "nope.yaml must be a job's file that can be read, got No such file"),
        (("nope.py",), "run must name a script in the folder"),
        (("job.yaml", "more"), "a specification must stand alone, got 'more' after it"),
        (("--env", "A", "train.py"), "--env must be of the form NAME=VALUE, got 'A'"),
        (("--priority", "101", "train.py"), "--priority must be a whole number between 0 and 100"),
        (("--after", "x", "train.py"), "--after must be the number of a job"),
        (("--max-time", "soon", "train.py"), "--max-time must be a time"),
        (("--follow", "--json", "train.py"), "--follow must be without --json"),
    ],
)
def test_misuse_is_refused_and_nothing_is_sent(
    weft: Weft, service: FakeService, args: tuple[str, ...], said: str
) -> None:
    code, _, err = weft("submit", *args)
    assert code == 2
    assert said in err
    assert service.seen == []


def test_a_script_that_is_left_out_is_told(weft: Weft, folder: Path) -> None:
    (folder / ".weftignore").write_text("train.py\n")
    code, _, err = weft("submit", "train.py")
    assert code == 2
    assert "train.py, which is left out by .gitignore or .weftignore" in err


def test_a_secret_in_the_environment_is_warned_of(weft: Weft) -> None:
    assert "env.HF_TOKEN looks like a secret" in weft("submit", "--env", "HF_TOKEN=abc", "train.py")[2]


def test_the_schema_is_one_for_editors(alone: Weft) -> None:
    code, out, _ = alone("submit", "--schema")
    assert code == 0
    schema = json.loads(out)
    assert "workers" in json.dumps(schema)
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_without_a_service_it_says_weft_up(alone: Weft) -> None:
    code, _, err = alone("submit", "train.py")
    assert code == 2
    assert "got none; start one with `weft up`, or write `weft login URL`" in err
