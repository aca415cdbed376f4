"""Deployments whose service is killed: their servers answer meanwhile, and the next service takes them up."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import httpx
from testing.cluster.waiting import wait_until
from testing.jobs.desk import opened
from testing.jobs.service_process import ServiceProcess
from testing.serving.small_models import times

from weft.jobs.data.deployment_records import Deployment
from weft.jobs.data.deployments import Deployments
from weft.serve.store import Store

PATIENCE_S = 120.0


def test_a_server_goes_on_when_the_service_is_killed_and_is_taken_up_again(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/weft.db"
    store = Store(tmp_path / "data" / "models")
    times(tmp_path / "model.onnx", 2.0)
    store.push(tmp_path / "model.onnx", "doubler", ())
    times(tmp_path / "model.onnx", 3.0)
    store.push(tmp_path / "model.onnx", "doubler", ())
    with opened(address) as database:
        desk = Deployments(database, tmp_path / "data" / "deployments", store)

        def shown() -> Deployment:
            return asyncio.run(desk.find("live"))

        def answers() -> bool:
            return (
                httpx.get(f"http://127.0.0.1:{shown().port}/v2/health/ready", trust_env=False).status_code
                == 200
            )

        def factor() -> float:
            row = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 0, 0, 0]}
            body = json.dumps({"inputs": [row]}).encode()
            answer = asyncio.run(desk.ask(shown(), "POST", "/v2/models/doubler/infer", body))
            assert answer is not None
            return float(json.loads(answer)["outputs"][0]["data"][0])

        asyncio.run(desk.deploy("live", "doubler@1", user_id=1, user_name="ann"))
        first = ServiceProcess(tmp_path, address)
        try:
            wait_until(lambda: shown().state == "running", "the server", PATIENCE_S)
            before = shown()
            asyncio.run(desk.set_canary("live", 2, 100.0, user_name="ann"))
            assert factor() == 3.0
            first.kill()
            assert before.is_alive
            assert answers()
            second = ServiceProcess(tmp_path, address)
            try:
                # Another server of the same model is started only for one that has ended.
                assert before.pid is not None
                os.kill(before.pid, signal.SIGKILL)
                wait_until(
                    lambda: shown().pid != before.pid, "the new service to notice the loss", PATIENCE_S
                )
                wait_until(lambda: shown().state == "running", "the server to be started again", PATIENCE_S)
                assert answers()
                assert shown().pid != before.pid
                assert factor() == 3.0  # the canary, too
                asyncio.run(desk.set_canary("live", None, 0.0, user_name="ann"))
                assert factor() == 2.0
                assert desk.canary(shown()) is None
            finally:
                second.stop()
            assert answers()  # also after a polite end
        finally:
            first.kill()
            asyncio.run(desk.remove("live", user_name="ann"))
