"""Owners of jobs: which system user an account's jobs run as, and which accounts may submit at all."""

from __future__ import annotations

import os
from pathlib import Path

from weft.errors import UsageError
from weft.jobs.accounts.users import find_user
from weft.jobs.service.attempts.system_user import (
    PASSABLE,
    SystemUser,
    closed_folder,
    find_system_user,
    own_name,
    why_not,
)
from weft.jobs.service.config import JobsAs
from weft.jobs.store.database import Database


class SubmitterError(UsageError):
    """A user who may not submit jobs to this service."""


class JobOwners:
    """Finds the system user of each account, by the rule that the service was started with."""

    def __init__(self, jobs_as: JobsAs, database: Database) -> None:
        self._jobs_as, self._database = jobs_as, database

    async def of(self, user_id: int, user_name: str) -> SystemUser | None:
        """Return as whom the jobs of an account run, None: as the service; SubmitterError if they may not run."""
        account = await self._database.read(lambda c: find_user(c, user_id=user_id))
        wanted = account.system_user if account is not None else None
        if self._jobs_as == "service":
            if wanted is not None and wanted != own_name():
                raise SubmitterError(
                    f"jobs of {user_name} must run as {wanted}, got a service that runs all jobs as {own_name()}; "
                    f"start it as root with --jobs-as users, or say weft user system {user_name} --none"
                )
            return None
        if wanted is None:
            raise SubmitterError(
                f"who submits must have a system user here, got {user_name} who has none; "
                f"an admin says: weft user system {user_name} NAME"
            )
        return find_system_user(wanted)


def open_ways(jobs_as: JobsAs, folder: Path, *programs: str) -> None:
    """Let the users of jobs pass through the data folder; UsageError where they could not reach it, or Python.

    What lies there besides their folders is closed to them, also what this process makes later.
    """
    if jobs_as == "service":
        return
    reason = why_not()
    if reason is not None:
        raise UsageError(
            f"--jobs-as users must have the right to become other users, got a service without it: {reason}; "
            "start it as root, or say --jobs-as service"
        )
    for place in (folder, *map(Path, programs)):
        closed = closed_folder(place)
        if closed is not None:
            raise UsageError(
                f"{place} must be within reach of the users whose jobs run, got {closed} that is closed to them; "
                f"open it (chmod o+x), use another place, or say --jobs-as service, which runs jobs as {own_name()}"
            )
    folder.mkdir(0o700, parents=True, exist_ok=True)
    os.umask(0o077)
    for entry in folder.iterdir():
        if not entry.is_symlink():
            entry.chmod(entry.stat().st_mode & 0o700)
    for place in (folder, folder / "jobs", *(folder / "cache" / part for part in ("", "s3", "s3/trees"))):
        place.mkdir(0o700, parents=True, exist_ok=True)
        place.chmod(PASSABLE)
