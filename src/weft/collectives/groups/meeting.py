"""How the members of a group find each other: through the store, then over shared memory and sockets."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path
from socket import gethostname
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore

from weft.collectives.choices import LEVELS, ModeChoice
from weft.collectives.groups import roll
from weft.collectives.groups.blame import lives
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.levels import Levels
from weft.collectives.members import Layout, Member, layout_of
from weft.collectives.modes import explore
from weft.collectives.modes.gloo import Gloo
from weft.collectives.modes.messages import mpi, mpi_world
from weft.collectives.modes.mode import Background, Mode
from weft.collectives.modes.shared_memory import arena
from weft.collectives.modes.shared_memory.shm import SharedMemory
from weft.collectives.modes.tcp.mesh import Mesh, listen, own_address
from weft.collectives.modes.tcp.ring import Ring
from weft.collectives.modes.wires.light import light, refuse_wires
from weft.collectives.places import HOSTS, Place, meetings_of, own_place, places_of
from weft.collectives.settings import CollectiveSettings
from weft.errors import CollectiveError
from weft.version import __version__

# What each choice means in a dimension; what cannot serve it gives way to what can, as in DDL.
_CANDIDATES = {
    "local": {"explore": ("shm", "gloo"), "gloo": ("gloo",), "mpi": ("mpi",)},
    "across": {"explore": ("ring", "gloo"), "gloo": ("gloo",), "mpi": ("mpi",)},
}

FAR_BYTES, ALL_FAR_BYTES = 32 << 20, 128 << 20  # of a rank, of a host
INSIDE = 0  # the dimension within a host
_TABLES = ("local", "across", "racks", "aisles")  # under which an exploration is kept, by dimension


def slab_bytes(ranks: int, cores: int) -> int:
    """How much memory each rank of a host shares, where cores share caches; the two halves of it take turns.

    Small enough to stay in the second-level cache beside the tensor; but where ranks share cores every meeting means
    waiting for the others to run, and fewer, larger pieces win.
    """
    return 2 << 20 if ranks <= cores else 8 << 20


def far_bytes(ranks: int, near_bytes: int, free_bytes: int) -> int:
    """How much it shares in all, for cores that are far apart: more than their caches hold, if there is plenty."""
    most = max(near_bytes, min(FAR_BYTES, ALL_FAR_BYTES // ranks // near_bytes * near_bytes))
    return most if ranks * most * 4 <= free_bytes else near_bytes


def host_identity() -> str:
    """The same for processes that can share memory, and for no others: the kernel, and its /dev/shm."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{arena.HOME.stat().st_dev}"


def meet(
    store: Any,
    rank: int,
    size: int,
    timeout: timedelta,
    settings: CollectiveSettings,
    operation: Callable[[], str],
) -> Meeting:
    """Introduce this rank to all members, and hear who they are."""
    address = own_address(settings.launcher)
    place = own_place(settings.launcher, settings.mode)
    member = Member(
        rank=rank,
        host=host_identity(),
        name=settings.launcher.host_name or gethostname(),
        pid=os.getpid(),
        address=address,
        rack=place.rack,
        aisle=place.aisle,
        wire=settings.wire,
    )
    said = roll.call(store, rank, size, timeout, json.dumps(asdict(member)))
    members = [Member(**json.loads(text)) for text in said]
    roll.met(store, members, rank)
    return Meeting(store, members, rank, timeout, settings, operation)


def _agreed_wire(members: Sequence[Member]) -> str:
    """The wire of all; on one host it does not matter."""
    wires = sorted({member.wire for member in members})
    if len(wires) > 1 and len({member.host for member in members}) > 1:
        refuse_wires(wires[0], wires[-1])
    return wires[0]


class Meeting:
    """The members of a group, and the means to connect some of them."""

    def __init__(
        self,
        store: Any,  # torch's; its stubs hide the class
        members: Sequence[Member],
        rank: int,
        timeout: timedelta,
        settings: CollectiveSettings,
        operation: Callable[[], str],
    ) -> None:
        self.store = store
        self.settings = settings
        self.members = tuple(members)
        self.rank = rank
        self.layout: Layout = layout_of(members)
        self.timeout_s = timeout.total_seconds()
        self._operation = operation  # what the group is doing now, for errors
        self._measured: dict[str, dict[int, str]] = {}  # by us, of what will be kept
        self._wire = _agreed_wire(members)  # between hosts

    @property
    def _is_whole_world(self) -> bool:
        """Whether the group has all ranks of the run."""
        return len(self.members) == self.settings.launcher.world_size

    def hierarchy(self) -> Hierarchy:
        """Connect everyone as the layout has it, in the modes that were chosen."""
        choice = self.settings.mode
        chosen = [choice.mode_of(dimension) for dimension in range(len(LEVELS))]
        if self._wire != "fp32":
            chosen[1:] = ["ring"] * (len(LEVELS) - 1)  # the one that has light wires
        if "mpi" in chosen and not self._has_mpi():
            chosen = ["" if name == "mpi" else name for name in chosen]
        self._chosen = chosen
        self._places = self._places_of_hosts(choice)
        self._kept = self._explored_before() if "explore" in chosen else {}
        local: Mode | None = None
        peers = self.layout.locals_of(self.rank)
        if len(peers) > 1:
            local = self._connect(INSIDE, peers, f"local/{peers[0]}")
        across: dict[int, Background] = {}
        if len(self.layout.hosts) > 1:
            for piece in self.layout.owned(self.rank):
                across[piece] = self._between(HOSTS, self.layout.owners(piece), f"slice/{piece}")
        hierarchy = Hierarchy(self.layout, self.rank, local, across)
        if len(set(self._places)) > 1:  # between racks it takes longer until a chunk is back
            hierarchy.under_way *= 2
        return hierarchy

    def _places_of_hosts(self, choice: ModeChoice) -> tuple[Place, ...]:
        if self._wire == "int8":  # everyone sends to everyone: there are no levels
            return (Place(),) * len(self.layout.hosts)
        firsts = [self.members[ranks[0]] for ranks in self.layout.hosts]
        return places_of([Place(first.rack, first.aisle) for first in firsts], choice)

    def _between(self, dimension: int, peers: Sequence[int], name: str, *, wire: bool = True) -> Background:
        """What serves peers on different hosts: one mode, or levels where they stand in several racks."""
        layout = meetings_of([self._places[self.layout.host_of(peer)] for peer in peers], dimension)
        if len(layout.hosts) == 1:
            connected: Background = self._connect(dimension, peers, name, wire=wire)
            return connected
        if layout.slices == 1:  # one host of each rack
            return self._between(dimension + 1, peers, name, wire=wire)
        index = peers.index(self.rank)
        inside = [peers[other] for other in layout.locals_of(index)]
        up = down = None
        if len(inside) > 1:
            up = self._connect(dimension, inside, f"{name}/{inside[0]}/up", wire=False)
            down = self._connect(dimension, inside, f"{name}/{inside[0]}/down", like=up, wire=False)
        across = {}
        for piece in layout.owned(index):
            owners = [peers[owner] for owner in layout.owners(piece)]
            across[piece] = self._between(dimension + 1, owners, f"{name}/{piece}", wire=False)
        levels = Levels(layout, index, up, down, across)
        return light(levels, None, self._wire) if wire else levels

    def _connect(
        self, dimension: int, peers: Sequence[int], name: str, *, like: Any = None, wire: bool = True
    ) -> Any:
        """The chosen mode, or all candidates, of one dimension; `like`: another one of the same peers."""
        kind = "local" if dimension == INSIDE else "across"
        names = _CANDIDATES[kind].get(self._chosen[dimension], ("shm" if dimension == INSIDE else "ring",))
        made = {mode: self._make(mode, peers, name, self._wire if wire else "fp32") for mode in names}
        return self._explored(_TABLES[dimension], made, like)

    def _make(self, mode: str, peers: Sequence[int], name: str, wire: str) -> Any:
        makers: dict[str, Callable[[Sequence[int], str], Any]] = {
            "shm": self._shared_memory,
            "ring": partial(self._ring, wire=wire),
            "gloo": self._gloo,
            "mpi": self._mpi,
        }
        return makers[mode](peers, name)

    def _explored_before(self) -> dict[str, dict[int, str]]:
        """The choices of an earlier exploration of machines like these, the same on every rank."""
        if self.rank == 0:
            self.store.set("explored", explore.load(self._fingerprint))
        text = self.store.get("explored").decode()
        tables = json.loads(text) if text else {}
        return {name: {int(size): mode for size, mode in chosen.items()} for name, chosen in tables.items()}

    @property
    def _fingerprint(self) -> str:
        hosts = [[self.members[ranks[0]].name, len(ranks)] for ranks in self.layout.hosts]
        places = [asdict(place) for place in self._places]
        return explore.fingerprint([hosts, places, os.cpu_count(), torch.__version__, __version__])

    def _explored(self, table: str, modes: dict[str, Any], like: Any) -> Any:
        """The one candidate, or the best of several for each size."""
        if len(modes) == 1:
            return next(iter(modes.values()))
        if like is not None:
            return explore.Explorer(modes, like.chosen)
        explorer = explore.Explorer(modes, self._kept.get(table))
        # A part of the world is not measured: programs make many groups, and all have to be there for it.
        if table not in self._kept and self._is_whole_world:
            explorer.measure()
            if self.rank == 0:
                # Not in `_kept`: rank 0 must go on measuring with those who do not know of it.
                self._measured.setdefault(table, explorer.chosen)
                explore.save(self._fingerprint, json.dumps(self._kept | self._measured))
        return explorer

    def _gloo(self, peers: Sequence[int], name: str) -> Gloo:
        store = PrefixStore(f"mode/{name}", self.store)
        return Gloo(store, peers.index(self.rank), len(peers), timedelta(seconds=self.timeout_s))

    def _has_mpi(self) -> bool:
        """Find out together whether MPI can serve us; rank 0 says so if it cannot."""
        found = mpi_world.world_for(self.store, self.rank, len(self.members), self.settings.launcher.mpi)
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
        near = slab = slab_bytes(len(peers), os.cpu_count() or 1)
        if index == 0:
            arena.sweep()
            file = arena.new_name()
            if self._is_whole_world:  # programs may have many smaller groups
                slab = far_bytes(len(peers), near, arena.free_bytes())
            try:
                descriptor = arena.create(file, len(peers), slab)
            except OSError as error:
                self.store.set(key, "")
                needed = len(peers) * slab >> 20
                raise CollectiveError(
                    f"/dev/shm must have {needed} MiB to share, got {error.strerror}; make it larger "
                    "(mount -o remount,size=1G /dev/shm) or use --mode gloo"
                ) from error
            self.store.set(key, f"{file} {slab}")
        else:
            file, _, size = self.store.get(key).decode().partition(" ")
            slab = int(size or 0)
            if not file:
                raise CollectiveError(
                    f"{self.members[peers[0]]} could not make the memory to share; see its error"
                )
            descriptor = arena.attach(file)
        try:
            shared = arena.Arena(
                descriptor, index=index, pids=[self.members[peer].pid for peer in peers], slab_bytes=slab
            )
            mode = SharedMemory(
                shared, timeout_s=self.timeout_s, near_bytes=near, describe=self.describe(peers)
            )
            mode.barrier()
        finally:
            if index == 0:
                arena.unlink(file)  # all have it open, or never will
        if slab > near and len(peers) <= (os.cpu_count() or 1):
            mode.settle()
        return mode

    def _ring(self, peers: Sequence[int], name: str, *, wire: str) -> Background:
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
        return light(Ring(mesh), mesh, wire)
