"""Keras 3 on its backends, through `horovod.keras` and `weft.keras`, and `horovod.tensorflow`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.compat.horovod.conftest import WORKERS, HorovodRuns

from weft.errors import UsageError

FOUND = {name: find_spec(name) is not None for name in ("keras", "tensorflow", "jax")}


def backend(name: str) -> Any:
    """Return a backend as a parameter; one that is not installed is left out, with the way to have it."""
    missing = not FOUND["keras"] or (name != "torch" and not FOUND[name])
    extra = "" if name == "torch" else f",{name}"
    reason = f"needs pip install 'weft[keras{extra}]'; TensorFlow and JAX are no part of the test extra"
    return pytest.param(name, marks=pytest.mark.skipif(missing, reason=reason))


@pytest.mark.parametrize("name", [backend("torch"), backend("tensorflow"), backend("jax")])
@pytest.mark.long
def test_fit_on_two_workers_is_that_of_one(horovod_runs: HorovodRuns, name: str) -> None:
    folder = str(horovod_runs.folder)
    script = str(WORKERS / "keras_fit.py")
    told = horovod_runs.passes("run", "-n", "2", script, folder, KERAS_BACKEND=name, HOME=folder)
    assert told.count("keras is content") == 2


@pytest.mark.parametrize("name", [backend("tensorflow")])
@pytest.mark.long
def test_operations_of_tensorflow_on_two_workers(horovod_runs: HorovodRuns, name: str) -> None:
    folder = str(horovod_runs.folder)
    script = str(WORKERS / "tensorflow_ops.py")
    told = horovod_runs.passes("run", "-n", "2", script, KERAS_BACKEND=name, HOME=folder)
    assert told.count("tensorflow is content") == 2


def test_gradients_go_in_parts_the_last_first() -> None:
    from weft.keras.backends import parts_of

    assert parts_of([4, 4, 4, 4], 8) == [[3, 2], [1, 0]]
    assert parts_of([100, 1, 1], 8) == [[2, 1], [0]]
    assert parts_of([], 8) == []


def test_arrays_become_tensors_and_come_back() -> None:
    from weft.keras.arrays import bytes_as_torch, from_torch, to_torch

    frozen = np.arange(6.0).reshape(2, 3)
    frozen.setflags(write=False)
    tensor = to_torch(frozen)
    tensor += 1
    assert frozen[0, 0] == 0.0
    np.testing.assert_array_equal(from_torch(tensor), frozen + 1)
    assert to_torch(np.float32(3)).shape == ()
    half = np.ones(4, dtype=ml_dtypes.bfloat16)
    assert to_torch(half).dtype == torch.bfloat16
    assert from_torch(to_torch(half) * 2, half.dtype).tolist() == [2.0] * 4
    copy, memory = bytes_as_torch(np.array([1, 2], dtype=np.uint32))
    memory.zero_()
    assert copy.tolist() == [0, 0]


def test_what_cannot_serve_is_refused_with_the_way_to_go() -> None:
    from weft.keras import backends

    class Keras2:
        __version__ = "2.15.0"

    class OnOther:
        __version__ = "3.15.1"

        class backend:  # noqa: N801
            backend = staticmethod(lambda: "openvino")

    for module, words in ((Keras2, "version 3"), (OnOther, "KERAS_BACKEND=torch")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "keras", module)
            with pytest.raises(UsageError, match=words):
                backends.keras_on()


def test_jax_with_one_thread_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call out of a step holds a thread, and its arrays are brought by another one."""
    from weft.keras import backends

    class Jax:
        default_backend = staticmethod(lambda: "cpu")

    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.setenv("PJRT_NPROC", "1")
    with pytest.raises(UsageError, match="PJRT_NPROC=2"):
        backends.check_threads(Jax)
    monkeypatch.setenv("PJRT_NPROC", "2")
    backends.check_threads(Jax)


@pytest.mark.skipif(FOUND["tensorflow"], reason="TensorFlow is installed")
def test_tensorflow_that_is_missing_is_told_in_one_sentence(horovod_runs: HorovodRuns) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import horovod.tensorflow as hvd"],
        env=horovod_runs.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: horovod.tensorflow must have TensorFlow 2, got none" in done.stderr
