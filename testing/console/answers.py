"""Answers of the made-up service, one function an operation of the API."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from testing.console import texts
from testing.console.world import World, curve, findings_of, job_hosts, metrics_of, now_ms

from weft.jobs.api.types import accounts, cluster, files, jobs, reports
from weft.jobs.lifecycle import ACTIVE, StateError, state_after

SORTS = {"id": "id", "name": "name", "priority": "priority", "created": "created_ms", "ended": "ended_ms"}


def _job(world: World, request: Request) -> dict[str, Any]:
    found = world.jobs.get(int(request.path_params["job"]))
    if found is None:
        raise HTTPException(
            404, f"there must be a job {request.path_params['job']}, got none; weft jobs lists them"
        )
    return found


def list_jobs(world: World, request: Request) -> jobs.JobsAnswer:
    query = request.query_params
    found = list(world.jobs.values())
    for name in ("project", "user"):
        if query.get(name):
            found = [job for job in found if job[name] == query[name]]
    if query.get("q"):
        found = [job for job in found if query["q"].lower() in job["name"] or query["q"] == str(job["id"])]
    counts = Counter(job["state"] for job in found)
    if query.get("state"):
        found = [job for job in found if job["state"] in query["state"].split(",")]
    sort = query.get("sort", "-id")
    key = SORTS[sort.removeprefix("-")]
    found.sort(key=lambda job: (job[key] or 0, job["id"]), reverse=sort.startswith("-"))
    first, limit = int(query.get("cursor") or 0), int(query.get("limit") or 50)
    page = tuple(world.view(job["id"]) for job in found[first : first + limit])
    after = str(first + limit) if first + limit < len(found) else None
    return jobs.JobsAnswer(page, after, len(found), dict(counts))


def show_job(world: World, request: Request) -> jobs.JobDetail:
    job = _job(world, request)
    hosts = job_hosts(job)
    attempts: tuple[jobs.AttemptView, ...] = ()
    if job["started_ms"]:
        code = None if job["ended_ms"] is None else int(job["state"] != "completed")
        last = jobs.AttemptView(
            job["attempt"], job["started_ms"], job["ended_ms"], hosts, code, job["message"]
        )
        lost = jobs.AttemptView(
            1, job["started_ms"] - 900_000, job["started_ms"] - 300_000, hosts, 1, "host gx03 was lost"
        )
        attempts = (lost, last) if job["attempt"] > 1 else (last,)
    spec = texts.spec_of(job)
    return jobs.JobDetail(
        **job, spec=spec, command=f"python {spec['run']}", attempts=attempts, hosts=hosts, after=(),  # type: ignore[arg-type]
        metrics=metrics_of(world, job["id"]), params=texts.params_of(job), findings=findings_of(job),
        environment={"python": "3.13.1", "torch": "2.12.0+cu130", "weft": "0.9.0", "host": "login1"},
    )  # fmt: skip


def act(world: World, request: Request, action: Any) -> jobs.JobView:
    job = _job(world, request)
    try:
        job["state"] = state_after(action, job["state"])
    except StateError as wrong:
        raise HTTPException(409, str(wrong)) from None
    job["workers"] = job["workers"] if job["state"] in ACTIVE else 0
    if job["state"] == "queued":
        job["reason"] = jobs.ReasonView("priority", "others are before it", 3, now_ms() + 600_000)
    return world.view(job["id"])


async def scale_job(world: World, request: Request) -> jobs.JobView:
    job = _job(world, request)
    job["workers"] = (await request.json())["workers"]
    return world.view(job["id"])


async def change_job(world: World, request: Request) -> jobs.JobView:
    job = _job(world, request)
    job.update(await request.json())
    return world.view(job["id"])


async def clone_job(world: World, request: Request) -> jobs.SubmitAnswer:
    job = _job(world, request)
    made = job | {
        "id": max(world.jobs) + 1,
        "state": "queued",
        "parent_id": job["id"],
        "workers": 0,
        "attempt": 0,
    }
    made |= {
        "created_ms": now_ms(),
        "queued_ms": now_ms(),
        "started_ms": None,
        "ended_ms": None,
        "headline": None,
    }
    world.jobs[made["id"]] = made
    world.steps[made["id"]] = 0
    return jobs.SubmitAnswer((world.view(made["id"]),))


def list_projects(world: World, request: Request) -> jobs.ProjectsAnswer:
    counts = Counter(job["project"] for job in world.jobs.values())
    return jobs.ProjectsAnswer(
        tuple(jobs.JobNameUse(name, n, 1, now_ms()) for name, n in sorted(counts.items()))
    )


def list_queues(world: World, request: Request) -> jobs.QueuesAnswer:
    waiting = [
        world.view(job["id"]) for job in world.jobs.values() if job["state"] in ("queued", "held", "paused")
    ]
    waiting.sort(key=_place)
    return jobs.QueuesAnswer((jobs.QueueView("default", len(waiting), 1, tuple(waiting)),) if waiting else ())


def show_logs(world: World, request: Request) -> reports.LogsAnswer:
    """Return lines; a cursor is the number of lines before it."""
    query, job = request.query_params, _job(world, request)
    rank = int(query["rank"]) if query.get("rank") else None
    written = texts.log_lines(world, job["id"])
    every = written if rank is None else [line for line in written if line[0] == rank]
    limit, first = int(query.get("limit") or 1000), int(query.get("cursor") or 0)
    if query.get("before"):
        last = int(query["before"])
        first, page = max(0, last - limit), every[max(0, last - limit) : last]
    elif query.get("tail") and not query.get("cursor"):
        page = texts.matching(every, query.get("grep"))[-int(query["tail"]) :]
        first, last = len(every) - len(page), len(every)
    else:
        page = texts.matching(every[first:], query.get("grep"))[:limit]
        last = every.index(page[-1]) + 1 if len(page) == limit else len(every)
    ended = job["state"] not in ACTIVE and last >= len(every)
    ranks = tuple(sorted({line[0] for line in written}))
    lines = tuple(reports.LogLineView(*line) for line in page)
    return reports.LogsAnswer(lines, str(last), str(first), ended, ranks)


def show_curves(world: World, request: Request) -> reports.CurvesAnswer:
    query, job = request.query_params, _job(world, request)
    first, last = int(query.get("first_step") or 0), int(query.get("last_step") or 1 << 40)
    names = query.get("names", "loss").split(",")
    points = int(query.get("points") or 2000)
    return reports.CurvesAnswer(tuple(curve(world, job["id"], name, first, last, points) for name in names))


def list_events(world: World, request: Request) -> reports.EventsAnswer:
    found = texts.events_of(_job(world, request))
    return reports.EventsAnswer(tuple(reports.EventView(**event) for event in found))


def show_timeline(world: World, request: Request) -> reports.TimelineView:
    items = texts.timeline_of(_job(world, request))
    return reports.TimelineView(bool(items), tuple(items))


def show_ledger(world: World, request: Request) -> reports.LedgerView:
    job = _job(world, request)
    if job["min_workers"] == job["max_workers"] or job["started_ms"] is None:
        return reports.LedgerView(False, "none", "not an elastic run", 0, 0, ())
    steps = world.steps[job["id"]]
    verdict = "running" if job["state"] in ACTIVE else "whole"
    return reports.LedgerView(True, verdict, "every sample was used exactly once", steps, steps * 256, ())  # type: ignore[arg-type]


def list_ranks(world: World, request: Request) -> reports.RanksAnswer:
    job = _job(world, request)
    shares = job_hosts(job)
    rows: list[reports.RankView] = []
    for share in shares:
        for _ in range(share.workers):
            rank = len(rows)
            slow = 1.6 if rank == 3 else 1.0
            values = tuple(
                418 * slow + 22 * math.sin(rank * 7 + n * 1.7) + (240 if n == 40 else 0) for n in range(64)
            )
            rows.append(reports.RankView(rank, share.host, 418.0 * slow, values))
    return reports.RanksAnswer(tuple(rows), 0.17 if rows else None)


def list_files(world: World, request: Request) -> files.FilesAnswer:
    job, path = _job(world, request), request.query_params.get("path", "")
    if job["started_ms"] is None:
        return files.FilesAnswer((), False)
    at = job["started_ms"]
    listing: dict[str, list[tuple[str, int, Any]]] = {
        "": [("outputs", 0, "folder"), ("checkpoints", 0, "folder"), ("run.log", 18_233, "text")],
        "outputs": [
            ("outputs/confusion.png", 2_314, "image"), ("outputs/history.csv", len(texts.CSV), "table"),
            ("outputs/model.onnx", 97_400_000, "other"), ("outputs/report.json", 220, "text"),
        ],
        "checkpoints": [(f"checkpoints/step-{n}.pt", 204_800_000, "other") for n in (1200, 2400, 3600)],
    }  # fmt: skip
    entries = [
        files.FileEntry(p, size, kind == "folder", at, kind) for p, size, kind in listing.get(path, [])
    ]
    return files.FilesAnswer(tuple(entries), False)


def list_code(world: World, request: Request) -> files.CodeAnswer:
    shown = tuple(files.CodeFileView(path, "file", len(text), "0" * 64) for path, text in texts.CODE.items())
    return files.CodeAnswer(shown, "9f3c1ab7d20e64f1a0c5be7790a1d2c3e4f50617", True)


def diff_jobs(world: World, request: Request) -> files.DiffAnswer:
    job, other = _job(world, request), world.jobs[int(request.query_params["with"])]
    before, after = texts.spec_of(job), texts.spec_of(other)
    changed = tuple(
        files.ValueDiff(name, str(before[name]), str(after[name]))
        for name in before
        if before[name] != after[name]
    )
    code = (files.CodeDiff("train.py", "changed", texts.DIFF), files.CodeDiff("schedule.py", "added", None))
    return files.DiffAnswer(changed, code, (files.ValueDiff("torch", "2.11.0", "2.12.0"),), False)


def show_overview(world: World, request: Request) -> cluster.OverviewAnswer:
    views = [world.view(job_id) for job_id in sorted(world.jobs, reverse=True)]
    hosts = [world.host(name) for name in world.hosts]
    states = Counter(host.state for host in hosts)
    total = [cluster.ResourceView(*(sum(getattr(getattr(host, which), name) for host in hosts)
             for name in ("cpus", "memory_bytes", "gpus"))) for which in ("total", "used")]  # fmt: skip
    found = [
        cluster.FindingOfJob(job.id, job.name, f.rule, f.severity, f.text, f.last_ms)
        for job in views[:60]
        for f in findings_of(world.jobs[job.id])
    ]
    return cluster.OverviewAnswer(
        dict(Counter(job.state for job in views)),
        cluster.HostCounts(states["up"], states["drained"], states["lost"]),
        cluster.CapacityView(*total),
        tuple(job for job in views if job.state in ACTIVE)[:20],
        tuple(sorted((j for j in views if j.state in ("queued", "held", "paused")), key=_place)[:20]),
        tuple(job for job in views if job.state == "failed")[:20],
        tuple(found[:20]),
    )


def _place(job: jobs.JobView) -> int:
    return (job.reason.place if job.reason else None) or 1 << 30


def list_hosts(world: World, request: Request) -> cluster.HostsAnswer:
    return cluster.HostsAnswer(tuple(world.host(name) for name in world.hosts))


def show_host(world: World, request: Request) -> cluster.HostDetail:
    view = world.host(request.path_params["host"])
    cores = [{"socket": n // 32, "index": n, "numa": n // 16, "cpus": [n, n + 64]} for n in range(64)]
    gpus = [
        {
            "index": n,
            "model": "NVIDIA A100-SXM4-80GB",
            "memory_bytes": 80 << 30,
            "socket": n // 4,
            "numa": n // 2,
        }
        for n in range(int(view.total.gpus))
    ]
    cards = [
        {
            "name": "eth0",
            "addresses": ["10.0.4.11"],
            "speed_mbps": 25_000,
            "mtu": 9000,
            "up": True,
            "loopback": False,
        },
        {
            "name": "eth1",
            "addresses": ["192.168.7.11"],
            "speed_mbps": 1000,
            "mtu": 1500,
            "up": True,
            "loopback": False,
        },
    ]
    topology = {
        "name": view.name,
        "cores": cores,
        "memory_bytes": int(view.total.memory_bytes),
        "accelerators": gpus,
        "cards": cards,
    }
    fields = {name: getattr(view, name) for name in view.__struct_fields__}
    others = [one for one in ("gx02", "gx03", "gx04") if one != view.name]
    links = tuple(
        cluster.LinkView(name, mbps, 24_300.0, 0.08, now_ms() - 1_200_000)
        for name, mbps in zip(others, (24_100.0, 9_800.0, 23_900.0), strict=False)
    )
    return cluster.HostDetail(**fields, topology=topology, links=links)


def drain_host(world: World, request: Request) -> cluster.HostView:
    drain = request.url.path.endswith("/drain")
    world.hosts[request.path_params["host"]]["state"] = "drained" if drain else "up"
    return world.host(request.path_params["host"])


def show_session(world: World, request: Request) -> accounts.SessionAnswer:
    user = accounts.SessionUser(1, "mara", "admin")
    return accounts.SessionAnswer(user, "csrf-of-tests", "0.9.0", True, ("read", "write", "admin"))


def list_users(world: World, request: Request) -> accounts.UsersAnswer:
    users = []
    for number, name in enumerate(("mara", "jonas", "ines", "tomek"), 1):
        role = "admin" if number == 1 else "viewer" if number == 4 else "member"
        since = now_ms() - number * 9_000_000_000
        users.append(accounts.UserView(number, name, role, number == 4, number < 3, since))  # type: ignore[arg-type]
    return accounts.UsersAnswer(tuple(users))


def list_tokens(world: World, request: Request) -> accounts.TokensAnswer:
    token = accounts.TokenView(
        1, "laptop", ("read", "write"), now_ms() - 9_000_000, now_ms() - 60_000, now_ms() + 8_000_000_000
    )
    return accounts.TokensAnswer((token,) if world.jobs else ())


async def add_token(world: World, request: Request) -> accounts.NewTokenAnswer:
    body = await request.json()
    token = accounts.TokenView(2, body["name"], tuple(body["scopes"]), now_ms(), None, None)
    return accounts.NewTokenAnswer(token, "weft_9Qm2c7YpXk4tB1sVhJ8dLrZeWuNaG3fT")


def list_secrets(world: World, request: Request) -> accounts.SecretsAnswer:
    return accounts.SecretsAnswer(
        (accounts.SecretView("HF_TOKEN", now_ms() - 90_000_000),) if world.jobs else ()
    )


def list_webhooks(world: World, request: Request) -> accounts.WebhooksAnswer:
    hook = accounts.WebhookView(
        1, "https://chat.example.org/hooks/7", ("failed", "advice"), None, True, now_ms() - 9_000_000
    )
    return accounts.WebhooksAnswer((hook,) if world.jobs else (), "a-key-of-tests")


def list_deliveries(world: World, request: Request) -> accounts.DeliveriesAnswer:
    at, url = now_ms(), "https://chat.example.org/hooks/7"
    return accounts.DeliveriesAnswer(
        (
            accounts.DeliveryView(9, 1, url, "failed", 12, "delivered", 1, 200, None, at - 60_000, None),
            accounts.DeliveryView(
                8, 1, url, "advice", 11, "waiting", 2, 502, "got 502", at - 90_000, at + 40_000
            ),
            accounts.DeliveryView(
                7, 1, url, "failed", 9, "failed", 8, None, "no answer", at - 9_000_000, None
            ),
        )
    )


def list_audit(world: World, request: Request) -> accounts.AuditAnswer:
    told = [
        ("mara", "stop", "job 9"),
        ("jonas", "submit", "job 8"),
        ("ines", "drain host", "gx05"),
        ("mara", "log in", "mara"),
    ]
    entries = [accounts.AuditEntry(100 - n, now_ms() - n * 400_000, *one, {}) for n, one in enumerate(told)]
    return accounts.AuditAnswer(tuple(entries if world.jobs else ()), None)


async def submit_job(world: World, request: Request) -> jobs.SubmitAnswer:
    from weft.jobs.spec.read import read_spec

    body = await request.json()
    spec = read_spec(body["yaml"])
    if body.get("dry_run"):
        return jobs.SubmitAnswer((), (jobs.PlannedJob(spec.name or "job", f"python {spec.run}", 1, 1, spec),))
    raise HTTPException(503, "the made-up service runs nothing")
