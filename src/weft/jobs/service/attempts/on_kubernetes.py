"""Attempts that run on Kubernetes: the settings of their pods, from what a job asks for; pure."""

from __future__ import annotations

from decimal import Decimal

import msgspec

from weft.jobs.spec.read import ResolvedSpec
from weft.launch.pod_settings import KubernetesConfig

SETTINGS_FILE = "kubernetes.json"  # in the folder of an attempt


def pod_settings(resolved: ResolvedSpec, *, job_id: int, number: int) -> KubernetesConfig:
    """Return the settings of an attempt's pods: name and code, and the size of their workers unless the job says so."""
    given = resolved.spec.kubernetes or KubernetesConfig()
    per_pod = workers_per_pod(resolved)
    return msgspec.structs.replace(
        given,
        name=given.name or f"weft-{job_id}-{number}",
        code=given.code or "snapshot",  # what was sent along
        client_s=None,  # it outlives the service, which follows it again
        resources=given.resources or resources_of(resolved, per_pod),
    )


def workers_per_pod(resolved: ResolvedSpec) -> int:
    """Return how many workers the pods of an attempt have room for."""
    pods = 1 if resolved.spec.kubernetes is None else resolved.spec.kubernetes.pods
    return -(-resolved.max_workers // pods)


def resources_of(resolved: ResolvedSpec, workers: int) -> dict[str, str | int]:
    """Return what a number of workers need, in Kubernetes' words."""
    resources = resolved.spec.resources
    found: dict[str, str | int] = {"cpu": f"{max(1, round(resources.cpus * workers * 1000))}m"}
    if resolved.memory_bytes:
        found["memory"] = resolved.memory_bytes * workers
    if resources.gpus:
        found["nvidia.com/gpu"] = int(Decimal(str(resources.gpus)) * workers + Decimal("0.999"))
    return found


def pod_options(resolved: ResolvedSpec, folder: str) -> list[str]:
    """Return the options of `weft run` for an attempt on Kubernetes."""
    options = ["--engine", "kubernetes", "--kubernetes", f"{folder}/{SETTINGS_FILE}"]
    if resolved.min_workers < resolved.max_workers:
        limits = f"{resolved.min_workers}:{resolved.max_workers}"
        return [*options, "--elastic", limits, "--per-host", str(workers_per_pod(resolved))]
    return [*options, "-n", str(resolved.max_workers)]
