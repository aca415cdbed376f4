"""Writes the lock files of the images: every package with its version and the hashes of its files.

    python containers/lock.py            write containers/*.lock anew, with the newest versions that fit
    python containers/lock.py --check    say whether they still fit pyproject.toml; exit code 1 if not

uv (`pip install uv`) finds the versions, for Linux on x86-64 with Python 3.12, the images' own. Hosts of registries are
not written down, so that any index with the same files will do. The image for the CPU takes torch from an index of its
own, whose files have other hashes: its version stands in constraints.txt, and the libraries of CUDA in no lock of it.
What builds the package, Node for its pages included, has a lock of its own and stays out of the images.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_28"
BUILD_LOCK = ROOT / "containers" / "build.lock"
HEADER = "# By containers/lock.py; not edited by hand. Requirements: "


def container_files() -> list[Path]:
    """Return the files of the images."""
    return sorted((ROOT / "containers").glob("Containerfile*"))


def lock_of(container_file: Path) -> Path:
    """Return the lock of an image."""
    return container_file.with_name(container_file.name.replace("Containerfile", "requirements") + ".lock")


def requirements_of(container_file: Path, whole: dict[str, Any]) -> list[str]:
    """Return what an image installs: the requirements of the package and of the image's extras."""
    project = whole["project"]
    found = re.search(r"^ARG EXTRAS=(\S+)$", container_file.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{container_file} must have a line ARG EXTRAS=..., got none")
    extras = [one for extra in found[1].split(",") for one in project["optional-dependencies"][extra]]
    return sorted({*project["dependencies"], *extras})


def build_requirements(whole: dict[str, Any]) -> list[str]:
    """Return what builds the package: its back end, and the Node that its pages are built with."""
    node = re.search(r'^NODE_PACKAGE = "(.+)"$', (ROOT / "hatch_build.py").read_text(), re.MULTILINE)
    if node is None:
        raise ValueError("hatch_build.py must have a line NODE_PACKAGE = ..., got none")
    return sorted({*whole["build-system"]["requires"], node[1]})


def without_cuda(lock: str) -> str:
    """Return a lock without torch and what only its wheels for CUDA need."""
    packages = re.findall(r"^\S.*(?:\n[ ]+.*)*\n", lock, re.MULTILINE)
    return "".join(text for text in packages if not re.match(r"(torch|triton|nvidia-|cuda-)", text))


def locks(whole: dict[str, Any]) -> dict[Path, list[str]]:
    """Return all locks, and the requirements of each."""
    images = {lock_of(file): requirements_of(file, whole) for file in container_files()}
    return {BUILD_LOCK: build_requirements(whole), **images}


def write_lock(lock: Path, requirements: list[str]) -> None:
    """Find versions for all requirements, and write them down with their hashes."""
    words = ["uv", "pip", "compile", "-", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    words += ["--python-version", PYTHON, "--python-platform", PLATFORM, "--no-emit-index-url"]
    done = subprocess.run(words, input="\n".join(requirements), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"uv must find versions for {lock.name}, got: {done.stderr.strip()}")
    found = done.stdout if ".cuda" in lock.suffixes else without_cuda(done.stdout)
    lock.write_text(f"{HEADER}{' | '.join(requirements)}\n{found}")


def written_requirements(lock: Path) -> list[str]:
    """Return the requirements that a lock was made for."""
    return lock.read_text().splitlines()[0].removeprefix(HEADER).split(" | ")


def main() -> int:
    """Write or check all locks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    stale = []
    for lock, wanted in locks(project).items():
        if not check:
            write_lock(lock, wanted)
        elif not lock.exists() or written_requirements(lock) != wanted:
            stale.append(lock.name)
    for name in stale:
        print(
            f"containers/{name} must fit pyproject.toml, got another; run: python containers/lock.py",
            file=sys.stderr,
        )
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
