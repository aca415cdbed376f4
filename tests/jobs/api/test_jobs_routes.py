"""Jobs over HTTP: submitted, listed, shown, changed, acted on, compared."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from testing.jobs.web import WebService

from weft.jobs.store.jobs import move_job
from weft.jobs.store.tables import job


def submit(client: httpx.Client, **spec: Any) -> dict[str, Any]:
    answer = client.post("/jobs", json={"spec": {"run": "train.py", **spec}})
    assert answer.status_code == 201, answer.text
    (job,) = answer.json()["jobs"]
    return dict(job)


def end(web: WebService, number: int, state: Any = "failed") -> None:
    for after in ("staging", "starting", "running", state):
        web.write(partial(move_job, job_id=number, after=after))


def test_a_job_is_submitted_listed_and_shown(web: WebService) -> None:
    ann = web.user("ann-1")
    job = submit(ann, name="digits", project="vision", workers="1:4", tags={"lr": "0.1"}, run="train.py -x 1")
    assert (job["state"], job["user"], job["min_workers"], job["max_workers"]) == ("queued", "ann-1", 1, 4)
    assert job["mine"]
    page = ann.get("/jobs", params={"user": "ann-1", "state": "queued,running"}).json()
    assert [one["id"] for one in page["jobs"]] == [job["id"]]
    assert (page["total"], page["next"], page["counts"]) == (1, None, {"queued": 1})
    detail = ann.get(f"/jobs/{job['id']}").json()
    assert detail["spec"]["run"] == detail["command"] == "train.py -x 1"
    assert (detail["tags"], detail["attempts"], detail["after"]) == ({"lr": "0.1"}, [], [])
    assert "vision" in [one["name"] for one in ann.get("/projects").json()["projects"]]
    queued = ann.get("/queues").json()["queues"]
    assert job["id"] in [one["id"] for one in queued[0]["jobs"]]


def test_pages_go_on_from_their_cursor_in_any_order(web: WebService) -> None:
    client = web.user("pages")
    made = [submit(client, name=name)["id"] for name in ("b", "a", "c")]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    for _ in made:
        page = client.get("/jobs", params={"user": "pages", "sort": "name", "limit": 1, **cursor}).json()
        seen += [one["name"] for one in page["jobs"]]
        cursor = {"cursor": page["next"] or ""}
    assert seen == ["a", "b", "c"]
    assert client.get("/jobs", params={"cursor": "?"}).status_code == 422
    assert client.get("/jobs", params={"sort": "shoe"}).status_code == 422
    assert client.get("/jobs", params={"state": "asleep"}).json()["error"]["code"] == "invalid"


def test_a_bad_specification_is_answered_field_by_field(web: WebService) -> None:
    client = web.user("bad-spec")
    wrong = {"run": "train.py", "workers": "8:2", "resources": {"memory": "lots"}}
    answer = client.post("/jobs", json={"spec": wrong})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["code"] == "bad-spec"
    assert [one["path"] for one in error["problems"]] == ["workers", "resources.memory"]
    unknown = client.post("/jobs", json={"yaml": "run: train.py\nworker: 2"}).json()["error"]
    assert "did you mean workers?" in unknown["problems"][0]["next"]
    never = client.post("/jobs", json={"spec": {"run": "a.py", "resources": {"gpus": 99}}})
    assert never.status_code == 422
    assert client.post("/jobs", json={}).status_code == 422
    assert client.post("/jobs", content=b"{").status_code == 400
    assert client.post("/jobs", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415


def test_a_dry_run_and_an_array(web: WebService) -> None:
    client = web.user("array")
    text = "run: train.py --lr {lr}\nname: sweep\narray: {lr: [1, 2, 3]}"
    plan = client.post("/jobs", json={"yaml": text, "dry_run": True}).json()
    assert [one["command"] for one in plan["plan"]] == [f"train.py --lr {n}" for n in (1, 2, 3)]
    assert client.get("/jobs", params={"user": "array"}).json()["total"] == 0
    made = client.post("/jobs", json={"yaml": text}).json()
    assert [one["name"] for one in made["jobs"]] == ["sweep-0", "sweep-1", "sweep-2"]


def test_a_request_that_is_sent_again_submits_once(web: WebService) -> None:
    client = web.user("twice")
    ask: dict[str, Any] = {"json": {"spec": {"run": "a.py"}}, "headers": {"idempotency-key": "k1"}}
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: client.post("/jobs", **ask), range(4)))
    good = {one.text for one in answers if one.status_code == 201}
    assert len(good) == 1
    assert {one.status_code for one in answers} <= {201, 409}
    again = client.post("/jobs", **ask)
    assert again.text in good
    assert again.headers["idempotent-replay"] == "true"
    assert client.get("/jobs", params={"user": "twice"}).json()["total"] == 1
    other = client.post("/jobs", json={"spec": {"run": "b.py"}}, headers={"idempotency-key": "k1"})
    assert other.status_code == 422
    bad: dict[str, Any] = {"json": {"spec": {"run": ""}}, "headers": {"idempotency-key": "k2"}}
    assert [client.post("/jobs", **bad).status_code for _ in range(2)] == [422, 422]


def test_actions_change_the_state_or_are_refused(web: WebService) -> None:
    client = web.user("actor")
    number = submit(client)["id"]
    assert client.post(f"/jobs/{number}/hold").json()["state"] == "held"
    refused = client.post(f"/jobs/{number}/hold")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "wrong-state")
    assert client.post(f"/jobs/{number}/release").status_code == 202
    changed = client.patch(
        f"/jobs/{number}", json={"priority": 80, "tags": {"a": "b"}, "pinned": True}
    ).json()
    assert (changed["priority"], changed["tags"], changed["pinned"]) == (80, {"a": "b"}, True)
    assert client.post(f"/jobs/{number}/scale", json={"workers": 3}).status_code == 409
    assert client.delete(f"/jobs/{number}").status_code == 409
    assert client.post(f"/jobs/{number}/stop").json()["state"] == "stopped"
    assert client.delete(f"/jobs/{number}").status_code == 409  # it is pinned
    assert client.patch(f"/jobs/{number}", json={"pinned": False}).status_code == 200
    assert client.delete(f"/jobs/{number}").status_code == 204
    assert client.get(f"/jobs/{number}").status_code == 404
    kinds = [one["action"] for one in web.admin().get("/audit", params={"user": "actor"}).json()["entries"]]
    assert set(kinds) >= {"submit", "hold", "release", "priority", "change", "stop", "remove"}


def test_a_clone_has_the_changes_and_the_difference_is_told(web: WebService) -> None:
    client = web.user("cloner")
    code = {"a.py": b"print(1)\n", "b.py": b"x = 1\n"}, {"a.py": b"print(2)\n", "c.bin": b"\0\1"}
    digests = [upload(client, files) for files in code]
    answer = client.post("/jobs", json={"spec": {"run": "a.py", "env": {"X": "1"}}, "snapshot": digests[0]})
    one = answer.json()["jobs"][0]["id"]
    cloned = client.post(f"/jobs/{one}/clone", json={"changes": {"queue": {"priority": 90}}})
    assert cloned.status_code == 201, cloned.text
    two = cloned.json()["jobs"][0]
    assert (two["parent_id"], two["snapshot"], two["priority"]) == (one, digests[0], 90)
    three = client.post(
        "/jobs", json={"spec": {"run": "a.py", "env": {"X": "2"}}, "snapshot": digests[1]}
    ).json()["jobs"][0]["id"]
    told = client.get(f"/jobs/{one}/diff", params={"with": three}).json()
    assert told["spec"] == [{"path": "env.X", "before": "1", "after": "2"}]
    assert [(file["path"], file["change"]) for file in told["code"]] == [
        ("a.py", "changed"),
        ("b.py", "removed"),
        ("c.bin", "added"),
    ]
    assert "-print(1)\n+print(2)\n" in told["code"][0]["diff"]
    assert told["code"][2]["diff"] is None
    assert client.get(f"/jobs/{one}/code/a.py").content == b"print(1)\n"
    assert [file["path"] for file in client.get(f"/jobs/{one}/code").json()["files"]] == ["a.py", "b.py"]
    assert client.get(f"/jobs/{one}/code/none.py").status_code == 404


def upload(client: httpx.Client, files: dict[str, bytes]) -> str:
    """Send a snapshot as a client does: what it is, what is missing, and what it is once more."""
    entries = [
        {"path": path, "kind": "file", "digest": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for path, data in sorted(files.items())
    ]
    told = client.post("/snapshots", json={"files": entries}).json()
    by_digest = {hashlib.sha256(data).hexdigest(): data for data in files.values()}
    for digest in told["missing"]:
        assert client.put(f"/blobs/{digest}", content=by_digest[digest]).status_code == 204
    again = client.post("/snapshots", json={"files": entries}).json()
    assert again == {"digest": told["digest"], "missing": []}
    return str(told["digest"])


def test_a_snapshot_must_be_sent_before_it_is_used(web: WebService) -> None:
    client = web.user("snapshots")
    answer = client.post("/jobs", json={"spec": {"run": "a.py"}, "snapshot": "0" * 64})
    assert answer.status_code == 422
    wrong = client.put(f"/blobs/{'0' * 64}", content=b"other bytes")
    assert (wrong.status_code, "must have the digest" in wrong.text) == (422, True)
    assert client.put("/blobs/short", content=b"").status_code == 422
    entry = {"path": "../x", "kind": "file", "digest": "0" * 64, "size": 1}
    assert client.post("/snapshots", json={"files": [entry]}).status_code == 422
    assert not list((web.folder / "blobs").rglob(".draft-*"))


@pytest.mark.parametrize(
    "path", ["/jobs/99999999", "/jobs/99999999/metrics", f"/jobs/{2**70}", "/jobs/x", "/no"]
)
def test_what_is_not_there_is_not_found(web: WebService, path: str) -> None:
    answer = web.admin().get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found")


def test_an_ended_job_can_be_retried(web: WebService) -> None:
    client = web.user("retrier")
    number = submit(client)["id"]
    end(web, number)
    assert client.post(f"/jobs/{number}/retry").json()["state"] == "queued"
    overview = client.get("/overview").json()
    assert overview["hosts"] == {"up": 0, "drained": 1, "lost": 0}
    assert number in [one["id"] for one in overview["waiting"]]


def test_retention_tells_first_and_removes_when_told(web: WebService) -> None:
    client, admin = web.user("kept"), web.admin()
    number = submit(client, project="retained")["id"]
    end(web, number)
    web.write(lambda c: c.execute(sa.update(job).where(job.c.id == number).values(ended_ms=1)))
    told = admin.post("/retention", json={"days": 1000}).json()
    assert ([one["id"] for one in told["jobs"]], told["dry_run"]) == ([number], True)
    assert client.get(f"/jobs/{number}").status_code == 200
    assert client.post("/retention", json={"days": 1000, "dry_run": False}).status_code == 403
    assert admin.post("/retention", json={"days": 1000, "dry_run": False}).json()["jobs"][0]["id"] == number
    assert client.get(f"/jobs/{number}").status_code == 404
