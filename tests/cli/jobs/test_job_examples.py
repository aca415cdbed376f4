"""The examples of jobs, and that the page on specifications tells of every field."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from testing.forking.server import ForkServer

from weft.jobs.client.upload import check_script
from weft.jobs.spec import model
from weft.jobs.spec.read import expand, read_spec, resolve, schema

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.yaml"))
PAGE = (ROOT / "docs" / "reference" / "job-spec.md").read_text()
NESTED = {"resources": model.ResourceSpec, "queue": model.QueueSpec, "retry": model.RetrySpec}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_right(path: Path) -> None:
    spec = read_spec(path.read_text())
    check_script(spec, path.parent / str(spec.code))
    assert all(resolve(one).name for one in expand(spec))


def test_one_example_has_every_field_but_those_of_several_jobs_and_of_pods() -> None:
    found = read_spec((ROOT / "examples" / "jobs" / "everything.yaml").read_text())
    text = (ROOT / "examples" / "jobs" / "everything.yaml").read_text()
    fields = set(model.JobSpec.__struct_fields__) - {"array", "schedule", "kubernetes"}
    assert {name for name in fields if re.search(rf"^{name}:", text, re.MULTILINE)} == fields
    assert text in PAGE
    assert {type(source) for source in found.metrics} == {
        model.RegexSource,
        model.TensorboardSource,
        model.JsonLinesSource,
    }


@pytest.mark.parametrize("name", model.JobSpec.__struct_fields__)
def test_the_page_tells_of_every_field(name: str) -> None:
    fields = [f"{name}.{inner}" for inner in NESTED[name].__struct_fields__] if name in NESTED else [name]
    assert [field for field in fields if f"`{field}`" not in PAGE] == []


def test_the_page_on_jobs_shows_the_example() -> None:
    shown = (ROOT / "docs" / "how-to" / "jobs.md").read_text()
    text = (ROOT / "examples" / "jobs" / "spiral.yaml").read_text()
    assert "".join(text.splitlines(keepends=True)[1:]) in shown  # but for its comment


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_takes_the_examples(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from weft.documents import parse_yaml

    jsonschema.validate(parse_yaml(path.read_text()), schema())


def test_the_schema_refuses_what_is_wrong() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    wrong: list[dict[str, Any]] = [
        {},
        {"run": "a.py", "workres": 2},
        {"run": "a.py", "queue": {"priority": 101}},
    ]
    for spec in wrong:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spec, schema())


@pytest.mark.long
def test_the_example_trains_without_a_service_too(tmp_path: Path, forks: ForkServer) -> None:
    command = [forks.weft, "run", "-n", "2", str(ROOT / "examples" / "jobs" / "spiral.py"), "--epochs", "120"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"\[0\] epoch 100: loss ([\d.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) < 0.3
    assert (tmp_path / "spiral.pt").is_file()
