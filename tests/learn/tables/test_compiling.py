"""Kernels are compiled once, with a message, and a second process finds them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.learn.kernels import compiling

FIT = (
    "import numpy as np\n"
    "from weft.learn import LogisticRegression\n"
    "LogisticRegression().fit(np.eye(4), [0, 1, 0, 1])\n"
    "import sys; assert 'torch' not in sys.modules\n"
)


def python(code: str | Path, cache: Path, *args: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, code] if isinstance(code, Path) else [sys.executable, "-c", code]
    return subprocess.run([*command, *args], capture_output=True, text=True, check=True, env=environment)


@pytest.mark.long
def test_the_second_process_starts_warm(tmp_path: Path) -> None:
    assert "compiling kernels, once" in python(FIT, tmp_path).stderr
    assert list((tmp_path / "weft" / "kernels").rglob("*.nbi"))
    assert python(FIT, tmp_path).stderr == ""


FORKED = """
import os, sys
import numpy as np
from weft.learn.kernels.compiling import kernel

@kernel
def twice(values):
    for place in range(len(values)):
        values[place] = values[place] + values[place]

def work(name):
    values = np.ones(3, name)
    twice(values)
    assert (values == 2).all()
    os._exit(sum(twice.stats.cache_misses.values()))

def forked(name):
    return os.fork() or work(name)

for names in map(str.split, sys.argv[1:]):
    children = [forked(name) for name in names]
    print(*(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@pytest.mark.long
def test_one_process_compiles_for_all_and_what_each_compiles_is_kept(tmp_path: Path) -> None:
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    others = "float32 int64 int32 uint8"
    # Of each process: how often it compiled the kernel that all of a line need at once.
    said = python(script, tmp_path, "float64 float64 float64", others, "float64 " + others).stdout.split("\n")
    assert sorted(said[0]) == sorted("0 0 1")
    assert said[1:3] == ["1 1 1 1", "0 0 0 0 0"]


def test_the_package_opens_without_numba(tmp_path: Path) -> None:
    code = "import sys, weft.learn\nprint([m for m in ('numba', 'numpy', 'sklearn', 'torch') if m in sys.modules])"
    assert python(code, tmp_path).stdout == "[]\n"


def test_a_turn_ends_though_a_process_was_forked_in_it(tmp_path: Path) -> None:
    wait, go = os.pipe()
    with compiling._locked(tmp_path / "kernel.lock"):
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(wait, 1)  # until the parent has looked
            os._exit(0)
    try:
        with (tmp_path / "kernel.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(go)
        os.waitpid(child, 0)
        os.close(wait)
