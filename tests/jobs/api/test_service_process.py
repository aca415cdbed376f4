"""The process of `weft up`: its folder, lock, description, link, and its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from stat import S_IMODE

import httpx
import pytest
import sqlalchemy as sa
from starlette.responses import FileResponse
from testing.cluster.waiting import wait_until

from weft.errors import UsageError
from weft.jobs.api.pages import Pages
from weft.jobs.api.process import ServiceOptions, account_name, first_user, locked_data
from weft.jobs.code.snapshot import take_snapshot
from weft.jobs.store.database import Database
from weft.jobs.store.tables import user

PROGRAM = """
import sys
from pathlib import Path
from weft.jobs.api.process import ServiceOptions, run_service
options = ServiceOptions(data=Path(sys.argv[1]), port=0, pages=Path(sys.argv[2]))
run_service(options, lambda line: print(line, flush=True))
"""


def test_the_service_starts_answers_and_ends(tmp_path: Path) -> None:
    data, pages = tmp_path / "data", tmp_path / "pages"
    (pages / "assets").mkdir(parents=True)
    (pages / "index.html").write_text("<!doctype html>the console")
    (pages / "assets" / "app-1.js").write_text("1")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data), str(pages)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        where, link = process.stdout.readline(), process.stdout.readline()
        described = json.loads((data / "service.json").read_text())
        assert described["url"] in where
        assert described["pid"] == process.pid
        assert [S_IMODE((data / name).stat().st_mode) for name in ("service.json", "secret.key", "")] == [
            0o600,
            0o600,
            0o700,
        ]
        taken = take_snapshot(tmp_path).snapshot.files
        assert sorted(file.path for file in taken) == ["pages/assets/app-1.js", "pages/index.html"]
        with httpx.Client(base_url=described["url"]) as client:
            page = client.get("/jobs/7")
            assert (page.text, page.headers["cache-control"]) == ("<!doctype html>the console", "no-cache")
            asset = client.get("/assets/app-1.js")
            assert "immutable" in asset.headers["cache-control"]
            assert asset.headers["content-type"].startswith("text/javascript")
            assert client.get("/assets/%2e%2e/%2e%2e/data/secret.key").status_code == 404
            assert client.get("/assets/none.js").status_code == 404
            token = link.strip().partition("#link=")[2]
            logged = client.post("/api/v1/session", json={"link": token})
            assert logged.json()["user"] | {"id": 0} == {"id": 0, "name": account_name(), "role": "admin"}
            local = {"authorization": f"Bearer {described['token']}"}
            assert client.get("/api/v1/users", headers=local).status_code == 200
            assert client.get("/api/v1/openapi.json").json()["openapi"] == "3.1.0"
        with pytest.raises(UsageError, match=f"process {process.pid}"), locked_data(data):
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not (data / "service.json").exists()
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    wait_until(lambda: not (data / "service.json").exists(), "the description to be removed")


def test_options_that_would_send_passwords_in_clear_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must not travel in clear"):
        ServiceOptions(data=tmp_path, host="0.0.0.0")
    with pytest.raises(UsageError, match="must be given together"):
        ServiceOptions(data=tmp_path, tls_cert=tmp_path / "x")
    ServiceOptions(data=tmp_path, host="0.0.0.0", insecure=True)


def test_there_is_always_an_administrator(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/weft.db")

    def work(connection: sa.Connection) -> list[tuple[str, str]]:
        first = first_user(connection, "ann")
        again = first_user(connection, "bob")
        connection.execute(sa.update(user).values(role="member"))
        promoted = first_user(connection, "ann")
        return [(one.name, one.role) for one in (first, again, promoted)]

    assert database.submit(work).result() == [("ann", "admin")] * 3
    database.close()


def test_pages_that_are_built_while_the_service_runs_are_shown(tmp_path: Path) -> None:
    pages = Pages(tmp_path / "pages")
    assert b"make pages" in bytes(pages.answer("/jobs").body)
    (tmp_path / "pages" / "assets").mkdir(parents=True)
    (tmp_path / "pages" / "index.html").write_text("<!doctype html>the console")
    shown = pages.answer("/jobs")
    assert isinstance(shown, FileResponse)
    assert Path(shown.path).read_text() == "<!doctype html>the console"
