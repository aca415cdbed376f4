"""Kernels are compiled once, with a message, or ahead, into archives; a second process finds them."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from weft.cli.tables.learn import command
from weft.errors import DataError
from weft.learn import compiled_ahead
from weft.learn.kernels import ahead, compiling

FIT = (
    "import numpy as np\n"
    "from pathlib import Path\n"
    "from weft.learn.kernels import ahead; ahead.FOLDER = Path('no archives')\n"
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


TWICE = """
import sys
from pathlib import Path
import numpy as np
from weft.learn.compiled_ahead import archive_of
from weft.learn.kernels import ahead, compiling

@compiling.kernel
def twice(values):
    return values + values

def run():
    assert (twice(np.ones(3)) == 2).all()

ahead.FOLDER = Path(sys.argv[1])
if len(sys.argv) > 2:
    path = ahead.archive_path(ahead.levels_here()[-1], compiling.fingerprint())
    path.write_bytes(archive_of(run))
else:
    run()
print(sum(twice.stats.cache_misses.values()))
"""


@pytest.mark.long
@pytest.mark.skipif(not ahead.levels_here(), reason="archives are for x86-64 with AVX2")
def test_what_was_compiled_ahead_is_not_compiled_again(tmp_path: Path) -> None:
    script, archives = tmp_path / "twice.py", tmp_path / "archives"
    script.write_text(TWICE)
    archives.mkdir()
    made = python(script, tmp_path / "made", str(archives), "write")
    found = python(script, tmp_path / "found", str(archives))
    assert (made.stdout, found.stdout, found.stderr) == ("1\n", "0\n", "")
    (archive,) = archives.iterdir()
    archive.write_bytes(ahead.write_archive(dict.fromkeys(zipfile.ZipFile(archive).namelist(), b"broken")))
    broken = python(script, tmp_path / "broken", str(archives))
    assert broken.stdout == "1\n"
    assert "twice cannot be read" in broken.stderr
    archive.write_bytes(b"no archive")
    broken = python(script, tmp_path / "worse", str(archives))
    assert broken.stdout == "1\n"
    assert f"{archive} cannot be read" in broken.stderr


def test_archives_of_other_sources_or_other_settings_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "FOLDER", tmp_path)
    for level in ahead.LEVELS:
        ahead.archive_path(level, "mine").write_bytes(ahead.write_archive({"twice/1": b"code"}))
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 2
    assert all(sysconfig.get_config_var("SOABI") in name for name in names)
    open_archive = ahead._archive.__wrapped__
    assert open_archive("others") is None
    assert (open_archive("mine") is not None) == bool(ahead.levels_here())
    monkeypatch.setenv("NUMBA_DEBUGINFO", "1")
    assert open_archive("mine") is None


def test_archives_of_other_sources_are_removed_and_a_failed_compilation_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "levels_here", lambda: ["x86-64-v3"])
    old, here = tmp_path / "cpython-x-x86-64-v3.zip", ahead.archive_path("x86-64-v3", "now", tmp_path)
    monkeypatch.setattr(compiled_ahead, "fingerprint", lambda: "now")
    for path in (old, here):
        path.touch()
    assert compiled_ahead.compile_ahead(tmp_path) == [here]
    assert not old.exists()
    here.unlink()
    monkeypatch.setattr(
        compiled_ahead, "_start", lambda *_: subprocess.Popen([sys.executable, "-c", "1 / 0"])
    )
    with pytest.raises(DataError, match="kernels must compile, got an error, told above"):
        compiled_ahead.compile_ahead(tmp_path)
    monkeypatch.setattr(ahead, "levels_here", list)
    with pytest.raises(DataError, match="processors that have avx, avx2"):
        compiled_ahead.compile_ahead(tmp_path)


def test_the_command_compiles_for_this_user_or_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_ahead, "compile_kernels", lambda: (3, 2.4))
    monkeypatch.setattr(compiled_ahead, "compile_ahead", lambda: [Path("v3.zip"), Path("v4.zip")])
    assert (
        CliRunner().invoke(command, ["compile"]).stdout == "3 kernels were compiled in 2 s; fits start warm\n"
    )
    assert CliRunner().invoke(command, ["compile", "--ahead"]).stdout == "v3.zip\nv4.zip\n"


@pytest.mark.long
def test_a_kernel_that_is_not_compiled_is_called_once_that_is_worth_it(tmp_path: Path) -> None:
    script = """
import numpy as np, sys
from weft import learn
from weft.learn.kernels import ahead
from weft.learn.trees.growth import deep
from weft.learn.trees.kernels.depth import grow_depth_first
ahead.FOLDER = ahead.Path(sys.argv[1])  # a folder without any
X = np.random.default_rng(0).standard_normal((20_000, 3))
y = X[:, 0] * X[:, 1]
def fitted():
    return learn.DecisionTreeRegressor(max_depth=6).fit(X, y).predict(X)
first = fitted()
print(len(grow_depth_first.overloads))
deep.COMPILE_S = 0.0
assert (fitted() == first).all()
print(len(grow_depth_first.overloads))
"""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
