"""Kernels compiled ahead: archives in the package that spare a new machine the compiling of its first fits.

An archive is for one build of Python, one Numba, one state of the kernels' sources and one level of processors
(x86-64-v3 has AVX2, x86-64-v4 has AVX-512), which its name says: whatever is for another process is never opened.
`weft.learn.compiled_ahead` makes archives. They hold code, as the modules beside them do, and are read from there
alone.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
import sysconfig
import zipfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "compiled"  # in wheels; git ignores it

# What a processor must have for each level, the best first: levels and names are LLVM's.
_V3 = ("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")
LEVELS = {
    "x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    "x86-64-v3": _V3,
}

# Settings of Numba's that change what it compiles: who has set one wants to see that.
SETTINGS = ("BOUNDSCHECK", "CPU_FEATURES", "CPU_NAME", "DEBUGINFO", "LOOP_VECTORIZE", "OPT", "SLP_VECTORIZE")


def levels_here() -> list[str]:
    """Return the levels that this machine's processor has, the best first."""
    binding = import_module("llvmlite.binding")
    if not binding.get_process_triple().startswith("x86_64-"):
        return []
    has = binding.get_host_cpu_features()
    return [level for level, needed in LEVELS.items() if all(has.get(name) for name in needed)]


def archive_path(level: str, sources: str, folder: Path | None = None) -> Path:
    """Return where the archive of one level is, for this Python and the sources of this fingerprint."""
    python = sysconfig.get_config_var("SOABI") or f"{sys.implementation.cache_tag}-{sys.platform}"
    return (folder or FOLDER) / f"{python}-{sources}-{level}.zip"


def entry_name(kernel: str, signature: Any) -> str:
    """Return the name of one specialisation of a kernel in an archive."""
    return f"{kernel}/{hashlib.sha256(str(signature).encode()).hexdigest()[:24]}"


def write_archive(codes: dict[str, bytes]) -> bytes:
    """Return an archive of entries; the same ones give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, code in sorted(codes.items()):
            archive.writestr(zipfile.ZipInfo(name), code, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def load(kernel: str, signature: Any, context: Any, sources: str) -> Any:
    """Return the compiled code of a kernel for arguments of these types, or None where it was not compiled ahead."""
    archive = _archive(sources)
    name = entry_name(kernel, signature)
    if archive is None or name not in archive.NameToInfo:
        return None
    try:
        result = import_module("numba.core.compiler").CompileResult
        return result._rebuild(context, *pickle.loads(archive.read(name)))
    except Exception as broken:  # whatever it is, the kernel can be compiled
        return _told(f"{name.split('/')[0]} cannot be read ({broken or type(broken).__name__})")


@cache
def _archive(sources: str) -> zipfile.ZipFile | None:
    """Return the best archive for this process, read whole: a forked process would share the place in an open file."""
    if not FOLDER.is_dir() or any(f"NUMBA_{name}" in os.environ for name in SETTINGS):
        return None
    for level in levels_here():
        path = archive_path(level, sources)
        try:
            return zipfile.ZipFile(io.BytesIO(path.read_bytes()))
        except FileNotFoundError:
            continue
        except (OSError, zipfile.BadZipFile) as broken:
            _told(f"{path} cannot be read ({broken})")
    return None


def _told(what: str) -> None:
    """Say that something compiled ahead is of no use."""
    print(f"weft.learn: {what}; kernels are compiled again: weft learn compile --ahead", file=sys.stderr)
