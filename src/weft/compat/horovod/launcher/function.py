"""`horovod.run`: a function on several workers, and its results by rank."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from weft.errors import RunError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.topology.hostlist import parse_hosts, read_hostfile

FUNCTION = "function.pickle"


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    num_proc: int | None = None,
    np: int | None = None,
    hosts: str | None = None,
    hostfile: str | None = None,
    network_interface: str | None = None,
    env: Mapping[str, str] | None = None,
    output_filename: str | None = None,
    verbose: Any = None,
    use_mpi: bool | None = None,
    **other: Any,
) -> list[Any]:
    """Call a function on every worker, and return what it returned, by rank.

    On several hosts the working directory must be shared: the function and its results are files there.
    """
    from weft.launch.run import run as launch

    if min_np := other.pop("min_num_proc", None) or other.pop("min_np", None):
        raise UsageError(
            f"horovod.run has a fixed number of workers, got min_np={min_np}; use weft run --elastic with a script"
        )
    if unknown := sorted(name for name, value in other.items() if value and name not in _IGNORED):
        raise UsageError(f"horovod.run does not know {', '.join(unknown)}; use weft run for more")
    with TemporaryDirectory(prefix=".weft-horovod-", dir=Path.cwd()) as name:
        folder = Path(name)
        folder.joinpath(FUNCTION).write_bytes(_pickled((func, tuple(args), dict(kwargs or {}))))
        variables = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each), **(env or {})}
        config = LaunchConfig(
            command=Command("module", "weft.compat.horovod.launcher.function", (name,)),
            workers=num_proc or np or (None if hosts or hostfile else 1),
            hosts=parse_hosts(hosts) if hosts else read_hostfile(hostfile) if hostfile else (),
            engine="mpi" if use_mpi else "auto",
            interface=network_interface,
            env=tuple(variables.items()),
            run_dir=Path(output_filename) if output_filename else folder / "run",
            allow_uneven=bool(hosts or hostfile),
            verbose=bool(verbose),
        )
        outcome = launch(config, to_stderr=True)
        if not outcome.ok:
            from weft.launch.control.outcome import render_failure

            raise RunError(render_failure(outcome))
        found = sorted(folder.glob("result-*.pickle"), key=lambda path: int(path.stem.partition("-")[2]))
        return [pickle.loads(path.read_bytes()) for path in found]


# Arguments of Horovod's that mean something to its own launcher alone.
_IGNORED = frozenset(
    ["use_gloo", "disable_cache", "start_timeout", "executable", "prefix_output_with_timestamp"]
)


def _pickled(value: Any) -> bytes:
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    data: bytes = pickler.dumps(value)
    return data


def work(folder: Path) -> None:
    """Call the function as one worker, and keep its result."""
    func, args, kwargs = pickle.loads(folder.joinpath(FUNCTION).read_bytes())
    result = func(*args, **kwargs)
    rank = os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or "0"
    part = folder / f"result-{rank}.part"
    part.write_bytes(_pickled(result))
    part.rename(part.with_suffix(".pickle"))


if __name__ == "__main__":
    work(Path(sys.argv[1]))
