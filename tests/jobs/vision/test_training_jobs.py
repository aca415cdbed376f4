"""The whole loop by the API: pictures in, a training as a job, its model served, tried, and labelling the rest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from testing.jobs.web import ServiceThread, WebService

from weft.vision.pictures.decoding import encode_png

PATIENCE_S = 600.0
RED, BLUE = (200, 30, 30), (30, 30, 200)


def picture(colour: tuple[int, int, int], seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(-25, 25, (40, 40, 3))
    return encode_png(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8))


def ended(client: httpx.Client, number: int) -> Any:
    """Wait for the end of a job."""
    until = time.monotonic() + PATIENCE_S
    while True:
        job = client.get(f"/jobs/{number}").json()
        if job["state"] in ("completed", "failed", "stopped"):
            return job
        assert time.monotonic() < until, job
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_pictures_become_a_served_model_that_labels(tmp_path: Path) -> None:
    with ServiceThread(tmp_path, {}, runs_jobs=True) as service:
        tell(service, service.admin())


def tell(service: WebService, admin: httpx.Client) -> None:
    """Go once through the loop."""
    library = service.running.state.jobs.trainings.library
    made = library.create("colours", user=None)
    for seed in range(12):
        colour, name = ((RED, "red"), (BLUE, "blue"))[seed % 2]
        library.add(made.id, picture(colour, seed), f"{seed}.png", category=name)
    for seed in (100, 101):
        library.add(made.id, picture(RED if seed == 100 else BLUE, seed), f"{seed}.png")
    refused = admin.post("/vision/trainings", json={"dataset": "colours", "config": {"batchs": 4}})
    assert refused.status_code == 422
    assert "batchs" in refused.text
    asked = {
        "dataset": "colours",
        "task": "classification",
        "model": "small",
        "config": {"schedule": {"epochs": 4}, "batch": 4, "threads": 1, "first": False},
    }
    begun = admin.post("/vision/trainings", json=asked)
    assert begun.status_code == 201, begun.text
    number = begun.json()["job"]["id"]
    job = ended(admin, number)
    logs = admin.get(f"/jobs/{number}/logs").text
    assert job["state"] == "completed", (job["message"], logs[-3000:])
    training = admin.get(f"/vision/trainings/{number}").json()
    assert (training["model"], training["version"]) == ("colours@1", 1)
    assert training["score"] > 0.5
    model = admin.get("/vision/models/colours@1").json()
    assert set(model["classes"]) == {"red", "blue"}
    assert model["results"]["results"]["confusion"]
    assert (
        admin.patch("/vision/models/colours@1", json={"status": "production"}).json()["status"]
        == "production"
    )
    served = admin.post("/vision/models/colours@1/deploy", json={})
    assert served.status_code == 201, served.text
    answer = predicted(admin, served.json()["name"], picture(BLUE, 7))
    assert answer["classified"][0]["label"] == "blue"
    labelling = admin.post("/vision/datasets/colours/autolabel", json={"model": "colours", "confidence": 0.3})
    assert (labelling.status_code, labelling.json()["pictures"]) == (202, 2), labelling.text
    done = ended(admin, labelling.json()["job"]["id"])
    assert done["state"] == "completed", done["message"]
    files = {one.name: one for one in library.files(made.id).files}
    assert (files["100.png"].category, files["101.png"].category) == ("red", "blue")
    assert files["100.png"].state == "auto"
    assert files["0.png"].state == "labelled"
    admin.delete(f"/deployments/{served.json()['name']}")


def predicted(client: httpx.Client, name: str, data: bytes) -> Any:
    """Show a picture to a deployment as soon as it answers."""
    until = time.monotonic() + PATIENCE_S
    while True:
        answer = client.post(f"/vision/deployments/{name}/predict", content=data)
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code == 503, answer.text
        assert time.monotonic() < until, answer.text
        time.sleep(0.3)
