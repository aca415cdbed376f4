"""Right command lines of every verb of the jobs service get as far as the service, which is not there."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from testing.wrong_commands.lines import Verb, verbs
from testing.wrong_commands.scratch import make_scratch
from tests.cli.jobs.conftest import Weft
from tools.wrong_commands import JOBS

HERE = ("up", "backup", "restore")  # they ask no service
RIGHT = [verb for verb in verbs() if verb.name.split()[0] in JOBS and verb.name not in HERE]


@pytest.mark.parametrize("verb", RIGHT, ids=lambda verb: verb.name)
def test_a_right_line_asks_the_service(
    verb: Verb, alone: Weft, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_scratch(folder, heavy=False)
    monkeypatch.setenv("WEFT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr("sys.stdin", io.StringIO("a long secret\n"))
    code, out, err = alone(*verb.name.split(), *verb.options, *verb.arguments)
    assert (code, out) == (2, "")
    assert "http://127.0.0.1:1 must be a jobs service that answers, got: " in err
    assert "`weft up`" in err
