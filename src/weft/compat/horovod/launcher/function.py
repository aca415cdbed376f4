"""`horovod.run`: a function on several workers, and its results by rank."""

from __future__ import annotations

import os
import pickle
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import HorovodRunError
from weft.compat.horovod.launcher.command import (
    cards_of,
    is_elastic,
    refuse,
    settings_of,
    translation_of,
)
from weft.compat.horovod.launcher.flags import parse
from weft.elastic.worker.link import DESCRIPTORS

FUNCTION = "function.pickle"
MODULE = "weft.compat.horovod.launcher.function"
TOLD_CHARS = 4000  # of the end of what failed workers have printed


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    min_num_proc: int | None = None,
    max_num_proc: int | None = None,
    slots: int | None = None,
    reset_limit: int | None = None,
    cooldown_range: Sequence[int] | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    start_timeout: float | None = None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
    disable_cache: bool | None = None,
    output_filename: str | None = None,
    verbose: Any = None,
    use_gloo: bool | None = None,
    use_mpi: bool | None = None,
    mpi_args: str | None = None,
    network_interface: str | None = None,
    executable: str | None = None,
    np: int | None = None,
    min_np: int | None = None,
    max_np: int | None = None,
    host_discovery_script: str | None = None,
    elastic_timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    prefix_output_with_timestamp: bool = False,
) -> list[Any]:
    """Call a function on every worker, and return what it returned, by rank.

    On several hosts the working directory must be shared: the function and its results are files there. With a least or
    a most number of workers, or a script that finds hosts, the run is elastic.
    """
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts must be named once, got hosts= and hostfile=; drop one")
    if use_gloo and use_mpi:
        raise ValueError("one of use_gloo and use_mpi may be set, got both; drop one")
    given = parse([])
    given.num_proc = num_proc or np or (None if hosts or hostfile else 1)
    given.min_num_proc, given.max_num_proc = min_num_proc or min_np, max_num_proc or max_np
    given.slots, given.reset_limit, given.cooldown_range = slots, reset_limit, cooldown_range
    given.hosts, given.hostfile, given.host_discovery_script = hosts, hostfile, host_discovery_script
    given.start_timeout, given.elastic_timeout = start_timeout, elastic_timeout
    given.ssh_port, given.ssh_identity_file = ssh_port, ssh_identity_file
    given.output_filename, given.verbose = output_filename, bool(verbose)
    given.use_gloo, given.use_mpi, given.mpi_args = bool(use_gloo), bool(use_mpi), mpi_args
    given.nics = [network_interface] if network_interface else None
    given.executable = executable
    return run_given(given, func, args, kwargs, env)


def run_given(
    given: Any,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call a function on the workers that flags of `horovodrun` describe; return what it returned, by rank."""
    with TemporaryDirectory(prefix=".weft-horovod-", dir=Path.cwd()) as name:
        folder = Path(name)
        folder.joinpath(FUNCTION).write_bytes(_pickled((func, tuple(args), dict(kwargs or {}))))
        variables = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each), **(env or {})}
        if is_elastic(given):
            _run_elastic(given, folder, variables)
        else:
            _run_fixed(given, folder, variables)
        found = sorted(folder.glob("result-*.pickle"), key=lambda path: int(path.stem.partition("-")[2]))
        return [pickle.loads(path.read_bytes()) for path in found]


def _run_fixed(given: Any, folder: Path, variables: Mapping[str, str]) -> None:
    from weft.launch.command import Command
    from weft.launch.config import LaunchConfig
    from weft.launch.control.outcome import render_failure
    from weft.launch.run import run as launch
    from weft.topology.hostlist import parse_hosts, read_hostfile

    refuse(given)
    settings = {f"HOROVOD_{name}": value for name, value in settings_of(given).items()}
    hosts = parse_hosts(given.hosts) if given.hosts else ()
    config = LaunchConfig(
        command=Command("module", MODULE, (str(folder),)),
        workers=given.num_proc,
        hosts=read_hostfile(given.hostfile) if given.hostfile else hosts,
        engine="mpi" if given.use_mpi else "auto",
        mpi_args=tuple(shlex.split(given.mpi_args or "")),
        interface=next(iter(cards_of(given)), None),
        tcp=given.tcp_flag,
        env=tuple({**settings, **variables}.items()),
        python=given.executable,
        run_dir=Path(given.output_filename) if given.output_filename else folder / "run",
        allow_uneven=bool(given.hosts or given.hostfile),
        verbose=given.verbose,
    )
    outcome = launch(config, to_stderr=True)
    if not outcome.ok:
        raise HorovodRunError(render_failure(outcome))


def _run_elastic(given: Any, folder: Path, variables: Mapping[str, str]) -> None:
    given.command = ["python", "-m", MODULE, str(folder)]
    given.output_filename = given.output_filename or str(folder / "run")
    words = list(translation_of(given).args)
    added = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    if given.executable:
        added += ["--python", given.executable]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "weft", *words[:1], *added, *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    sys.stderr.write(done.stdout)
    if done.returncode:
        output = done.stdout.strip()[-TOLD_CHARS:]
        raise HorovodRunError(output or f"exit code {done.returncode}")


def _pickled(value: Any) -> bytes:
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    data: bytes = pickler.dumps(value)
    return data


def work(folder: Path) -> None:
    """Call the function as one worker, and keep its result."""
    if DESCRIPTORS in os.environ:  # of an elastic run, in which more workers may wait than take part
        world.init()
    func, args, kwargs = pickle.loads(folder.joinpath(FUNCTION).read_bytes())
    result = func(*args, **kwargs)
    names = ("HOROVOD_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
    rank = next((os.environ[name] for name in names if os.environ.get(name)), "0")
    part = folder / f"result-{rank}.part"
    part.write_bytes(_pickled(result))
    part.rename(part.with_suffix(".pickle"))
    world.shutdown()  # which waits for the others


if __name__ == "__main__":
    work(Path(sys.argv[1]))
