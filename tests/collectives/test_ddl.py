"""Scripts written for IBM DDL."""

from __future__ import annotations

from tests.collectives.conftest import Bench

from weft.collectives.ddl_options import parse_ddl_options
from weft.compat.ddl import settings_for


def test_ddls_python_api(bench: Bench) -> None:
    options = "-mode r:2x1x1x1 -dump_iter 10 -dbg_level 1"
    assert bench.passes("ddl.py", 2, DDL_OPTIONS=options).count("as it should be") == 2


def test_ddls_backend_in_torch(bench: Bench) -> None:
    assert bench.passes("ddl_backend.py", 2).count("as it should be") == 2


def test_a_launchers_choice_wins_over_ddls_options() -> None:
    options = parse_ddl_options("-mode b -dump_iter 5")
    settings = settings_for(options, {})
    assert (str(settings.mode), settings.watching.report) == ("nccl", 5)
    settings = settings_for(options, {"WEFT_MODE": "shm,ring"})
    assert (str(settings.mode), settings.watching.report) == ("shm,ring", 5)
