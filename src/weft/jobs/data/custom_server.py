"""The server of a custom model: a user's `deploy.py`, run with the rights of who deployed it.

The packed model is its standard input and its address comes over a descriptor, so that a process of another system
user needs no way into the service's folders.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from weft.jobs.service.attempts.system_user import SystemUser, as_user, user_environment

SERVER = "weft.vision.custom.serving"


def spawn_custom(
    packed: Path, ready_file: Path, log_file: Path, env: Mapping[str, str], user: SystemUser | None
) -> subprocess.Popen[bytes]:
    """Start the server of a packed custom model; it writes where it answers into `ready_file`."""
    with packed.open("rb") as given, log_file.open("wb") as log, ready_file.open("wb") as ready:
        number = ready.fileno()
        os.set_inheritable(number, True)
        return subprocess.Popen(
            (sys.executable, "-P", "-m", SERVER, str(number)),
            stdin=given,
            stdout=log,
            stderr=log,
            cwd="/",
            env=user_environment(env, user),
            pass_fds=(number,),
            start_new_session=True,
            **as_user(user),
        )
