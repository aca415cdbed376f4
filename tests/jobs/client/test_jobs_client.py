"""The client of the service: submitting, following, acting, over broken connections and restarts."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from testing.jobs.fake_service import TOKEN, FakeService

import weft.jobs
from weft.errors import UsageError, WeftError
from weft.jobs.client.address import ServiceMissingError
from weft.jobs.client.client import JobsClient
from weft.jobs.client.connection import ServiceError
from weft.jobs.client.job import WaitError
from weft.jobs.client.stream import parse_events
from weft.jobs.client.upload import UploadState
from weft.jobs.spec.read import SpecError
from weft.ports import free_port


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "job.yaml").write_text("run: train.py --epochs 3\nworkers: 2:8\n")
    return folder


def test_the_package_names_its_client() -> None:
    assert weft.jobs.Client is JobsClient


def test_submitting_sends_only_what_is_missing(service: FakeService, client: JobsClient, code: Path) -> None:
    sent: list[UploadState] = []
    (job,) = client.submit({"run": "train.py"}, code, progress=sent.append)
    assert job.view.state == "queued"
    snapshot = service.snapshots[str(job.view.snapshot)]
    assert {file.path for file in snapshot.files} == {"train.py", "job.yaml"}
    assert sent[-1].files == sent[-1].all_files == 2
    assert sent[-1].sent_bytes == sent[-1].all_bytes == snapshot.total_bytes
    (code / "train.py").write_text("print('other')\n")
    sent.clear()
    (again,) = client.submit({"run": "train.py"}, code, progress=sent.append)
    assert [state.all_files for state in sent] == [1]
    assert again.view.snapshot != job.view.snapshot
    assert b"print('other')\n" in service.blobs.values()


def test_the_code_of_a_file_lies_beside_it(service: FakeService, client: JobsClient, code: Path) -> None:
    (job,) = client.submit(code / "job.yaml")
    assert (job.view.min_workers, job.view.max_workers) == (2, 8)
    assert len(service.snapshots[str(job.view.snapshot)].files) == 2


def test_an_array_makes_several_jobs(client: JobsClient, code: Path) -> None:
    made = client.submit({"run": "train.py --lr {lr}", "array": {"lr": [1, 2, 3]}}, code)
    assert [job.view.tags["lr"] for job in made] == ["1", "2", "3"]


def test_a_bad_specification_is_refused_before_anything_is_sent(
    service: FakeService, client: JobsClient, code: Path
) -> None:
    with pytest.raises(SpecError, match="workers must be a number or a range"):
        client.submit({"run": "train.py", "workers": "8:2"}, code)
    assert service.seen == []


def test_problems_of_the_service_have_path_must_got_next(client: JobsClient) -> None:
    body = {"spec": {"run": "train.py", "resources": {"memory": "x"}}}
    with pytest.raises(ServiceError, match=r"resources\.memory must be a number of bytes") as caught:
        client.connection.send("POST", "/jobs", dict, body, {"Idempotency-Key": "a"})
    assert caught.value.problems[0].path == "resources.memory"
    assert caught.value.exit_code == 2


def test_jobs_are_listed_over_pages(
    service: FakeService, client: JobsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.jobs.client.client.JOBS_A_PAGE", 3)
    for _ in range(8):
        service.add_job()
    service.move(3, "failed")
    assert [job.id for job in client.jobs()] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [job.id for job in client.jobs(limit=4)] == [8, 7, 6, 5]
    assert [job.id for job in client.jobs(state=["failed", "stopped"])] == [3]


def test_waiting_ends_with_the_job(service: FakeService, client: JobsClient) -> None:
    job = client.job(service.add_job())
    ending = threading.Timer(0.1, service.move, (1, "completed"))
    ending.start()
    assert job.wait(30).state == "completed"
    ending.join()


def test_waiting_is_bounded(service: FakeService, client: JobsClient) -> None:
    job = client.job(service.add_job())
    with pytest.raises(WaitError, match=r"must end within 0.1 s, got one that is queued"):
        job.wait(0.1)


def test_events_resume_after_a_restart_without_loss_or_repetition(
    service: FakeService, client: JobsClient
) -> None:
    events = client.events(["job:1"])
    service.add_job()
    assert next(events).kind == "opened"
    service.move(1, "starting")
    assert next(events).data["state"] == "starting"
    service.end()
    service.move(1, "running")  # while nobody listens
    service.start()
    following = [next(events) for _ in range(2)]
    assert [event.kind for event in following] == ["opened", "state"]
    assert following[1].data["state"] == "running"
    service.move(1, "completed")
    assert next(events).data["state"] == "completed"
    events.close()  # type: ignore[attr-defined]


def test_logs_go_on_over_a_restart(
    service: FakeService, client: JobsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.jobs.client.log_reader.LONGEST_WAIT_S", 0.05)
    job = client.job(service.add_job())
    service.write(1, "one", "two")
    lines = job.logs(follow=True)
    assert [next(lines).text for _ in range(2)] == ["one", "two"]
    service.end()
    service.write(1, "three")
    back = threading.Timer(0.1, service.start)
    back.start()
    assert next(lines).text == "three"
    back.join()
    service.move(1, "completed")
    assert list(lines) == []


def test_log_lines_are_chosen(service: FakeService, client: JobsClient) -> None:
    job = client.job(service.add_job())
    service.write(1, "loss 3", "note", "loss 2", rank=0)
    service.write(1, "loss 9", rank=1)
    assert [line.text for line in job.logs(grep="loss", rank=0)] == ["loss 3", "loss 2"]
    assert [line.text for line in job.logs(tail=1)] == ["loss 9"]


def test_acting_on_a_job(service: FakeService, client: JobsClient) -> None:
    job = client.job(service.add_job())
    assert job.hold().state == "held"
    assert job.release().state == "queued"
    assert job.stop().state == "stopped"
    with pytest.raises(ServiceError, match="to pause, got one that is stopped") as caught:
        job.pause()
    assert (caught.value.status, caught.value.exit_code) == (409, 2)
    assert job.retry().state == "queued"
    assert job.scale(4).workers == 4
    assert job.change(priority=80).priority == 80
    (clone,) = job.clone({"run": "other.py"})
    assert clone.view.parent_id == job.id
    job.remove()
    with pytest.raises(ServiceError, match="got 1; list them"):
        _ = job.state


def test_files_are_pulled_whole(service: FakeService, client: JobsClient, tmp_path: Path) -> None:
    service.files[service.add_job()] = {
        "outputs/a.bin": b"a" * 100_000,
        "outputs/deep/b.txt": b"b",
        "log": b"c",
    }
    pulled = dict(client.job(1).pull(tmp_path / "here", "outputs"))
    assert (tmp_path / "here" / "outputs" / "a.bin").read_bytes() == b"a" * 100_000
    assert {entry.path for entry in pulled} == {"outputs/a.bin", "outputs/deep/b.txt"}
    assert [path.name for path in (tmp_path / "here" / "outputs").iterdir() if "part" in path.name] == []


def test_files_that_lead_elsewhere_are_refused(
    service: FakeService, client: JobsClient, tmp_path: Path
) -> None:
    service.files[service.add_job()] = {"../evil": b"x"}
    with pytest.raises(WeftError, match=r"plain paths, got '\.\./evil'"):
        list(client.job(1).pull(tmp_path / "here"))
    assert not (tmp_path / "evil").exists()


def test_no_service_says_weft_up() -> None:
    with (
        JobsClient(f"http://127.0.0.1:{free_port()}", TOKEN) as client,
        pytest.raises(ServiceMissingError, match="start one there with `weft up`"),
    ):
        client.who()


def test_a_wrong_token_says_weft_login(service: FakeService) -> None:
    with (
        JobsClient(service.url, "wrong") as client,
        pytest.raises(ServiceError, match=f"`weft login {service.url}`"),
    ):
        client.who()


def test_this_machines_service_is_found_again_at_another_port(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(url: str, token: str) -> None:
        (tmp_path / "service.json").write_text(json.dumps({"pid": os.getpid(), "url": url, "token": token}))

    monkeypatch.setenv("WEFT_HOME", str(tmp_path))
    monkeypatch.delenv("WEFT_URL", raising=False)
    monkeypatch.delenv("WEFT_TOKEN", raising=False)
    tell(service.url, TOKEN)
    with JobsClient() as client:
        events = client.events(["job:1"])
        assert next(events).kind == "opened"
        service.end()
        service.port = 0
        service.start()
        tell(service.url, "old")
        with pytest.raises(ServiceError, match="weft login"):
            client.who()
        tell(service.url, TOKEN)
        assert client.who().user.name == "ann"
        assert next(events).kind == "opened"
        events.close()  # type: ignore[attr-defined]


def test_another_server_is_told_from_a_service(service: FakeService) -> None:
    with (
        JobsClient(f"{service.url}/elsewhere", TOKEN) as client,
        pytest.raises(ServiceError, match="must be a jobs service, got the answer 404 Not Found"),
    ):
        client.who()


def test_code_that_is_no_folder_is_refused(client: JobsClient, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="code must be a folder"):
        client.submit({"run": "-m train"}, tmp_path / "nowhere")


def test_events_are_read_from_lines() -> None:
    lines = [
        ": beat",
        "",
        "id: 7",
        "event: state",
        'data: {"job":',
        "data: 3}",
        "",
        "event: resync",
        "",
        "id: 8",
        "data: x",
    ]
    found = list(parse_events(lines))
    assert [(event.id, event.kind, event.data) for event in found] == [
        (7, "state", {"job": 3}),
        (None, "resync", ""),
    ]
