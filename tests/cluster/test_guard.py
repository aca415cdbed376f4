"""The guard in tests/conftest.py, tried on tests that misbehave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def outcome(tmp_path: Path, body: str, head: str = "") -> str:
    lines = "\n    ".join(body.splitlines())
    code = f"import os, subprocess, threading, time, pytest\n{head}\ndef test_it(request):\n    {lines}\n"
    (tmp_path / "test_it.py").write_text(code)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
            "test_it.py",
        ],
        cwd=tmp_path,
        # Other plugins take seconds to import, and have no part in this.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("body", "leak"),
    [
        ("request.config.child = subprocess.Popen(['sleep', '30'])", "left behind: process"),
        ("subprocess.run('sleep 30 >/dev/null 2>&1 &', shell=True)", "left behind: process"),
        ("threading.Thread(target=time.sleep, args=[9]).start()", "left behind: thread"),
        ("os.environ['WEFT_LEAK'] = '1'", "left behind: variable WEFT_LEAK"),
    ],
    ids=["child", "orphan", "thread", "variable"],
)
def test_a_leak_fails_the_test(tmp_path: Path, body: str, leak: str) -> None:
    assert leak in outcome(tmp_path, body)


def test_what_wider_fixtures_own_is_no_leak(tmp_path: Path) -> None:
    fixture = """
@pytest.fixture(scope="session", autouse=True)
def sleeper():
    with subprocess.Popen(["sleep", "30"]) as process:
        yield
        process.kill()
"""
    assert "1 passed" in outcome(tmp_path, "pass", fixture)


def test_python_s_own_helpers_are_no_leak(tmp_path: Path) -> None:
    body = """\
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=8)
memory.close()
memory.unlink()"""
    assert "1 passed" in outcome(tmp_path, body)
