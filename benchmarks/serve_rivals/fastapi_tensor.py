"""A plain FastAPI handler over ONNX Runtime, as people write it: one file, default settings, the bytes of a tensor.

It knows its only model by heart and checks nothing. It reads V2 with binary tensors, so that both get the same load.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

MODEL, READY = sys.argv[1:3]
session = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
app = FastAPI()


@app.get("/")
def root() -> dict[str, str]:
    return {}


@app.post("/v2/models/{name}/infer")
async def infer(name: str, request: Request) -> Response:
    body = await request.body()
    length = int(request.headers["inference-header-content-length"])
    shape = json.loads(body[:length])["inputs"][0]["shape"]
    x = np.frombuffer(body, np.float32, offset=length).reshape(shape)
    y = (await run_in_threadpool(session.run, None, {"x": x}))[0]
    tensor = {"name": "y", "datatype": "FP32", "shape": y.shape, "parameters": {"binary_data_size": y.nbytes}}
    head = json.dumps({"model_name": name, "model_version": "1", "outputs": [tensor]}).encode()
    told = {"inference-header-content-length": str(len(head))}
    return Response(head + y.tobytes(), headers=told, media_type="application/octet-stream")


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    Path(READY).write_text(json.dumps({"http": f"http://127.0.0.1:{listening.getsockname()[1]}"}))
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
