"""The build of the console: types that are the API's, a lock file without hosts, pages in wheels, its own tests."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft.console
from weft.console import pages

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "weft" / "console" / "web"


def test_types_of_the_pages_are_those_of_the_api() -> None:
    command = [sys.executable, str(ROOT / "tools" / "console_types.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lock_file_names_versions_and_sums_and_no_host() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert len(packages) > 20
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if "integrity" not in entry] == []


def test_no_pages_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft.console, "__file__", str(tmp_path / "__init__.py"))
    assert pages() is None
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.html").write_text("<!doctype html>")
    assert pages() == tmp_path / "pages"


@pytest.fixture
def hook(tmp_path: Path) -> dict[str, Any]:
    """The names of hatch_build.py, for a console that is not built."""
    names = runpy.run_path(str(ROOT / "hatch_build.py"))
    scope = names["pages_built"].__globals__
    scope["CONSOLE"] = tmp_path
    scope["build"] = lambda: (tmp_path / "built").touch()
    return scope  # type: ignore[no-any-return]


def test_a_wheel_builds_the_pages_and_an_editable_install_does_not(
    hook: dict[str, Any], tmp_path: Path
) -> None:
    made = object.__new__(hook["PagesHook"])
    made.initialize("editable", {})
    assert not (tmp_path / "built").exists()
    made.initialize("standard", {})
    assert (tmp_path / "built").exists()


def test_a_wheel_takes_a_node_of_its_own_where_the_system_has_none(
    hook: dict[str, Any], tmp_path: Path
) -> None:
    made = object.__new__(hook["PagesHook"])
    hook["system_npm"] = lambda: None
    assert made.dependencies() == [hook["NODE_PACKAGE"]]
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.html").touch()
    assert made.dependencies() == []


@pytest.mark.clients
@pytest.mark.skipif(
    not (WEB / "node_modules").is_dir() or shutil.which("npm") is None,
    reason="needs its packages: make pages",
)
@pytest.mark.parametrize("script", ["check", "test"])
def test_the_pages_pass_their_own_tests(script: str) -> None:
    done = subprocess.run(["npm", "run", script], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
