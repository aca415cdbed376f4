"""Compiles kernels before they are needed, by small fits of every estimator.

    weft learn compile            for this machine, into the user's cache
    weft learn compile --ahead    for machines like it, into the package: what wheels and images carry

The second makes one archive for each level of processors that this machine has (see `weft.learn.kernels.ahead`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from weft.errors import DataError
from weft.files import write_whole
from weft.learn.first_fits import run_first_fits
from weft.learn.kernels import ahead
from weft.learn.kernels.compiling import fingerprint, record_compiled


def compile_kernels() -> tuple[int, float]:
    """Compile what first fits need into the user's cache; return how many kernels that were, and the seconds it took.

    What this machine has compiled is left as it is; what came compiled ahead is compiled for this very processor.
    """
    compiled: list[str] = []
    record_compiled(lambda kernel, signature, code: compiled.append(kernel))
    began = time.perf_counter()
    run_first_fits()
    return len(compiled), time.perf_counter() - began


def compile_ahead(folder: Path = ahead.FOLDER) -> list[Path]:
    """Write an archive of kernels for each level of processors that this machine has, and return the archives.

    Those that are there are taken as they are, and those of other sources are removed.
    """
    levels = ahead.levels_here()
    if not levels:
        needed = ", ".join(ahead.LEVELS["x86-64-v3"])
        raise DataError(
            f"kernels are compiled ahead on processors that have {needed}, got another one; leave out --ahead"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.zip"):
        if fingerprint() not in path.name:
            path.unlink()
    paths = [ahead.archive_path(level, fingerprint(), folder) for level in levels]
    with TemporaryDirectory() as caches:
        started = [
            _start(level, path, Path(caches, level))
            for level, path in zip(levels, paths, strict=True)
            if not path.is_file()
        ]
        codes = [one.wait() for one in started]
    if any(codes):
        raise DataError("kernels must compile, got an error, told above; leave out --ahead")
    return paths


def _start(level: str, path: Path, cache: Path) -> subprocess.Popen[bytes]:
    """Start a process that compiles everything for one level of processors, with a cache of its own."""
    environ = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(cache),
        "NUMBA_CPU_NAME": level,
        "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in ahead.LEVELS[level]),
        "NUMBA_DISABLE_INTEL_SVML": "1",  # who uses the archive may not have that library
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen([sys.executable, "-m", "weft.learn.compiled_ahead", str(path)], env=environ)


def archive_of(run: Callable[[], object]) -> bytes:
    """Return an archive of all that a function compiles, for the processor that the environment names."""
    dumps: Any = import_module("numba.core.serialize").dumps
    codes: dict[str, bytes] = {}

    def keep(kernel: str, signature: Any, code: Any) -> None:
        codes[ahead.entry_name(kernel, signature)] = dumps(code._reduce())

    record_compiled(keep)
    run()
    return ahead.write_archive(codes)


def main(paths: list[str]) -> None:
    """Write one archive, for the process that asked for it; with none named, all of them, for the build of a wheel."""
    if not paths:
        compile_ahead()
    for path in paths:
        write_whole(Path(path), archive_of(run_first_fits))


if __name__ == "__main__":
    main(sys.argv[1:])
