"""The least a Python server can do: one ASGI function that reads V2's JSON or bytes, calls ONNX Runtime, and answers.

It knows its only model by heart and checks nothing. Same server (uvicorn, uvloop, httptools), same JSON library.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime as ort
import uvicorn

MODEL, READY = sys.argv[1:3]
options = ort.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
decoder = msgspec.json.Decoder()


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    kind, extra = b"application/json", []
    if scope["method"] == "GET":
        answer = b"{}"
    else:
        length = next((int(v) for k, v in scope["headers"] if k == b"inference-header-content-length"), None)
        if length is None:
            given = decoder.decode(body)["inputs"][0]
            x = np.array(given["data"], np.float32).reshape(given["shape"])
        else:
            given = decoder.decode(body[:length])["inputs"][0]
            x = np.frombuffer(body[length:], np.float32).reshape(given["shape"])
        y = session.run(None, {"x": x})[0]
        tensor: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": y.shape}
        raw = b""
        if length is None:
            tensor["data"] = y.ravel().tolist()
        else:
            raw = y.tobytes()
            tensor["parameters"] = {"binary_data_size": len(raw)}
            kind = b"application/octet-stream"
        answer = msgspec.json.encode({"model_name": "tiny", "model_version": "1", "outputs": [tensor]})
        if length is not None:
            extra = [(b"inference-header-content-length", b"%d" % len(answer))]
            answer += raw
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(answer)), *extra]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    Path(READY).write_text(json.dumps({"http": f"http://127.0.0.1:{listening.getsockname()[1]}"}))
    uvicorn.Server(config).run(sockets=[listening])
