"""Reports of jobs over HTTP: metrics, curves, logs, files, elastic history, findings."""

from __future__ import annotations

import gzip
import json
import platform
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from testing.jobs.web import WebService
from tests.jobs.api.test_jobs_routes import submit

from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.routes.files import safe_place
from weft.jobs.code.environment import record_environment
from weft.jobs.store.attempts import AttemptShare, add_attempt
from weft.jobs.store.tables import finding, job


def started(web: WebService, client: httpx.Client, **spec: Any) -> tuple[int, Path]:
    """A job with an attempt on paper, and the folder of the attempt."""
    number = submit(client, **spec)["id"]
    folder = web.folder / "jobs" / str(number) / "attempt-1"
    (folder / "run").mkdir(parents=True)

    def work(connection: sa.Connection) -> None:
        shares = (AttemptShare("a", 2), AttemptShare("b", 1))
        add_attempt(
            connection, number, 1, run_dir=str(folder / "run"), shares=shares, token="t", keeper_host="a",
            boot_id="b",
        )  # fmt: skip
        connection.execute(sa.update(job).where(job.c.id == number).values(attempt=1, state="running"))

    web.write(work)
    return number, folder


def test_points_are_kept_once_and_curves_tell_of_odd_values(web: WebService) -> None:
    client = web.user("points")
    number = submit(client)["id"]
    points: list[list[Any]] = [["loss", step, 1000 + step, 1.0 / (step + 1)] for step in range(100)]
    points += [["loss", 100, 1100, "NaN"], ["loss", 101, 1101, "Infinity"], ["val/acc", 5, 1, 0.5]]
    body = {"source": "me", "sequence": 1, "points": points}
    assert client.post(f"/jobs/{number}/points", json=body).json() == {"new": True}
    assert client.post(f"/jobs/{number}/points", json=body).json() == {"new": False}
    metrics = {one["name"]: one for one in client.get(f"/jobs/{number}/metrics").json()["metrics"]}
    assert (metrics["loss"]["points"], metrics["loss"]["last"]) == (102, "Infinity")
    assert (metrics["loss"]["lowest"], metrics["loss"]["highest"]) == (0.01, 1.0)
    (curve,) = client.get(f"/jobs/{number}/curves", params={"names": "loss"}).json()["curves"]
    assert curve["steps"] == list(range(102))
    assert curve["mean"][:2] == [1.0, 0.5]
    assert curve["mean"][100:] == [None, None]
    assert curve["odd"] == [{"index": 100, "value": "NaN"}, {"index": 101, "value": "Infinity"}]
    (part,) = client.get(
        f"/jobs/{number}/curves", params={"names": "loss", "first_step": 10, "last_step": 49, "points": 10}
    ).json()["curves"]
    assert len(part["steps"]) == 10
    assert part["high"][0] == pytest.approx(1 / 11)
    every = client.get(f"/jobs/{number}/curves").json()["curves"]
    assert [one["name"] for one in every] == ["loss", "val/acc"]
    bad = client.post(f"/jobs/{number}/points", json={**body, "sequence": 2, "points": [["a", 1, 1, "many"]]})
    assert bad.status_code == 422


def test_a_list_shows_the_most_telling_metric(web: WebService) -> None:
    client = web.user("headlines")
    number, _ = started(web, client)
    points = [[name, step, step, step / 2] for step in range(200) for name in ("system/cpu", "zeta", "loss")]
    client.post(f"/jobs/{number}/points", json={"source": "me", "sequence": 1, "points": points})
    (shown,) = client.get("/jobs", params={"user": "headlines"}).json()["jobs"]
    headline = shown["headline"]
    assert (headline["name"], headline["last"]) == ("loss", 99.5)
    assert 0 < len(headline["values"]) <= 32
    assert headline["values"] == sorted(headline["values"])


def test_long_answers_are_compressed_for_those_who_can_read_them(web: WebService) -> None:
    client = web.user("gzip")
    number = submit(client)["id"]
    points = [["loss", step, step, 0.5] for step in range(2000)]
    client.post(f"/jobs/{number}/points", json={"source": "me", "sequence": 1, "points": points})
    with client.stream("GET", f"/jobs/{number}/curves") as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert len(json.loads(gzip.decompress(raw))["curves"][0]["steps"]) == 2000
    plain = client.get(f"/jobs/{number}/curves", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers


def test_events_and_findings(web: WebService) -> None:
    client = web.user("events")
    number = submit(client)["id"]
    client.post(f"/jobs/{number}/hold")
    events = client.get(f"/jobs/{number}/events").json()["events"]
    assert (events[-1]["kind"], events[-1]["data"]["state"]) == ("state", "held")
    assert client.get(f"/jobs/{number}/events", params={"after": events[-1]["id"]}).json() == {"events": []}
    row = {"job_id": number, "rule": "plateau", "severity": "warning", "text": "no gain", "evidence": '{"gain": 0.1}',
           "first_ms": 1, "last_ms": 2}  # fmt: skip
    web.write(lambda c: c.execute(sa.insert(finding), row))
    (found,) = client.get(f"/jobs/{number}/findings").json()["findings"]
    assert (found["rule"], found["evidence"], found["action"]) == ("plateau", {"gain": 0.1}, None)
    assert number in [one["job"] for one in client.get("/overview").json()["findings"]]


def test_logs_are_paged_searched_and_sent_whole(web: WebService) -> None:
    client = web.user("logs")
    number, folder = started(web, client)
    (folder / "launcher.log").write_text("starting\n[0] hello\n[1] world\n")
    lines = [f"line {n}" for n in range(1, 51)]
    (folder / "run" / "rank-0.log").write_text("\n".join(lines) + "\n")
    every = client.get(f"/jobs/{number}/logs").json()
    assert [(one["rank"], one["text"]) for one in every["lines"]] == [
        (-1, "starting"),
        (0, "hello"),
        (1, "world"),
    ]
    assert (every["ranks"], every["ended"]) == ([-1, 0], False)
    first = client.get(f"/jobs/{number}/logs", params={"rank": 0, "limit": 20}).json()
    second = client.get(f"/jobs/{number}/logs", params={"rank": 0, "cursor": first["next"]}).json()
    assert [one["text"] for one in first["lines"] + second["lines"]] == lines
    assert second["lines"][0]["number"] == 21
    found = client.get(f"/jobs/{number}/logs", params={"rank": 0, "grep": "4[01]$"}).json()
    assert [one["text"] for one in found["lines"]] == ["line 40", "line 41"]
    tail = client.get(f"/jobs/{number}/logs", params={"rank": 0, "tail": 2}).json()
    assert [one["text"] for one in tail["lines"]] == ["line 49", "line 50"]
    above = client.get(f"/jobs/{number}/logs", params={"rank": 0, "before": tail["first"], "limit": 1}).json()
    assert [one["text"] for one in above["lines"]] == ["line 48"]
    raw = client.get(f"/jobs/{number}/logs/raw", params={"rank": 0})
    assert raw.text == (folder / "run" / "rank-0.log").read_text()
    assert client.get(f"/jobs/{number}/logs/raw", params={"rank": 7}).status_code == 404
    assert client.get(f"/jobs/{number}/logs", params={"grep": "("}).status_code == 422
    assert client.get(f"/jobs/{number}/logs", params={"attempt": 3}).status_code == 404


def test_files_are_listed_previewed_and_downloaded_safely(web: WebService) -> None:
    client = web.user("files")
    number, folder = started(web, client)
    (folder / "run" / "secret.json").write_text("the run's secret")
    (folder / "launcher.log").write_text("x")
    (folder / "outputs").mkdir()
    (folder / "outputs" / "page.html").write_text("<script>alert(1)</script>")
    (folder / "outputs" / "plot.png").write_bytes(b"\x89PNG")
    (folder / "outputs" / "link").symlink_to(web.folder / "secret.key")
    base = f"/jobs/{number}/files"
    assert [one["path"] for one in client.get(base).json()["entries"]] == ["attempt-1"]
    inside = client.get(base, params={"path": "attempt-1"}).json()["entries"]
    assert [one["path"] for one in inside] == ["attempt-1/outputs"]
    listed = client.get(base, params={"path": "attempt-1/outputs"}).json()["entries"]
    assert [(one["path"].rpartition("/")[2], one["kind"]) for one in listed] == [
        ("page.html", "other"),
        ("plot.png", "image"),
    ]
    page = client.get(f"{base}/attempt-1/outputs/page.html")
    assert page.text == "<script>alert(1)</script>"
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]
    shown = client.get(f"{base}/attempt-1/outputs/page.html", params={"preview": "true"})
    assert shown.headers["content-type"].startswith("text/plain")
    picture = client.get(f"{base}/attempt-1/outputs/plot.png", params={"preview": "true"})
    assert picture.headers["content-type"] == "image/png"
    for path in (
        "attempt-1/outputs/link",
        "attempt-1/run/secret.json",
        "attempt-1/launcher.log",
        "attempt-1/outputs/../run/secret.json",
        "attempt-1/outputs/%2e%2e/run/secret.json",
        "..%2f..%2fsecret.key",
        "%2fetc%2fpasswd",
        "attempt-1",
    ):
        assert client.get(f"{base}/{path}").status_code == 404, path


@pytest.mark.parametrize(
    "path", ["/etc", "../x", "attempt-1/../../y", "run", "attempt-1/run", "attempt-1/x\0y", "other"]
)
def test_places_outside_of_what_is_shown_are_not_found(tmp_path: Path, path: str) -> None:
    for name in ("attempt-1/run", "attempt-1/outputs", "run", "other"):
        (tmp_path / name).mkdir(parents=True)
    assert safe_place(tmp_path, "attempt-1/outputs").is_dir()
    with pytest.raises(ApiRefusal, match="must exist"):
        safe_place(tmp_path, path)


def test_a_plain_run_has_no_elastic_history_but_its_ranks(web: WebService) -> None:
    client = web.user("plain")
    number, _ = started(web, client)
    assert client.get(f"/jobs/{number}/timeline").json() == {"elastic": False, "items": []}
    assert client.get(f"/jobs/{number}/ledger").json()["verdict"] == "none"
    points = [["step_s", step, step, 0.1] for step in range(100)] + [["step_s@1", 1, 1, 0.2]]
    client.post(f"/jobs/{number}/points", json={"source": "me", "sequence": 1, "points": points})
    ranks = client.get(f"/jobs/{number}/ranks").json()["ranks"]
    assert [(one["rank"], one["host"]) for one in ranks] == [(0, "a"), (1, "a"), (2, "b")]
    assert ranks[0]["step_ms"] == pytest.approx(100.0)
    assert [len(one["values"]) for one in ranks] == [64, 1, 0]
    hosts = client.get("/hosts").json()["hosts"]
    assert [one["name"] for one in hosts] == ["paper"]
    assert client.get("/hosts/nowhere").status_code == 404
    assert client.get("/hosts/paper").json()["topology"] is None


def test_the_environment_of_an_attempt_is_shown_and_compared(web: WebService) -> None:
    client = web.user("environment")
    (one, folder), (two, other) = started(web, client), started(web, client)
    record_environment(folder)
    shown = client.get(f"/jobs/{one}").json()["environment"]
    assert shown["python"] == platform.python_version()
    assert "msgspec" in shown
    (other / "environment.json").write_text(json.dumps(shown | {"msgspec": "0.0"}))
    told = client.get(f"/jobs/{one}/diff", params={"with": two}).json()
    assert told["environment"] == [{"path": "msgspec", "before": shown["msgspec"], "after": "0.0"}]
