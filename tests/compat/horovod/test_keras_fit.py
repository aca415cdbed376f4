"""Keras 3 on its torch backend, through `horovod.keras` and `weft.keras`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.compat.horovod.conftest import WORKERS, HorovodRuns

from weft.errors import UsageError


@pytest.mark.skipif(find_spec("keras") is None, reason="needs pip install 'weft[keras]'")
@pytest.mark.long
def test_fit_on_two_workers_is_that_of_one(horovod_runs: HorovodRuns) -> None:
    script = str(WORKERS / "keras_fit.py")
    told = horovod_runs.passes(
        "run",
        "-n",
        "2",
        script,
        str(horovod_runs.folder),
        KERAS_BACKEND="torch",
        HOME=str(horovod_runs.folder),
    )
    assert told.count("keras is content") == 2


def test_other_backends_are_refused_with_the_way_to_go() -> None:
    from weft.keras import seam

    class Keras2:
        __version__ = "2.15.0"

    class OnJax:
        __version__ = "3.15.1"

        class backend:  # noqa: N801
            backend = staticmethod(lambda: "jax")

    for module, words in ((Keras2, "version 3"), (OnJax, "KERAS_BACKEND=torch")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "keras", module)
            with pytest.raises(UsageError, match=words):
                seam.keras_on_torch()


def test_tensorflow_is_refused_in_one_sentence(horovod_runs: HorovodRuns) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import horovod.tensorflow as hvd"],
        env=horovod_runs.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: horovod.tensorflow is not there" in done.stderr
