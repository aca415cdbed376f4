"""The MPI world that this process was started in, and whether it can serve a group.

MPI_Init and the making of a communicator wait for everyone and know no timeout. So nobody calls them before all members
have said, through the store, that all can.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from weft.errors import CollectiveError


class Closable(Protocol):
    """A user of MPI that can be closed."""

    def close(self) -> None: ...


# Where the launchers say who we are: our rank, the size of the world, and a name for it.
_SIGNS = (
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"),  # Open MPI 5
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid"),  # Open MPI 4
    ("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_NAMESPACE"),  # srun --mpi=pmix
    ("PMI_RANK", "PMI_SIZE", "PMI_JOBID"),  # MPICH, srun --mpi=pmi2
)


@dataclass(frozen=True)
class MpiOffer:
    """The MPI of one member, as it offers it to the others."""

    rank: int = -1  # in the MPI world, which may number its ranks otherwise than the group does
    size: int = 0  # of that world; 0: not in one
    world: str = ""  # its name, where the launcher gives it one
    ready: bool = False  # MPI is up
    trouble: str = ""  # why it cannot be used


def offer_from(environ: Mapping[str, str]) -> MpiOffer:
    """The world that a launcher has put us in, as far as the environment tells. Pure."""
    for rank, size, name in _SIGNS:
        if environ.get(rank, "").isdigit() and environ.get(size, "").isdigit():
            return MpiOffer(int(environ[rank]), int(environ[size]), environ.get(name, ""))
    return MpiOffer()


def why_not(offers: Sequence[MpiOffer]) -> str:
    """Return why MPI cannot serve these members, in their order; empty if it can. Pure."""
    for rank, offer in enumerate(offers):
        if offer.trouble:
            return f"{offer.trouble} on rank {rank}"
        if not offer.size:
            return f"rank {rank} was started by neither mpirun nor srun (use --engine mpi)"
    size = offers[0].size
    if len({(offer.world, offer.size) for offer in offers}) > 1:
        return "the ranks are in different MPI worlds"
    if len({offer.rank for offer in offers}) < len(offers):
        return f"{len(offers)} ranks make an MPI world of {size} each (mpi4py may not fit the mpirun that started them)"
    if not all(offer.ready for offer in offers) and len(offers) < size:
        return f"MPI is not up yet, and to start it takes all {size} ranks of its world, got a group of {len(offers)}"
    return ""


# -- this process -----------------------------------------------------------------------------------

_LEFT = 32767  # the tag of a farewell, the last message of a peer; every MPI has it


class MpiProcess:
    """MPI in this process: who uses it, whether it is whole, and the communicators that are being left."""

    def __init__(self) -> None:
        self.broken = threading.Event()  # a peer was lost: to finalize would wait for it for ever
        self.open_modes: weakref.WeakSet[Closable] = (
            weakref.WeakSet()
        )  # closed before MPI ends, at the latest
        self.abandoned: list[object] = []  # memory that MPI may still write to or read
        # Communicators, the peers that are still in each, and our own farewells.
        self._parting: list[tuple[Any, set[int], list[Any]]] = []
        self._parting_lock = threading.Lock()

    def start(self, mpi: Any) -> None:
        if not mpi.Is_initialized():
            mpi.Init_thread(mpi.THREAD_MULTIPLE)
            atexit.register(self._finalize, mpi)

    def _finalize(self, mpi: Any) -> None:
        """At the end of the process: let nobody wait for us, and do not wait ourselves where it is in vain."""
        for mode in list(self.open_modes):
            mode.close()
        # After an exception the others shall know at once, from the launcher; to finalize is to wait for them.
        if not self.broken.is_set() and not hasattr(sys, "last_value") and not mpi.Is_finalized():
            mpi.Finalize()

    def part(self, communicator: Any, left: set[int], *, whole: bool) -> None:
        """Tell the peers that we leave. `left`: who has told us so; `whole`: nothing is under way."""
        others = set(range(communicator.size)) - {communicator.rank}
        farewells = [communicator.Isend(bytearray(), peer, _LEFT) for peer in sorted(others)]
        with self._parting_lock:
            if whole:
                self._parting.append((communicator, others - left, farewells))
            self._free_those_left_by_all()

    def free_communicators(self) -> None:
        """Free the communicators that all their peers have left."""
        with self._parting_lock:
            self._free_those_left_by_all()

    def _free_those_left_by_all(self) -> None:
        """Not before: a message that comes after that would be taken for one of the next that gets the same number."""
        for entry in list(self._parting):
            communicator, staying, farewells = entry
            staying -= who_left(communicator, staying)
            if not staying and all(farewell.Test() for farewell in farewells):
                self._parting.remove(entry)
                communicator.Free()


def who_left(communicator: Any, peers: set[int]) -> set[int]:
    """Return which of these peers have said that they leave."""
    gone = {peer for peer in peers if communicator.Iprobe(peer, _LEFT)}
    for peer in gone:
        communicator.Recv(bytearray(), peer, _LEFT)
    return gone


process = MpiProcess()  # the one of this process, as MPI itself has one


def _module() -> Any:
    """mpi4py's MPI, loaded but not started by that."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = False
    from mpi4py import MPI

    return MPI


def _our_offer(launched: MpiOffer) -> MpiOffer:
    if process.broken.is_set():
        return MpiOffer(trouble="MPI lost a peer before")
    try:
        mpi = _module()
    except (ImportError, RuntimeError, OSError) as error:  # no mpi4py, or no library for it
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return MpiOffer(trouble=f"mpi4py cannot be used ({reason}; pip install 'weft[mpi]')")
    if mpi.Is_finalized():
        return MpiOffer(trouble="MPI has been finalized")
    return _present(mpi, launched.world) if mpi.Is_initialized() else launched


def _present(mpi: Any, world: str) -> MpiOffer:
    """Return what MPI itself says, now that it is up."""
    trouble = (
        "" if mpi.Query_thread() >= mpi.THREAD_MULTIPLE else "MPI was started without MPI_THREAD_MULTIPLE"
    )
    return MpiOffer(mpi.COMM_WORLD.rank, mpi.COMM_WORLD.size, world, ready=True, trouble=trouble)


# -- together ---------------------------------------------------------------------------------------


class MpiWorld:
    """MPI as it serves the members of a group."""

    def __init__(self, mpi: Any, ranks: Sequence[int]) -> None:
        self.mpi = mpi
        self._ranks = ranks  # in COMM_WORLD, by rank in the group

    def communicator(self, peers: Sequence[int], timeout_s: float) -> Any:
        """One of some members' own; they all call."""
        process.free_communicators()
        made: list[Any] = []

        def make() -> None:
            group = self.mpi.COMM_WORLD.Get_group().Incl([self._ranks[peer] for peer in peers])
            with contextlib.suppress(self.mpi.Exception):
                made.append(self.mpi.COMM_WORLD.Create_group(group))

        # It knows no timeout: in a thread of its own, which can be left alone.
        thread = threading.Thread(target=make, name="weft-mpi", daemon=True)
        thread.start()
        thread.join(timeout_s)
        if not made:
            process.broken.set()
            names = ", ".join(map(str, peers))
            raise CollectiveError(
                f"MPI must connect ranks {names} within {timeout_s:g} s, got nothing (timed out)"
            )
        made[0].Set_errhandler(self.mpi.ERRORS_RETURN)
        return made[0]


def world_for(store: Any, rank: int, size: int, launched: MpiOffer) -> MpiWorld | str:
    """Return MPI for all members, or why there is none; all members call this, and get the same answer."""
    offers = _exchange(store, "offer", rank, size, _our_offer(launched))
    if reason := why_not(offers):
        return reason
    mpi = _module()
    process.start(mpi)
    # What it says now counts: an MPI of another make than the launcher's finds itself alone in its world.
    offers = _exchange(store, "up", rank, size, _present(mpi, offers[rank].world))
    return why_not(offers) or MpiWorld(mpi, [offer.rank for offer in offers])


def _exchange(store: Any, name: str, rank: int, size: int, offer: MpiOffer) -> list[MpiOffer]:
    store.set(f"mpi/{name}/{rank}", json.dumps(asdict(offer)))
    return [MpiOffer(**json.loads(store.get(f"mpi/{name}/{other}"))) for other in range(size)]
