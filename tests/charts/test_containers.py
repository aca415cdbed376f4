"""The files of the images, as far as they can be checked without a container engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

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


def test_the_options_of_the_images_and_the_chart_are_those_of_the_command() -> None:
    up = CliRunner().invoke(group, ["up", "--help"]).output
    chart = (ROOT / "charts" / "weft" / "templates" / "deployment.yaml").read_text()
    for option in {
        *re.findall(r"- (--[a-z-]+)=?", chart),
        *re.findall(r'"(--[a-z-]+)"', FILES[0].read_text()),
    }:
        assert option in up
