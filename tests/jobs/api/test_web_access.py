"""Who may: sessions, CSRF, roles, scopes, other users' ids, limits on guesses, and what other sites may not do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from testing.jobs.web import WebService
from tests.jobs.api.conftest import StartWeb
from tests.jobs.api.test_jobs_routes import submit

from weft.jobs.accounts.tokens import make_token
from weft.jobs.api.app import JobsApplication
from weft.jobs.api.operations import OPERATIONS
from weft.jobs.store.tables import secret, token, user
from weft.serve.server.hosts import LoopbackHosts


def log_in(web: WebService, client: httpx.Client, **login: str) -> dict[str, Any]:
    answer = client.post("/session", json=login)
    assert answer.status_code == 201, answer.text
    client.headers["x-weft-csrf"] = answer.json()["csrf"]
    return dict(answer.json())


def make_user(
    web: WebService, name: str, password: str | None = "correct horse", role: str = "member"
) -> int:
    answer = web.admin().post("/users", json={"name": name, "role": role, "password": password})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def test_the_printed_link_logs_in_once(web: WebService) -> None:
    link = web.running.link.partition("#link=")[2]
    client = web.client()
    told = log_in(web, client, link=link)
    assert told["user"]["role"] == "admin"
    assert client.get("/session").json()["csrf"] == told["csrf"]
    assert web.client().post("/session", json={"link": link}).status_code == 401


def test_a_session_needs_its_csrf_header_for_writes(web: WebService) -> None:
    make_user(web, "cookie")
    client = web.client()
    answer = client.post("/session", json={"name": "cookie", "password": "correct horse"})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/jobs").status_code == 200
    refused = client.post("/jobs", json={"spec": {"run": "a.py"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "csrf")
    headers = {"x-weft-csrf": answer.json()["csrf"]}
    assert client.post("/jobs", json={"spec": {"run": "a.py"}}, headers=headers).status_code == 201
    evil = headers | {"origin": "https://evil.example"}
    assert client.post("/jobs", json={"spec": {"run": "a.py"}}, headers=evil).status_code == 403
    assert client.delete("/session", headers=headers).status_code == 204
    assert client.get("/jobs").status_code == 401


@pytest.mark.parametrize("one", [one for one in OPERATIONS if one.access != "open"], ids=lambda one: one.name)
def test_nothing_is_answered_without_a_login(web: WebService, one: Any) -> None:
    path = one.path
    for name, kind in one.parameters:
        path = path.replace(f"{{{name}:{kind}}}", "1").replace(f"{{{name}}}", "1")
    answer = web.client().request(one.method.upper(), path, json={})
    assert answer.status_code == 401
    bad = web.client("weft_wrong").request(one.method.upper(), path, json={})
    assert bad.status_code == 401


@pytest.mark.parametrize(
    "one", [one for one in OPERATIONS if one.access == "admin"], ids=lambda one: one.name
)
def test_members_are_no_administrators(web: WebService, one: Any) -> None:
    path = one.path.replace("{user:int}", "1").replace("{host}", "paper")
    client = web.user(f"member-{one.name}")
    assert client.request(one.method.upper(), path, json={}).status_code == 403
    limited = web.client(
        web.write(lambda c: make_token(c, 1, name="limited", scopes=("read", "write")))
    )  # of an administrator, without that scope
    assert limited.request(one.method.upper(), path, json={}).status_code == 403


def test_viewers_see_and_change_nothing(web: WebService) -> None:
    owner, viewer = web.user("owner-1"), web.user("viewer-1", "viewer")
    number = submit(owner)["id"]
    shown = viewer.get(f"/jobs/{number}").json()
    assert (shown["id"], shown["mine"]) == (number, False)
    assert viewer.post("/jobs", json={"spec": {"run": "a.py"}}).status_code == 403
    for method, path in (("POST", f"/jobs/{number}/stop"), ("DELETE", f"/jobs/{number}")):
        assert viewer.request(method, path).status_code == 403


def test_members_of_a_shared_service_see_all_and_act_on_their_own(web: WebService) -> None:
    owner, other = web.user("owner-2"), web.user("other-2")
    number = submit(owner)["id"]
    assert other.get(f"/jobs/{number}").status_code == 200
    refused = other.post(f"/jobs/{number}/stop")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert other.patch(f"/jobs/{number}", json={"priority": 1}).status_code == 403
    assert web.admin().post(f"/jobs/{number}/stop").status_code == 202


def test_other_users_ids_are_not_found_on_a_service_that_is_not_shared(start_web: StartWeb) -> None:
    web = start_web(shared=False)
    owner, other = web.user("owner"), web.user("other")
    number = submit(owner, name="private")["id"]
    none = other.get("/jobs/9999").json()
    for one in OPERATIONS:
        if "{job:int}" in one.path:
            path = one.path.replace("{job:int}", str(number)).replace("{path:path}", "x")
            query = {"with": number} if one.name == "diff_jobs" else {}
            body = _body(one.name)
            answer = other.request(one.method.upper(), path, params=query, json=body)
            assert answer.status_code == 404, (one.name, answer.text)
    told = other.get(f"/jobs/{number}").json()
    assert told["error"]["text"].replace(str(number), "N") == none["error"]["text"].replace("9999", "N")
    assert other.get("/jobs").json()["total"] == 0
    assert other.get("/overview").json()["waiting"] == []
    assert other.get("/projects").json()["projects"] == []
    assert other.get("/queues").json()["queues"] == []
    assert other.get("/stream", params={"topics": f"job:{number}"}).status_code == 404
    assert web.admin().get(f"/jobs/{number}").status_code == 200


def _body(name: str) -> dict[str, Any] | None:
    bodies: dict[str, dict[str, Any]] = {
        "add_points": {"source": "a", "sequence": 1, "points": []},
        "scale_job": {"workers": 2},
        "change_job": {},
        "clone_job": {},
    }
    return bodies.get(name)


def test_a_token_has_no_more_scopes_than_its_maker_and_expires(web: WebService) -> None:
    client = web.user("tokens")
    assert client.post("/tokens", json={"name": "a", "scopes": ["admin"]}).status_code == 403
    made = client.post("/tokens", json={"name": "reader", "scopes": ["read"], "days": 1}).json()
    assert made["text"].startswith("weft_")
    reader = web.client(made["text"])
    assert reader.get("/jobs").status_code == 200
    assert reader.post("/jobs", json={"spec": {"run": "a.py"}}).status_code == 403
    assert reader.post("/tokens", json={"name": "b", "scopes": ["write"]}).status_code == 403
    listed = client.get("/tokens").json()["tokens"]
    assert made["text"] not in str(listed)
    number = made["token"]["id"]
    web.write(lambda c: c.execute(sa.update(token).where(token.c.id == number).values(expires_ms=1)))
    assert reader.get("/jobs").status_code == 401
    assert web.user("not-mine").delete(f"/tokens/{number}").status_code == 404
    assert client.delete(f"/tokens/{number}").status_code == 204


def test_a_token_of_a_job_reports_to_that_job_alone(web: WebService) -> None:
    client = web.user("job-owner")
    mine, other = submit(client)["id"], submit(client)["id"]
    number = web.write(
        lambda c: c.execute(sa.select(user.c.id).where(user.c.name == "job-owner")).scalar_one()
    )
    text = web.write(lambda c: make_token(c, number, kind="job", name="job", scopes=(f"job:{mine}",)))
    worker = web.client(text)
    batch = {"source": "w", "sequence": 1, "points": [["loss", 1, 1, 0.5]]}
    assert worker.post(f"/jobs/{mine}/points", json=batch).json() == {"new": True}
    assert worker.post(f"/jobs/{other}/points", json=batch).status_code == 403
    assert worker.get(f"/jobs/{mine}").status_code == 200
    for method, path in (
        ("GET", "/jobs"),
        ("POST", f"/jobs/{mine}/stop"),
        ("GET", "/tokens"),
        ("POST", "/jobs"),
    ):
        assert worker.request(method, path, json={}).status_code == 403
    assert worker.get("/stream", params={"topics": "jobs"}).status_code == 403


def test_guesses_of_a_password_are_limited(start_web: StartWeb) -> None:
    web = start_web()
    make_user(web, "target")
    client = web.client()
    wrong = {"name": "target", "password": "wrong password"}
    seen = [client.post("/session", json=wrong) for _ in range(11)]
    assert [one.status_code for one in seen] == [401] * 10 + [429]
    assert int(seen[-1].headers["retry-after"]) > 0
    right = client.post("/session", json={"name": "target", "password": "correct horse"})
    assert right.status_code == 429  # also for who guesses right at last
    actions = [one["action"] for one in web.admin().get("/audit").json()["entries"]]
    assert actions.count("log in refused") == 12


def test_a_disabled_user_is_out_at_once(web: WebService) -> None:
    number = make_user(web, "leaver")
    client = web.client()
    log_in(web, client, name="leaver", password="correct horse")
    assert client.get("/jobs").status_code == 200
    assert web.admin().patch(f"/users/{number}", json={"disabled": True}).status_code == 200
    assert client.get("/jobs").status_code == 401
    again = web.client().post("/session", json={"name": "leaver", "password": "correct horse"})
    assert again.status_code == 401
    assert web.admin().post(f"/users/{number}/link").status_code == 409


def test_users_change_their_own_password_alone(web: WebService) -> None:
    number, other = make_user(web, "changer"), make_user(web, "bystander")
    client = web.client()
    log_in(web, client, name="changer", password="correct horse")
    new = {"password": "battery staple", "old_password": "correct horse"}
    assert client.patch(f"/users/{other}", json=new).status_code == 404
    assert client.patch(f"/users/{number}", json={"role": "admin"}).status_code == 403
    assert client.patch(f"/users/{number}", json={"password": "battery staple"}).status_code == 403
    assert client.patch(f"/users/{number}", json=new).status_code == 200
    assert client.get("/jobs").status_code == 401  # logged out everywhere
    log_in(web, client, name="changer", password="battery staple")
    link = web.admin().post(f"/users/{number}/link").json()["url"].partition("#link=")[2]
    log_in(web, web.client(), link=link)


def test_secrets_are_kept_sealed_and_never_answered(web: WebService) -> None:
    client = web.user("keeper")
    assert client.post("/secrets", json={"name": "HF_TOKEN", "value": "hf_very_secret"}).status_code == 201
    assert client.post("/secrets", json={"name": "HF_TOKEN", "value": "hf_very_secret2"}).status_code == 201
    listed = client.get("/secrets")
    assert [one["name"] for one in listed.json()["secrets"]] == ["HF_TOKEN"]
    assert "hf_very" not in listed.text
    (row,) = web.write(lambda c: c.execute(sa.select(secret)).all())
    assert b"hf_very" not in row.sealed
    assert web.running.state.sealer.open(row.sealed) == "hf_very_secret2"
    audit = web.admin().get("/audit", params={"user": "keeper"})
    assert "add secret" in audit.text
    assert "hf_very" not in audit.text
    assert web.user("thief").delete("/secrets/HF_TOKEN").status_code == 404
    assert client.delete("/secrets/HF_TOKEN").status_code == 204


def test_a_quota_is_set_shown_and_told_at_submit(web: WebService) -> None:
    number, admin = make_user(web, "limited"), web.admin()
    shown = admin.put(f"/users/{number}/quota", json={"weight": 2, "cpus": 0.5})
    assert (shown.status_code, shown.json()["quota"]["cpus"]) == (200, 0.5)
    listed = {user["name"]: user["quota"] for user in admin.get("/users").json()["users"]}
    assert listed["limited"] == {"weight": 2.0, "cpus": 0.5, "memory_bytes": None, "gpus": None}
    client = web.client()
    log_in(web, client, name="limited", password="correct horse")
    refused = client.post("/jobs", json={"spec": {"run": "a.py", "resources": {"cpus": 1}}})
    assert refused.status_code == 422
    assert "quota of limited" in refused.json()["error"]["text"]
    assert submit(client, resources={"cpus": 0.25}, queue={"hold": True})["state"] == "held"
    assert client.put(f"/users/{number}/quota", json={}).status_code == 403
    for wrong in ({"weight": 0}, {"cpus": -1}, {"cores": 1}):
        assert admin.put(f"/users/{number}/quota", json=wrong).status_code == 422
    assert admin.put("/users/999/quota", json={}).status_code == 404
    assert admin.put(f"/users/{number}/quota", json={}).json()["quota"]["cpus"] is None


def test_secrets_and_data_that_are_not_there_are_told_at_submit(web: WebService) -> None:
    spec = {"run": "a.py", "secrets": ["NOT_SET"], "data": {"d": "dataset:nothing@3", "p": "/data"}}
    refused = web.admin().post("/jobs", json={"spec": spec, "dry_run": True})
    assert refused.status_code == 422
    assert [one["path"] for one in refused.json()["error"]["problems"]] == ["secrets", "data.d"]
    assert "weft secret set NOT_SET" in refused.text


def test_a_released_job_no_longer_says_that_it_is_held(web: WebService) -> None:
    client = web.admin()
    number = submit(client, queue={"hold": True})["id"]
    released = client.post(f"/jobs/{number}/release").json()
    # Why it still waits hangs on the other jobs of this service, and on what its host has free.
    assert released["state"] == "queued"
    assert (released["reason"] or {}).get("why") != "held"


def test_passwords_are_not_in_the_audit(web: WebService) -> None:
    make_user(web, "quiet", "super secret words")
    assert "super secret" not in web.admin().get("/audit").text


def test_every_write_is_audited(start_web: StartWeb) -> None:
    web = start_web()  # its host takes jobs for a moment, so there must be none
    admin = web.admin()
    number = make_user(web, "audited")
    host = "/hosts/paper"
    requests = [
        ("PATCH", f"/users/{number}", {"role": "viewer"}, "change user"),
        ("POST", f"/users/{number}/link", None, "make link"),
        ("DELETE", f"/users/{number}", None, "remove user"),
        ("POST", "/tokens", {"name": "t"}, "add token"),
        ("PATCH", host, {"labels": ["fast"]}, "change host"),
        ("POST", f"{host}/undrain", None, "undrain host"),
        ("POST", f"{host}/drain", None, "drain host"),
        ("POST", "/webhooks", {"url": "https://example.org/x"}, "add webhook"),
    ]
    for method, path, body, action in requests:
        answer = admin.request(method, path, json=body)
        assert answer.status_code in (200, 201, 202, 204), (action, answer.text)
        newest = admin.get("/audit", params={"limit": 1}).json()["entries"][0]
        assert newest["action"] == action
    pages = admin.get("/audit", params={"limit": 2}).json()
    following = admin.get("/audit", params={"limit": 2, "cursor": pages["next"]}).json()
    assert following["entries"][0]["id"] < pages["entries"][-1]["id"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_service_on_loopback_answers_to_local_names_alone(web: WebService, host: str) -> None:
    answer = web.admin().get("/jobs", headers={"host": host})
    assert answer.status_code == 421


def test_answers_have_the_headers_that_keep_others_out(web: WebService) -> None:
    with httpx.Client(base_url=web.url) as plain:
        for path in ("/", "/jobs/7", "/api/v1/health", "/api/v1/nothing"):
            headers = plain.get(path).headers
            assert "default-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"


def test_bodies_are_bounded(web: WebService) -> None:
    client = web.user("large")
    big = b'{"yaml": "' + b"x" * (9 << 20) + b'"}'
    assert client.post("/jobs", content=big, headers={"content-type": "application/json"}).status_code == 413
    assert client.post("/jobs", json={"yaml": "x" * (2 << 20)}).status_code == 422
    assert client.post("/jobs", json={"yaml": "run: a\0"}).status_code == 422
    assert client.get("/jobs", params={"q": "x" * 300}).status_code == 422
    assert client.get("/jobs?q=1&q=2").status_code == 422
    assert client.get("/jobs?limit=0").status_code == 422
    assert client.get("/jobs?colour=red").status_code == 422


@pytest.mark.parametrize(
    ("headers", "answer"),
    [
        ({"host": "localhost:1"}, "websocket.accept"),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, "websocket.accept"),
        ({"host": "localhost:1", "origin": "http://evil.example"}, "websocket.close"),
        ({"host": "evil.example"}, "websocket.close"),
    ],
)
def test_web_sockets_are_for_pages_of_the_service_alone(
    web: WebService, headers: dict[str, str], answer: str
) -> None:
    async def door(socket: WebSocket) -> None:
        await socket.accept()

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    doors = [WebSocketRoute("/door", door)]
    app = JobsApplication(web.running.state, doors=doors, hosts=LoopbackHosts(()))
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "websocket", "path": "/door", "headers": raw, "query_string": b"", "subprotocols": []}
    asyncio.run(app(scope, receive, send))
    assert sent == [answer]
