"""Promises of the package as a whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parent.parent


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "module", ["weft", "weft.cli", "weft.cli.training.run", "weft.launch.run", "weft.launch.agent.agent"]
)
def test_importing_loads_no_torch_and_changes_nothing(module: str) -> None:
    code = (
        "import os, sys; before = dict(os.environ)\n"
        f"import {module}\n"
        "assert dict(os.environ) == before\n"
        "print([name for name in ('torch', 'numpy', 'psutil') if name in sys.modules])"
    )
    assert python(code) == "[]\n"


def test_help_loads_no_verb() -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom weft.cli import group\n"
        "assert CliRunner().invoke(group, ['--help']).exit_code == 0\n"
        "print([name for name in sys.modules if name.startswith(('weft.launch', 'weft.topology'))])"
    )
    assert python(code) == "[]\n"


def test_every_public_name_is_there() -> None:
    assert all(getattr(weft, name) is not None for name in weft.__all__)
    assert set(weft.__all__) <= set(dir(weft))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weft.nothing


@pytest.mark.parametrize("page", ["README.md", "docs/start/first-run.md"])
def test_a_page_shows_the_example_that_is_tested(page: str) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert snippet == (ROOT / "examples" / "ten_lines.py").read_text()


def test_links_between_documents_lead_somewhere() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            if not target.startswith("https://"):
                assert (document.parent / target).exists(), f"{document.name} links to {target}"
