"""A server with small models, shared by the tests of a process, and servers of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.serving import small_models
from testing.serving.server import Server, Starter

BOUNDS = ("--max-body", "1000000", "--max-pixels", "1000000")


@pytest.fixture(scope="session")
def onnx_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ONNX files."""
    folder = tmp_path_factory.mktemp("models")
    small_models.times(folder / "double.onnx", 2)
    small_models.times(folder / "triple.onnx", 3)
    small_models.colours(folder / "colours.onnx")
    small_models.boxes(folder / "boxes.onnx")
    small_models.busy(folder / "busy.onnx")
    small_models.mixed(folder / "mixed.onnx")
    small_models.brief(folder / "brief.onnx")
    small_models.words(folder / "words.onnx")
    return folder


@pytest.fixture(scope="session")
def server(onnx_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Every model, for tests that leave it as it was."""
    start = Starter(tmp_path_factory.mktemp("server"))
    names = ("double", "colours", "boxes", "busy", "mixed", "words", "brief")
    files = [str(onnx_models / f"{name}.onnx") for name in names]
    try:
        yield start(*files, *BOUNDS, "--max-batch", "16", "--set", "busy:queue=1,delay_ms=0.01")
    finally:
        start.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Starts servers of the test's own."""
    starter = Starter(tmp_path)
    yield starter
    starter.close()
