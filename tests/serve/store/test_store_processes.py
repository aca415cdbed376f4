"""A store among real processes: many that push at once, and some that are killed on the way."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from tests.serve.small_models import write_scaled

from weft.serve.card import Card
from weft.serve.store import Store

PUSHERS, PUSHES = 4, 6

PUSH = """
import sys
from weft.serve.store import Store
for number in range(int(sys.argv[3])):
    print(Store(sys.argv[1]).push(sys.argv[2], "m", aliases=[sys.argv[4]]).version, flush=True)
"""

# Stops for good where the test wants it to be killed, and says so.
STOP = """
import sys
from weft.serve.store import folder
def stop(*args, **options):
    print("stopped", flush=True)
    sys.stdin.read()
"""
PUSH_ONE = "folder.Store(sys.argv[1]).push(sys.argv[2], 'm', aliases=['production'])\n"
PLACES = {
    "while it copies": STOP + "folder.sync = stop\n" + PUSH_ONE,
    "before it says so": STOP + "folder.Store._write = stop\n" + PUSH_ONE,
    "while it says so": STOP + "import os\nos.fsync = lambda handle: None\n"
    "import pathlib\npathlib.Path.replace = stop\n" + PUSH_ONE,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_scaled(tmp_path / "m.onnx", card=Card(name="m"))


def start(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def killed_at(code: str, *args: object) -> None:
    with start(code, *args) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "stopped\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL


def leftovers(store: Store) -> list[str]:
    """What is in the store beside versions that count."""
    counted = {entry.path.parent for entry in store.list()}
    found = [path for path in store.folder.glob("*/*") if path.is_dir() and path not in counted]
    return [path.name for path in (*found, *store.folder.glob(".drafts/*.lock"))]


def test_many_push_at_once(tmp_path: Path, model: Path) -> None:
    store = Store(tmp_path / "store")
    pushers = [start(PUSH, store.folder, model, PUSHES, f"by{number}") for number in range(PUSHERS)]
    told = [list(map(int, pusher.communicate(timeout=200)[0].split())) for pusher in pushers]
    assert [pusher.returncode for pusher in pushers] == [0] * PUSHERS
    assert sorted(chain.from_iterable(told)) == list(range(1, PUSHERS * PUSHES + 1))  # each number once
    assert [store.verify(entry).version for entry in store.list("m")] == list(range(1, PUSHERS * PUSHES + 1))
    for number, versions in enumerate(told):
        assert store.resolve(f"m@by{number}").version == max(versions)
    assert leftovers(store) == []


@pytest.mark.parametrize("place", PLACES)
def test_a_push_that_is_killed_was_never_there(tmp_path: Path, model: Path, place: str) -> None:
    store = Store(tmp_path / "store")
    store.push(model, "m", aliases=["production"])
    killed_at(PLACES[place], store.folder, model)
    assert [entry.version for entry in store.list()] == [1]
    assert store.resolve("m@production").version == 1
    assert leftovers(store)  # the kill did hit
    again = store.push(model, "m")
    assert again.version == 2
    assert store.verify("m@2") == again
    assert leftovers(store) == []


def test_a_killed_first_push_leaves_no_name(tmp_path: Path, model: Path) -> None:
    store = Store(tmp_path / "store")
    killed_at(PLACES["before it says so"], store.folder, model)
    assert store.list() == ()
    assert store.push(model, "m").version == 1


def test_the_draft_of_one_who_lives_is_not_swept(tmp_path: Path, model: Path) -> None:
    store = Store(tmp_path / "store")
    slow = STOP.replace("sys.stdin.read()", "sys.stdin.readline()")
    with start(slow + "folder.sync = stop\n" + PUSH_ONE, store.folder, model) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "stopped\n"
        assert store.push(model, "m").version == 1  # sweeps
        assert leftovers(store)
        process.stdin.write("\n" * 9)  # it goes on
        process.stdin.close()
        assert process.wait(timeout=200) == 0
    assert store.verify("m@production").version == 2
    assert leftovers(store) == []
