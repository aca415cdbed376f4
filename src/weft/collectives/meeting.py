"""How the members of a group find each other: through the store, then over shared memory and sockets."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore

from weft.collectives import arena, explore, mpi, mpi_world, roll
from weft.collectives.blame import lives
from weft.collectives.choices import ModeChoice, parse_mode, wire_from_env
from weft.collectives.gloo import Gloo
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.light import light
from weft.collectives.members import Layout, Member, layout_of
from weft.collectives.mesh import Mesh, listen, own_address
from weft.collectives.mode import Background, Mode
from weft.collectives.ring import Ring
from weft.collectives.shm import SharedMemory
from weft.errors import CollectiveError
from weft.version import __version__

# What each choice means in a dimension; what cannot serve it gives way to what can, as in DDL.
_CANDIDATES = {
    "local": {"explore": ("shm", "gloo"), "gloo": ("gloo",), "mpi": ("mpi",)},
    "across": {"explore": ("ring", "gloo"), "gloo": ("gloo",), "mpi": ("mpi",)},
}


def slab_bytes(ranks: int, cores: int) -> int:
    """How much memory each rank of a host shares; the two halves of it take turns.

    Small enough to stay in the second-level cache beside the tensor; but where ranks share cores every meeting means
    waiting for the others to run, and fewer, larger pieces win.
    """
    return 2 << 20 if ranks <= cores else 8 << 20


def host_identity() -> str:
    """The same for processes that can share memory, and for no others: the kernel, and its /dev/shm."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{arena.HOME.stat().st_dev}"


def meet(store: Any, rank: int, size: int, timeout: timedelta, operation: Callable[[], str]) -> Meeting:
    """Introduce ourselves to all members, and hear who they are."""
    address = own_address()
    member = Member(
        rank=rank,
        host=host_identity(),
        name=os.environ.get("WEFT_HOST") or gethostname(),
        pid=os.getpid(),
        address=address,
    )
    said = roll.call(store, rank, size, timeout, json.dumps(asdict(member)))
    members = [Member(**json.loads(text)) for text in said]
    roll.met(store, members, rank)
    return Meeting(store, members, rank, timeout, operation)


class Meeting:
    """The members of a group, and the means to connect some of them."""

    def __init__(
        self,
        store: Any,  # torch's; its stubs hide the class
        members: Sequence[Member],
        rank: int,
        timeout: timedelta,
        operation: Callable[[], str],
    ) -> None:
        self.store = store
        self.members = tuple(members)
        self.rank = rank
        self.layout: Layout = layout_of(members)
        self.timeout_s = timeout.total_seconds()
        self._operation = operation  # what the group is doing now, for errors
        self._wire = wire_from_env(os.environ)  # between hosts

    def hierarchy(self, choice: ModeChoice | None = None) -> Hierarchy:
        """Connect everyone as the layout has it, in the modes that were chosen (WEFT_MODE)."""
        choice = choice or parse_mode(os.environ.get("WEFT_MODE") or "explore")
        inside, outside = choice.mode_of(0), choice.mode_of(1)
        if self._wire != "fp32":
            outside = "ring"  # the one that has light wires
        if "mpi" in (inside, outside) and not self._has_mpi():
            inside, outside = ("" if name == "mpi" else name for name in (inside, outside))
        kept = self._kept() if "explore" in (inside, outside) else {}
        local: Mode | None = None
        peers = self.layout.locals_of(self.rank)
        if len(peers) > 1:
            names = _CANDIDATES["local"].get(inside, ("shm",))
            made = {name: self._make(name, peers, f"local/{peers[0]}") for name in names}
            local = self._explored("local", kept, made)
        across: dict[int, Background] = {}
        if len(self.layout.hosts) > 1:
            for piece in range(self.layout.slices):
                owners = self.layout.owners(piece)
                if self.rank in owners:
                    names = _CANDIDATES["across"].get(outside, ("ring",))
                    made = {name: self._make(name, owners, f"slice/{piece}") for name in names}
                    across[piece] = self._explored("across", kept, made)
        return Hierarchy(self.layout, self.rank, local, across)

    def _make(self, mode: str, peers: Sequence[int], name: str) -> Any:
        makers: dict[str, Callable[[Sequence[int], str], Any]] = {
            "shm": self._shared_memory,
            "ring": self._ring,
            "gloo": self._gloo,
            "mpi": self._mpi,
        }
        return makers[mode](peers, name)

    def _kept(self) -> dict[str, dict[int, str]]:
        """The choices of an earlier exploration of machines like these, the same on every rank."""
        if self.rank == 0:
            self.store.set("explored", explore.load(self._fingerprint))
        text = self.store.get("explored").decode()
        tables = json.loads(text) if text else {}
        return {name: {int(size): mode for size, mode in chosen.items()} for name, chosen in tables.items()}

    @property
    def _fingerprint(self) -> str:
        hosts = [[self.members[ranks[0]].name, len(ranks)] for ranks in self.layout.hosts]
        return explore.fingerprint([hosts, os.cpu_count(), torch.__version__, __version__])

    def _explored(self, dimension: str, kept: dict[str, dict[int, str]], modes: dict[str, Any]) -> Any:
        """The one candidate, or the best of several for each size."""
        if len(modes) == 1:
            return next(iter(modes.values()))
        explorer = explore.Explorer(modes, kept.get(dimension))
        # A part of the world is not measured: programs make many groups, and all have to be there for it.
        whole = str(len(self.members)) == os.environ.get("WORLD_SIZE")
        if dimension not in kept and whole:
            explorer.measure()
            if self.rank == 0:
                kept[dimension] = explorer.chosen
                explore.save(self._fingerprint, json.dumps(kept))
        return explorer

    def _gloo(self, peers: Sequence[int], name: str) -> Gloo:
        store = PrefixStore(f"mode/{name}", self.store)
        return Gloo(store, peers.index(self.rank), len(peers), timedelta(seconds=self.timeout_s))

    def _has_mpi(self) -> bool:
        """Find out together whether MPI can serve us; rank 0 says so if it cannot."""
        found = mpi_world.world_for(self.store, self.rank, len(self.members), os.environ)
        if isinstance(found, str):
            if self.rank == 0:
                mpi_world.tell_that_it_gives_way(found)
            return False
        self._world = found
        return True

    def _mpi(self, peers: Sequence[int], name: str) -> mpi.Mpi:
        here = self.members[self.rank].host
        members = [self.members[peer] for peer in peers]
        return mpi.Mpi(
            self._world.mpi,
            self._world.communicator(peers, self.timeout_s),
            timeout_s=self.timeout_s,
            part_bytes=mpi.PART_BYTES_HERE
            if {member.host for member in members} == {here}
            else mpi.PART_BYTES,
            describe=self.describe(peers),
            lives=lambda peer: members[peer].host != here or lives(members[peer].pid),
        )

    def describe(self, peers: Sequence[int]) -> Callable[[int, str], str]:
        def sentence(peer: int, what: str) -> str:
            return f"{self.members[peers[peer]]} {what} during {self._operation()}"

        return sentence

    def _shared_memory(self, peers: Sequence[int], name: str) -> SharedMemory:
        index = peers.index(self.rank)
        key = f"arena/{name}"
        slab = slab_bytes(len(peers), os.cpu_count() or 1)
        if index == 0:
            arena.sweep()
            file = arena.new_name()
            try:
                descriptor = arena.create(file, len(peers), slab)
            except OSError as error:
                self.store.set(key, "")
                needed = len(peers) * slab >> 20
                raise CollectiveError(
                    f"/dev/shm must have {needed} MiB to share, got {error.strerror}; make it larger "
                    "(mount -o remount,size=1G /dev/shm) or use --mode gloo"
                ) from error
            self.store.set(key, file)
        else:
            file = self.store.get(key).decode()
            if not file:
                raise CollectiveError(
                    f"{self.members[peers[0]]} could not make the memory to share; see its error"
                )
            descriptor = arena.attach(file)
        try:
            shared = arena.Arena(
                descriptor, index=index, pids=[self.members[peer].pid for peer in peers], slab_bytes=slab
            )
            mode = SharedMemory(shared, timeout_s=self.timeout_s, describe=self.describe(peers))
            mode.barrier()
        finally:
            if index == 0:
                arena.unlink(file)  # all have it open, or never will
        return mode

    def _ring(self, peers: Sequence[int], name: str) -> Background:
        index = peers.index(self.rank)
        listener = listen(self.members[self.rank].address)
        self.store.set(f"{name}/{index}", f"{self.members[self.rank].address} {listener.getsockname()[1]}")
        if index == 0:
            self.store.set(f"{name}/secret", secrets.token_hex(8))
        addresses = []
        for peer in range(len(peers)):
            address, _, port = self.store.get(f"{name}/{peer}").decode().rpartition(" ")
            addresses.append((address, int(port)))
        mesh = Mesh(
            listener,
            addresses,
            index=index,
            secret=self.store.get(f"{name}/secret"),
            timeout_s=self.timeout_s,
            describe=self.describe(peers),
        )
        return light(Ring(mesh), mesh, self._wire)
