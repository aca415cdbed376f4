"""What people see: the start-up screen, mistakes on the command line, answers of `weft client`."""

from __future__ import annotations

import json
from pathlib import Path

import cv2  # noqa: F401  # which sets LD_LIBRARY_PATH when a process first imports it
import numpy as np
import pytest
from click.testing import CliRunner
from testing.serving.server import Server, Starter

from weft.cli.models.client import command as client_command
from weft.cli.models.serve import command as serve
from weft.errors import ModelError, UsageError
from weft.serve.store import Store


def test_the_screen_says_what_is_served_and_where_to_try_it(
    start: Starter, onnx_models: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    server = start(str(onnx_models / "double.onnx"), str(broken), "--max-batch", "8")
    first, loading, double, other, page, api, last = server.screen
    assert first.startswith("weft serve ")
    assert loading == "  loading double, broken"
    assert double.startswith(
        "  [1/2] double, version 1, ONNX Runtime on CPU, batches of up to 8 rows (rows alone"
    )
    assert other.startswith("  [2/2] broken did not load: ")
    assert page == f"  try it at {server.url}/"
    assert f"{server.url}/docs" in api
    assert last == f"listening on {server.url} (http), {server.grpc} (grpc)"


def test_an_empty_store_is_told_and_filled_while_the_server_runs(
    start: Starter, onnx_models: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path / "store")
    store.folder.mkdir(exist_ok=True)
    server = start("--store", str(store.folder), "--poll-s", "0.05", "--set", "double:queue=3", "--no-grpc")
    assert "holds no models yet" in server.screen[1]
    assert "'double', which is not in the store yet" in server.log.read_text()
    store.push(onnx_models / "double.onnx", "double")
    server.logged(event="loaded", model="double")


@pytest.mark.parametrize("flag", ["--set=dubble:queue=3", "--canary=dubble=x:3", "--shadow=dubble=x"])
def test_an_option_for_a_model_that_is_not_served(flag: str, onnx_models: Path) -> None:
    with pytest.raises(
        UsageError, match=r"must name a model that is served, got 'dubble'; did you mean double\?"
    ):
        serve.main([str(onnx_models / "double.onnx"), flag, "--port", "0"], standalone_mode=False)


def test_a_server_without_a_model_that_loads_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelError, match="at least one model must load, got broken"):
        serve.main([str(tmp_path / "broken.onnx"), "--port", "0", "--no-grpc"], standalone_mode=False)


@pytest.mark.parametrize("grpc", [("--no-grpc",), ("--grpc-port", "0")])
def test_certificates_that_are_none_are_blamed_themselves(
    grpc: tuple[str, ...], tmp_path: Path, onnx_models: Path
) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    options = ("--tls-cert", str(bad), "--tls-key", str(bad), "--port", "0", *grpc)
    with pytest.raises(UsageError, match="must be a certificate and its key"):
        serve.main([str(onnx_models / "double.onnx"), *options], standalone_mode=False)


def test_the_client_names_classes(server: Server, tmp_path: Path) -> None:
    pixels = np.stack([np.full((8, 8), value) for value in (1, 3, 2)])
    given = tmp_path / "rows.json"
    given.write_text(json.dumps([pixels.tolist(), pixels[::-1].tolist()]))
    done = CliRunner().invoke(client_command, ["infer", server.url, "colours", str(given), "--top", "2"])
    assert done.output.splitlines() == ["row 0: green 0.6652  blue 0.2447", "row 1: green 0.6652  red 0.2447"]
    raw = CliRunner().invoke(client_command, ["infer", server.url, "colours", str(given), "--json"])
    assert json.loads(raw.output)["scores"] == [[1, 3, 2], [2, 3, 1]]
