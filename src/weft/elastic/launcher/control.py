"""The control files of an elastic run: what a launcher writes down so that others can scale, pause or adopt the run.

elastic/control.json    the settings, the hosts, and the launcher's process; values of --env are left out
elastic/secret          the run's secret; only its user may read it
elastic/launcher.lock   held by the launcher while it lives; the system releases it when the launcher dies
elastic/workers.json    how many worker processes each host has now
elastic/hosts           the hosts that `weft scale` asked for
elastic/pause           there when `weft pause` asked for the end of the run at a checkpoint
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from weft.documents import read_document
from weft.elastic.config import ElasticConfig
from weft.elastic.membership.view import View
from weft.errors import UsageError
from weft.files import write_whole
from weft.launch.agent.processes import started_ticks
from weft.launch.config import LaunchConfig
from weft.topology.hostlist import HostEntry

FOLDER = "elastic"  # in the run directory
SCALE_FILE = "hosts"
PAUSE_FILE = "pause"
WORKERS_FILE = "workers.json"
CONTROL_FILE = "control.json"
SECRET_FILE = "secret"
LOCK_FILE = "launcher.lock"
PRIVATE_FILE = 0o600
LOCK_S = 0.5  # for which a lock is tried: somebody may just look whether it is held


class KnownHost(msgspec.Struct, frozen=True):
    """A host that takes or took part: the ranks of its slots' output, and how many agents it has had."""

    ranks: tuple[int, ...] = ()
    lives: int = 0
    witness: bool = False
    at: str = ""  # the host of a witness that was asked for


class RunControl(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `control.json`."""

    hosts: tuple[HostEntry, ...]  # with which the run was started
    launcher: int | None = None  # its process
    launcher_ticks: int | None = None  # when that was started, in ticks since the machine was
    run: str = ""
    began_s: float = 0.0  # since 1970
    local: bool = False  # on this machine alone
    per_host: int | None = None  # workers of a host for which no number is named; None: the host decides
    least: int = 1
    most: int = 1
    checkpoint: bool = False
    first: View | None = None  # with which agents begin
    known: Mapping[str, KnownHost] = {}
    config: Mapping[str, Any] = {}  # see `settings_to_json`
    elastic: Mapping[str, Any] = {}


def make_control(
    config: LaunchConfig,
    elastic: ElasticConfig,
    *,
    run: str,
    began_s: float,
    local: bool,
    first: View | None,
    known: Mapping[str, KnownHost],
) -> RunControl:
    """Return what another launcher would have to know of a run that this process launches."""
    per_host = config.per_host
    return RunControl(
        hosts=config.hosts or tuple(HostEntry(name) for name in known),
        launcher=os.getpid(),
        launcher_ticks=started_ticks(os.getpid()),
        run=run,
        began_s=began_s,
        local=local,
        per_host=per_host if isinstance(per_host, int) else None,
        least=elastic.least,
        most=elastic.most,
        checkpoint=elastic.checkpoint is not None,
        first=first,
        known=known,
        config=settings_to_json(config),
        elastic=settings_to_json(elastic),
    )


def read_control(run_dir: Path) -> RunControl:
    """Return what the launcher of a run wrote down."""
    path = run_dir / FOLDER / CONTROL_FILE
    if not path.exists():
        raise UsageError(
            f"{run_dir} must be an elastic run of ours, got no elastic/control.json; was it started with --elastic?"
        )
    return read_document(path, RunControl)


def is_attended(run_dir: Path, control: RunControl) -> bool:
    """Return whether the launcher of a run lives: it holds its lock, which tells the truth in containers too.

    Where there is no lock, its process tells.
    """
    try:
        handle = os.open(run_dir / FOLDER / LOCK_FILE, os.O_RDWR)
    except OSError:
        ticks = None if control.launcher is None else started_ticks(control.launcher)
        return control.launcher is None or (ticks is not None and control.launcher_ticks in (None, ticks))
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def write_control(run_dir: Path, control: RunControl) -> None:
    """Write down what others may know of a run."""
    write_whole(run_dir / FOLDER / CONTROL_FILE, msgspec.json.encode(control) + b"\n")


def settings_to_json(config: LaunchConfig | ElasticConfig) -> dict[str, Any]:
    """Return settings as data that may be written down: variables by their names alone."""
    if isinstance(config, LaunchConfig):
        config = replace(config, env=tuple((name, "") for name, _ in config.env))
    settings: dict[str, Any] = msgspec.to_builtins(config, enc_hook=str)
    return settings


def settings_from_json(control: RunControl) -> tuple[LaunchConfig, ElasticConfig]:
    """Return the settings with which a run was started; the values of its variables are empty."""

    def read(kind: type, value: Any) -> Any:
        return kind(value)  # paths

    return (
        msgspec.convert(control.config, LaunchConfig, dec_hook=read),
        msgspec.convert(control.elastic, ElasticConfig, dec_hook=read),
    )


def write_secret(run_dir: Path, secret: str) -> None:
    """Keep the secret of a run in a file that only its user may read, from the first moment on."""
    path = run_dir / FOLDER / SECRET_FILE
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE_FILE)
    with os.fdopen(handle, "w") as file:
        file.write(secret)


def read_secret(run_dir: Path) -> str:
    """Return the secret of a run; it must be ours alone."""
    path = run_dir / FOLDER / SECRET_FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise UsageError(
            f"{path} must be there to adopt a run, got {error.strerror}; only its own user can adopt it"
        ) from None
    with os.fdopen(handle) as file:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UsageError(f"{path} must be readable by its own user alone, got mode {status.st_mode:o}")
        return file.read()


class LauncherLock:
    """The lock that a launcher holds while it lives: a run has one launcher at a time."""

    def __init__(self, run_dir: Path) -> None:
        self._handle = os.open(run_dir / FOLDER / LOCK_FILE, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        deadline = time.monotonic() + LOCK_S
        while not self._take():
            if time.monotonic() > deadline:
                self.close()
                raise UsageError(
                    f"a run must have lost its launcher to be adopted, got {run_dir} whose launcher is alive; "
                    "end that one first, or leave it"
                )
            time.sleep(LOCK_S / 20)

    def _take(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Let another launcher have the run."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
