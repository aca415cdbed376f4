"""The process among the others of its run, whatever started it: `weft.init()`, `weft.rank()` and their kin.

The environment is read once, here. torchrun's variables come first, since `weft run` sets them under every engine;
then those of Open MPI, MPICH and Slurm for scripts started by their own launchers; then a world of one.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from weft.collectives.settings import CollectiveSettings, settings_from_env
from weft.errors import UsageError
from weft.topology.hostlist import expand_hosts

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class World:
    """This process's place in the run."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    host: str = ""
    host_index: int = 0
    num_hosts: int = 1
    launcher: str = "none"

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size or not 0 <= self.local_rank < self.local_size:
            raise UsageError(
                f"a rank must be below its world's size, got rank {self.rank} of {self.size} and local rank "
                f"{self.local_rank} of {self.local_size} from {self.launcher}; unset stale RANK and LOCAL_RANK"
            )


@dataclass(frozen=True, kw_only=True)
class Context(World):
    """A world that is ready to communicate: what `weft.init()` gives."""

    device: torch.device
    backend: str


# launcher: rank, size, local rank, local size
_LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "openmpi": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "mpich": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
}


def world_from_env(environ: Mapping[str, str]) -> World:
    """Read this process's place from the variables its launcher set."""
    launcher = _launcher(environ)
    if launcher is None:
        return World(host=_host(environ))
    rank, size, local_rank, local_size = _LAUNCHERS[launcher]
    if launcher == "slurm":
        environ = {**environ, local_size: str(_slurm_local_size(environ))}
    world = int(environ[size])
    local = int(environ.get(local_size, world))
    return World(
        rank=int(environ[rank]),
        size=world,
        local_rank=int(environ.get(local_rank, environ[rank])),
        local_size=local,
        host=_host(environ),
        host_index=_first(environ, ("WEFT_HOST_INDEX", "GROUP_RANK", "SLURM_NODEID"), 0),
        num_hosts=_first(
            environ, ("WEFT_NUM_HOSTS", "GROUP_WORLD_SIZE", "SLURM_STEP_NUM_NODES"), -(-world // local)
        ),
        launcher="weft" if "WEFT_RUN_ID" in environ else launcher,
    )


def _launcher(environ: Mapping[str, str]) -> str | None:
    for launcher, (rank, size, _, _) in _LAUNCHERS.items():
        # Slurm sets its variables in a batch script too, where there is one process and no step.
        if launcher == "slurm" and "SLURM_STEP_ID" not in environ:
            continue
        if rank in environ and size in environ:
            return launcher
    return None


def _first(environ: Mapping[str, str], names: tuple[str, ...], default: int) -> int:
    return next((int(environ[name]) for name in names if name in environ), default)


def _host(environ: Mapping[str, str]) -> str:
    return environ.get("WEFT_HOST") or environ.get("SLURMD_NODENAME") or socket.gethostname()


def _slurm_local_size(environ: Mapping[str, str]) -> int:
    """This node's share of the tasks of its step."""
    counts = tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_NTASKS", "1")))
    return counts[min(int(environ.get("SLURM_NODEID", "0")), len(counts) - 1)]


def tasks_per_node(text: str) -> list[int]:
    """Slurm's counts, one for each node: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for part in text.split(","):
        count, _, times = part.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or 1)
    return counts


def meeting_point(environ: Mapping[str, str], ask_mpi: Callable[[], tuple[str, int]]) -> tuple[str, int]:
    """Return where the workers meet: given by the launcher, or worked out from what it did give."""
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        return environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    match _launcher(environ):
        case "slurm":
            hosts = expand_hosts(environ.get("SLURM_STEP_NODELIST") or environ["SLURM_JOB_NODELIST"])
            return hosts[0], _port_from(f"{environ.get('SLURM_JOB_ID')}.{environ.get('SLURM_STEP_ID')}")
        case "openmpi" | "mpich":
            return ask_mpi()
        case _:
            raise UsageError(
                "MASTER_ADDR and MASTER_PORT must be set in a world of more than one, got neither; "
                "start the script with `weft run`"
            )


def _port_from(seed: str) -> int:
    """The same port on every worker of a step, with none to tell the others."""
    return 20000 + zlib.crc32(seed.encode()) % 20000


def ask_mpi() -> tuple[str, int]:
    """Rank 0 picks a port and tells the others; its address is the one its own route to them uses."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise UsageError(
            "MASTER_ADDR and MASTER_PORT must be set under plain mpirun, got neither; use `weft run --engine mpi`, "
            "or install mpi4py"
        ) from None
    from weft.ports import free_port

    name = MPI.Get_processor_name()
    hosts = set(MPI.COMM_WORLD.allgather(name))
    here = ("127.0.0.1" if len(hosts) == 1 else _own_address(), free_port())
    point: tuple[str, int] = MPI.COMM_WORLD.bcast(here, root=0)
    return point


def _own_address() -> str:
    """The address of the card with the default route, or of the fastest card that is up."""
    from weft.topology.network import cards

    usable = [card for card in cards() if card.up and not card.loopback and card.addresses]
    if not usable:
        return "127.0.0.1"
    return max(usable, key=lambda card: card.speed_mbps or 0).addresses[0]


_context: Context | None = None


def init(backend: str | None = None, *, timeout_s: float | None = None, wire: str | None = None) -> Context:
    """Initialise torch.distributed and say who this process is. A second call gives the same answer.

    Works under `weft run`, torchrun, mpirun and srun, and with none of them, in a world of one. The backend is "weft"
    for CPUs and NCCL for accelerators, unless it is given. A `wire` of bf16, fp16 or int8 makes float32 sums lighter
    between hosts; it wins over `weft run --wire`, and takes the backend "weft".
    """
    if _context is not None:
        return _context
    settings = settings_from_env(os.environ)
    if wire is not None:
        _check_wire(wire, backend)
        settings = replace(settings, wire=wire)
    return init_with(settings, backend, timeout_s=timeout_s)


def init_with(
    settings: CollectiveSettings, backend: str | None = None, *, timeout_s: float | None = None
) -> Context:
    """Initialise torch.distributed as `init` does, with these settings of the backend "weft"."""
    global _context
    if _context is not None:
        return _context
    import torch
    import torch.distributed as dist

    from weft.collectives.register import NAMES, autoload, leave_at_exit

    autoload()  # where weft is used without being installed, torch has not done it
    world = world_from_env(os.environ)
    device = _device(world)
    backend = backend or _default_backend(settings, device, world.size)
    ours = settings if backend in NAMES else None
    if not dist.is_initialized():
        leave_at_exit()
        timeout = None if timeout_s is None else timedelta(seconds=timeout_s)
        if world.size == 1 and "MASTER_ADDR" not in os.environ:
            from weft.collectives.torch_private import HashStore

            dist.init_process_group(
                backend, store=HashStore(), rank=0, world_size=1, timeout=timeout, pg_options=ours
            )
        else:
            address, port = meeting_point(os.environ, ask_mpi)
            dist.init_process_group(
                backend,
                init_method=f"tcp://{_bracketed(address)}:{port}"
                if "MASTER_ADDR" not in os.environ
                else "env://",
                rank=world.rank,
                world_size=world.size,
                timeout=timeout,
                pg_options=ours,
            )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    _context = Context(**vars(world), device=device, backend=dist.get_backend())
    return _context


def _check_wire(wire: str, backend: str | None) -> None:
    """Refuse a wire that comes too late, or with a backend that has none."""
    import torch.distributed as dist

    if dist.is_initialized():
        raise UsageError(
            "a wire must be chosen before torch.distributed is initialised, got a group that is there already; "
            "call weft.init() first or use weft run --wire"
        )
    if backend not in (None, "weft", "ddl"):
        raise UsageError(f'wire={wire!r} must come with the backend "weft", got {backend!r}; leave it out')


def _default_backend(settings: CollectiveSettings, device: torch.device, size: int) -> str:
    """Choose the backend for a user who named none."""
    if settings.wire != "fp32":
        return "weft"
    if device.type == "cuda":
        return "cpu:gloo,cuda:nccl"  # accelerators reach each other by ways that ours does not know
    return "weft" if size > 1 else "gloo"


def _device(world: World) -> torch.device:
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", world.local_rank % torch.cuda.device_count())


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def shutdown() -> None:
    """Leave the world; harmless when there is none."""
    global _context
    _context = None
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> World:
    """This process's place, from `init()` if it was called, else from the environment."""
    return _context if _context is not None else world_from_env(os.environ)


def rank() -> int:
    """This worker's number, 0 to size - 1."""
    return world().rank


def size() -> int:
    """Workers in all."""
    return world().size


def local_rank() -> int:
    """This worker's number on its host."""
    return world().local_rank


def local_size() -> int:
    """Workers on this host."""
    return world().local_size


def host() -> str:
    """This host's name, as the launcher calls it."""
    return world().host


def host_index() -> int:
    """This host's number among the hosts of the run."""
    return world().host_index


def num_hosts() -> int:
    """Hosts in all."""
    return world().num_hosts


def device() -> torch.device:
    """The device this worker should use."""
    return _context.device if _context is not None else _device(world())
