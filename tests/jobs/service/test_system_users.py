"""Jobs as system users: who may submit, and a service that is root running a job as somebody else."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest
from testing.cluster.namespaces import missing_rights
from testing.jobs.desk import opened

from weft.errors import UsageError
from weft.jobs.accounts.users import change_user
from weft.jobs.service.attempts.system_user import (
    SystemUser,
    acting_as,
    closed_folder,
    find_system_user,
    missing_right,
    user_environment,
)
from weft.jobs.service.owners import JobOwners, SubmitterError, open_ways

ANN = SystemUser("ann", 12345, 12345, (12345,), "/home/ann", "/bin/sh")
ALL = "Name:\tpython\nCapEff:\t00000000000000c1\n"
SCRIPT = """
import os
from pathlib import Path
outputs = Path(os.environ["WEFT_OUTPUTS"])
(outputs / "who").write_text(f"{os.getuid()} {os.environ['HOME']} {os.environ['USER']}")
Path("shadow").symlink_to("/etc/shadow")
Path("../run/rank-7.log").symlink_to("/etc/shadow")
"""
STORY = """
import asyncio, sys, tempfile
from pathlib import Path
from testing.jobs.desk import desk_on, opened
from weft.jobs.accounts.users import change_user
from weft.jobs.reports.logs import LogReader
from weft.jobs.service.owners import open_ways


async def main(database, folder):
    async with desk_on(database, folder, jobs_as="users") as desk:
        number = await desk.submit(sys.argv[1], "outputs: {shadow: shadow}")
        job = await desk.reach(number)
        print(job.state, job.message)
        print(desk.path(number, "outputs", "who").read_text())
        places = [desk.path(number, *parts) for parts in ([], ["run", "plan.json"], ["code", "job.py"])]
        print({place.stat().st_uid for place in (*places, folder / "data/jobs/1/checkpoints")})
        print(LogReader(desk.path(number, "run")).tail(7).lines, desk.path(number, "outputs", "shadow").exists())

with tempfile.TemporaryDirectory() as name, opened(f"sqlite:///{name}/weft.db") as database:
    folder = Path(name)
    folder.chmod(0o711)
    database.submit(lambda c: change_user(c, 1, system_user="nobody")).result()
    open_ways("users", folder / "data", sys.executable)
    asyncio.run(main(database, folder))
"""


def test_the_right_to_become_others_is_read_from_the_kernels_words() -> None:
    assert missing_right(ALL, 0) is None
    assert missing_right(ALL, 1000) == "it is not root"
    assert missing_right(ALL.replace("c1", "01"), 0) == "it is root without CAP_SETGID, CAP_SETUID"


def test_an_environment_is_that_of_the_users_own_login() -> None:
    mine = {"PATH": "/bin", "HOME": "/root", "SSH_AUTH_SOCK": "/run/agent", "XDG_RUNTIME_DIR": "/run/0"}
    found = user_environment(mine, ANN)
    assert found == {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "USER": "ann",
        "LOGNAME": "ann",
        "SHELL": "/bin/sh",
    }
    assert user_environment(mine, None) == mine


def test_who_may_submit(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    with opened(f"sqlite:///{tmp_path}/weft.db") as database:
        by_users, as_service = JobOwners("users", database), JobOwners("service", database)
        with pytest.raises(
            SubmitterError, match="ann who has none; an admin says: weft user system ann NAME"
        ):
            asyncio.run(by_users.of(1, "ann"))
        assert asyncio.run(as_service.of(1, "ann")) is None
        database.submit(lambda c: change_user(c, 1, system_user=me)).result()
        found = asyncio.run(by_users.of(1, "ann"))
        assert found is not None
        assert found.uid == os.geteuid()
        assert asyncio.run(as_service.of(1, "ann")) is None
        other = "nobody" if me != "nobody" else "root"
        database.submit(lambda c: change_user(c, 1, system_user=other)).result()
        with pytest.raises(SubmitterError, match=f"must run as {other}, got a service that runs all jobs as"):
            asyncio.run(as_service.of(1, "ann"))


def test_a_system_user_must_be_there_and_reach_the_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be an account of this machine, got 'nobody-here'"):
        find_system_user("nobody-here")
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    found = closed_folder(closed / "data")
    assert found is not None
    assert closed.is_relative_to(found)
    with pytest.raises(UsageError, match=r"that is closed to them|got a service without it"):
        open_ways("users", closed / "data")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_files_are_touched_with_the_rights_of_the_user_in_this_thread_alone(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    secret.chmod(0o600)
    with acting_as(find_system_user("nobody")), pytest.raises(PermissionError):
        secret.read_text()
    assert secret.read_text() == "s"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_job_runs_as_its_submitter_and_reads_no_more_than_they_may(tmp_path: Path) -> None:
    if (why := missing_rights()) is not None:
        pytest.skip(f"needs namespaces: {why}")
    # Python and the repository may lie in a folder that is root's alone; in mounts of our own, others reach them.
    repository = Path(__file__).parents[3]
    needed = [Path(sys.executable).resolve().parents[1], Path(sys.prefix), repository]
    closed = [str(folder) for folder in needed if closed_folder(folder)]
    opening = f"""
if test -n "{" ".join(closed)}"; then
  for folder in {" ".join(closed)}; do mkdir -p {tmp_path}/$folder && mount --bind $folder {tmp_path}/$folder; done
  mount -t tmpfs -o mode=755 tmpfs /root
  for folder in {" ".join(closed)}; do mkdir -p $folder && mount --bind {tmp_path}/$folder $folder; done
  cd "$PWD"
fi
exec "$@"
"""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", opening, "sh", sys.executable, "-c", STORY, SCRIPT],
        cwd=repository,
        env={**os.environ, "PYTHONPATH": str(repository), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    nobody = pwd.getpwnam("nobody")
    said = done.stdout.splitlines()
    assert len(said) == 4, done.stderr
    assert said[0].startswith("failed it ran well, but its outputs could not be stored"), said
    assert "Permission denied" in said[0]
    assert said[1:] == [f"{nobody.pw_uid} {nobody.pw_dir} nobody", f"{{{nobody.pw_uid}}}", "() False"]
