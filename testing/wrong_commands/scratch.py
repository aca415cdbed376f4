"""A scratch folder with one good file of every kind that `weft` reads, for command lines to be wrong about."""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

TARGET = "y"
ROWS = [(0.5, 1.5, 0), (1.5, 0.5, 1), (2.5, 1.0, 0), (3.5, 2.0, 1), (0.1, 0.2, 0), (0.3, 0.9, 1)]
_HEADER = {
    "run": "r",
    "host": "a",
    "length": 64,
    "batch": 8,
    "micro": 4,
    "seed": 0,
    "shuffle": True,
    "drop_last": False,
}
_STEP = {
    "step": 0,
    "epoch": 0,
    "start": 0,
    "stop": 8,
    "view": 1,
    "parts": {"a/0.0": [0, 1]},
    "digest": "d",
    "t": 1.0,
}
_EVENTS = (
    {"t": 1.0, "host": "a", "event": "detected", "view": 0, "kind": "join", "who": ["a/0.0"]},
    {"t": 1.5, "host": "a", "event": "agreed", "view": 1, "kind": "join", "members": ["a/0.0"]},
    {"t": 2.0, "host": "a", "event": "stepped", "view": 1, "step": 0},
    {"t": 9.0, "host": "a", "event": "finished", "view": 1},
)  # fmt: skip


def make_scratch(folder: Path, *, heavy: bool) -> None:
    """Write the good files; the `heavy` ones need torch, scikit-learn and ONNX."""
    _write_plain(folder)
    _write_run(folder / "run")
    if heavy:
        _write_tables(folder)
        _write_models(folder)


def _write_plain(folder: Path) -> None:
    texts = {
        "train.py": "print('trained')\n",
        "job.yaml": "run: train.py\nworkers: 2:8\nresources: {gpus: 1, memory: 1GiB}\nqueue: {priority: 50}\n",
        "notes.txt": "some words\n",
        "hosts": "a slots=2\nb slots=2\n",
        "ranks": "rank 0=localhost slot=0:0\nrank 1=localhost slot=0:0\n",
        "labels.txt": "cat\ndog\n",
        "fit.yaml": "table: table.csv\ntarget: y\nmodel: linear\nmemory: 1GB\nparams: {C: 1.0}\n",
        "request.json": json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}),
        "keys.json": json.dumps([{"id": "0a", "name": "ann", "sha256": "00", "created": "2026-01-01T00:00:00+00:00"}]),
        "nets.py": "import torch\n\ndef net():\n    return torch.nn.Linear(3, 2)\n",
        "table.csv": "a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in ROWS),
        "table.svm": "".join(f"{y} 1:{a} 2:{b}\n" for a, b, y in ROWS),
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "picture.png").write_bytes(_png())
    (folder / "empty").mkdir()


def _png() -> bytes:
    """Return a picture of one white pixel."""
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0\xff\xff\xff")),
        (b"IEND", b""),
    ]
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _write_run(folder: Path) -> None:
    elastic = folder / "elastic"
    elastic.mkdir(parents=True)
    (folder / "plan.json").write_text("{}")
    (elastic / "control.json").write_text(json.dumps({"hosts": [{"name": "a", "workers": 2}], "launcher": 1}))
    ledger = [{"header": _HEADER}, _STEP]
    for name, lines in (("a.ledger.jsonl", ledger), ("a.events.jsonl", _EVENTS)):
        (elastic / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _write_tables(folder: Path) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import feather, parquet

    from weft.learn import Ridge
    from weft.learn.tables.convert import convert
    from weft.learn.tables.source import files_of

    a, b, y = map(list, zip(*ROWS, strict=True))
    table = pa.table({"a": a, "b": b, "y": y})
    parquet.write_table(table, folder / "table.parquet")
    feather.write_feather(table, folder / "table.arrow")
    convert(list(files_of(str(folder / "table.csv"))), folder / "stored", target=TARGET)
    fitted = Ridge().fit(np.array([a, b]).T, np.array(y, float))
    (folder / "model.pkl").write_bytes(pickle.dumps(fitted))


def _write_models(folder: Path) -> None:
    import numpy as np
    import torch
    from safetensors.torch import save_file

    from weft.serve.store import Store

    onnx = _write_onnx(folder / "model.onnx")
    Store(folder / "store").push(onnx, "m", ["production"])
    state: dict[str, Any] = torch.nn.Linear(3, 2).state_dict()
    torch.save(state, folder / "weights.pt")
    save_file(state, folder / "weights.safetensors")
    np.save(folder / "rows.npy", np.ones((4, 3), np.float32))
    np.savez(folder / "rows.npz", x=np.ones((4, 3), np.float32))


def _write_onnx(path: Path) -> Path:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from weft.serve.card import Card, write_card

    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.full((3,), 2, np.float32), "factor")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    write_card(model, Card(name="m"))
    onnx.save(model, path)
    return path
