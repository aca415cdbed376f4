"""Variables of a job that come from the service: its secrets, and where its MLflow client shall report to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.accounts.tokens import make_token
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.tables import secret, token


class ServiceVariables:
    """Opens secrets and makes the tokens of jobs. `url` is the root of the service, once it is known."""

    def __init__(self, folder: Path, database: Database) -> None:
        self._key, self._database = folder / "secret.key", database
        self.url: str | None = None

    async def of(self, job: StoredJob, spec: JobSpec, folder: Path) -> Mapping[str, str]:
        """Return the variables of an attempt that is about to start."""
        found = await self._secrets(job, spec)
        if self.url is not None:
            text = await self._database.write(lambda connection: self._token(connection, job))
            found |= {
                "MLFLOW_TRACKING_URI": self.url,
                "MLFLOW_TRACKING_TOKEN": text,
                "MLFLOW_RUN_ID": str(job.id),
            }
        return found

    async def _secrets(self, job: StoredJob, spec: JobSpec) -> dict[str, str]:
        if not spec.secrets:
            return {}
        mine = sa.select(secret.c.name, secret.c.sealed).where(
            secret.c.user_id == job.user_id, secret.c.name.in_(spec.secrets)
        )
        sealed = dict(await self._database.read(lambda c: c.execute(mine).all()))
        missing = [name for name in spec.secrets if name not in sealed]
        if missing:
            raise UsageError(
                f"secrets must have been set by {job.user_name}, got none named {', '.join(missing)}; set them first"
            )
        sealer = Sealer(self._key)
        return {name: sealer.open(sealed[name]) for name in spec.secrets}

    def _token(self, connection: sa.Connection, job: StoredJob) -> str:
        """Make a token that is good for this job alone; those of earlier attempts end."""
        revoke_tokens(connection, job.id)
        return make_token(connection, job.user_id, kind="job", name=_name(job.id), scopes=(f"job:{job.id}",))


def revoke_tokens(connection: sa.Connection, job_id: int) -> None:
    """End the tokens of a job."""
    connection.execute(sa.delete(token).where(token.c.kind == "job", token.c.name == _name(job_id)))


def _name(job_id: int) -> str:
    return f"job {job_id}"
