"""Needs of a submitted job: secrets, data sets and room in a quota, which must be there before it can run."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from weft.jobs.data.datasets import DatasetNotFound, find_version
from weft.jobs.scheduler.model import Policy, Resources
from weft.jobs.service.usage import policy_with_quotas
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import ResolvedSpec, SpecError, SpecProblem
from weft.jobs.store.tables import secret
from weft.text import format_size

DATASET = "dataset:"


def check_needs(
    connection: sa.Connection, resolved: ResolvedSpec, needs: Resources, *, user_id: int, user_name: str
) -> None:
    """Refuse a job that would fail at its start, or wait for ever; `needs` are those of one worker."""
    spec = resolved.spec
    found = [*_missing_secrets(connection, spec, user_id, user_name)]
    if not spec.queue.after:  # an earlier job may make the data
        found += _missing_data(connection, spec)
    quota = policy_with_quotas(connection, Policy()).quotas.get(user_name)
    if quota is not None:
        found += _beyond_quota(quota, needs, resolved.min_workers, user_name)
    if found:
        raise SpecError(tuple(found))


def _missing_secrets(
    connection: sa.Connection, spec: JobSpec, user_id: int, user_name: str
) -> Iterator[SpecProblem]:
    if not spec.secrets:
        return
    mine = sa.select(secret.c.name).where(secret.c.user_id == user_id, secret.c.name.in_(spec.secrets))
    there = set(connection.scalars(mine))
    for name in spec.secrets:
        if name not in there:
            must = f"be set by {user_name}"
            yield SpecProblem("secrets", must, f"none named {name}", f"write weft secret set {name}")


def _missing_data(connection: sa.Connection, spec: JobSpec) -> Iterator[SpecProblem]:
    for name, source in spec.data.items():
        if not source.startswith(DATASET):
            continue
        try:
            find_version(connection, source)
        except DatasetNotFound:
            must = "name a data set and a version that are there"
            yield SpecProblem(f"data.{name}", must, source, "see weft dataset list")


def _beyond_quota(quota: Resources, needs: Resources, workers: int, user_name: str) -> Iterator[SpecProblem]:
    wanted = {
        "cores": (needs.cpus, quota.cpus, f"{quota.cpus:g}"),
        "memory": (needs.memory_bytes, quota.memory_bytes, _size(quota.memory_bytes)),
        "accelerators": (needs.gpus, quota.gpus, f"{quota.gpus:g}"),
    }
    for word, (each, most, shown) in wanted.items():
        if each * workers > most + 1e-9:
            amount = _size(each * workers) if word == "memory" else f"{each * workers:g}"
            must = f"fit into the quota of {user_name}, which has {word} of {shown}"
            yield SpecProblem("resources", must, amount, "ask for less, or an administrator for more")


def _size(amount: float) -> str:
    return format_size(int(amount)) if amount < float("inf") else "any size"
