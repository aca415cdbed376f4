"""Answers of the made-up service about data sets, models and deployments."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from testing.console.world import GIB, World, now_ms

from weft.jobs.api.types import data

DIGEST = "4be1f0" * 10 + "77aa"


def _version(number: int) -> dict[str, Any]:
    return {
        "version": number, "source": "s3://team/digits", "digest": DIGEST, "files": 1797, "bytes": 3 * GIB,
        "note": "cleaned" if number > 1 else "", "user": "ines", "created_ms": now_ms() - 90_000_000 // number,
    }  # fmt: skip


def list_datasets(world: World, request: Request) -> data.DatasetsAnswer:
    versions = tuple(data.DatasetVersionView(**_version(number)) for number in (2, 1))
    made = data.DatasetView(
        name="digits", description="Scans of digits", user="ines", created_ms=now_ms() - 90_000_000,
        versions=versions, mine=True,
    )  # fmt: skip
    return data.DatasetsAnswer((made,) if world.jobs else ())


def show_dataset_version(world: World, request: Request) -> data.DatasetVersionDetail:
    listing = tuple(data.DataFileView(f"train/{number}.png", 812, DIGEST) for number in range(20))
    return data.DatasetVersionDetail(
        **_version(2), name="digits", listing=listing, jobs=(12, 9), models=("digits@3",)
    )


def _model(number: int) -> dict[str, Any]:
    return {
        "version": number, "aliases": ("production",) if number == 2 else (), "sha256": DIGEST, "bytes": 97_400_000,
        "created": "2026-11-16T09:30:00Z", "job": 12, "deployments": ("digits",) if number == 2 else (),
    }  # fmt: skip


def list_models(world: World, request: Request) -> data.ModelsAnswer:
    versions = tuple(data.ModelVersionView(**_model(number)) for number in (3, 2, 1))
    return data.ModelsAnswer((data.ModelView("digits", versions),) if world.jobs else ())


def show_model_version(world: World, request: Request) -> data.ModelVersionDetail:
    lineage = data.ModelLineage(
        job=12, job_name="digits-cosine", project="vision", user="mara", code=DIGEST, git_commit="9f3c1ab7d20e64f1",
        data=(data.LineageData("digits", DIGEST, "s3://team/digits", "dataset"),), params={"batch": "64"},
        metrics={"loss": 0.081, "accuracy": 0.971}, ledger={"verdict": "whole"},
    )  # fmt: skip
    return data.ModelVersionDetail(**_model(2), name="digits", card={}, lineage=lineage)


def show_model(world: World, request: Request) -> data.ModelView:
    return data.ModelView("digits", (data.ModelVersionView(**_model(2)), data.ModelVersionView(**_model(1))))


def _deployment() -> dict[str, Any]:
    return {
        "name": "digits", "model": "digits", "version": 2, "previous": (1,), "state": "running", "message": None,
        "url": "http://127.0.0.1:9301", "user": "mara", "created_ms": now_ms() - 9_000_000,
        "changed_ms": now_ms() - 600_000, "mine": True,
    }  # fmt: skip


def list_deployments(world: World, request: Request) -> data.DeploymentsAnswer:
    return data.DeploymentsAnswer((data.DeploymentView(**_deployment()),) if world.jobs else ())


def show_deployment(world: World, request: Request) -> data.DeploymentDetail:
    figures = data.ServingView(
        requests=18_234, failures=3, in_flight=2, versions=(2,), p50_ms=1.84, p95_ms=4.1, p99_ms=9.7
    )
    canary = data.ServingView(
        requests=4_512, failures=41, in_flight=0, versions=(1,), p50_ms=2.9, p95_ms=8.8, p99_ms=31.0
    )
    return data.DeploymentDetail(
        **_deployment(), figures=figures, canary=data.CanaryView(1, 20.0),
        by_version=(data.VersionServing(1, canary), data.VersionServing(2, figures)),
        inputs=({"name": "x", "datatype": "FP32", "shape": [-1, 4]},),
        outputs=({"name": "y", "datatype": "FP32", "shape": [-1, 2]},),
    )  # fmt: skip


def set_canary(world: World, request: Request) -> data.DeploymentView:
    return data.DeploymentView(**_deployment())


def infer(world: World, request: Request) -> data.InferenceAnswer:
    return data.InferenceAnswer(
        "digits", ({"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.97, 0.03]},)
    )
