"""The meeting of a group: its members find each other through the store, then over shared memory and sockets."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import Any

import torch

from weft.collectives.choices import LEVELS, ModeChoice
from weft.collectives.groups import roll
from weft.collectives.groups.blame import lives
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.levels import Levels
from weft.collectives.members import GroupMember, Layout, layout_of
from weft.collectives.modes import explore
from weft.collectives.modes.mode import Background, Mode
from weft.collectives.modes.peers import DimensionPeers
from weft.collectives.modes.shared_memory import files
from weft.collectives.modes.table import DEFAULT_BETWEEN, DEFAULT_INSIDE, INSIDE, MODES, candidates
from weft.collectives.modes.tcp.mesh import own_address
from weft.collectives.modes.wires.light import light, refuse_wires
from weft.collectives.modes.wires.wire import TensorHomes
from weft.collectives.places import HOSTS, RackPlace, meetings_of, own_place, places_of
from weft.collectives.settings import CollectiveSettings
from weft.version import __version__

_TABLES = ("local", "across", "racks", "aisles")  # under which an exploration is kept, by dimension


def host_identity() -> str:
    """Return a name that processes have in common if they can share memory: their kernel and their /dev/shm."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{files.HOME.stat().st_dev}"


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
    member = GroupMember(
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
    members = [GroupMember(**json.loads(text)) for text in said]
    roll.met(store, members, rank)
    return Meeting(store, members, rank, timeout, settings, operation)


def _agreed_wire(members: Sequence[GroupMember]) -> str:
    """Return the wire that all members chose, or refuse; on one host it does not matter."""
    wires = sorted({member.wire for member in members})
    if len(wires) > 1 and len({member.host for member in members}) > 1:
        refuse_wires(wires[0], wires[-1])
    return wires[0]


class Meeting:
    """The members of a group, and the means to connect some of them."""

    def __init__(
        self,
        store: Any,  # torch's; its stubs hide the class
        members: Sequence[GroupMember],
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
        self.homes = TensorHomes()
        self._operation = operation  # what the group is doing now, for errors
        self._measured: dict[str, dict[int, str]] = {}  # by us, of what will be kept
        self._wire = _agreed_wire(members)  # between hosts

    @property
    def _is_whole_world(self) -> bool:
        """Return whether the group has all ranks of the run."""
        return len(self.members) == self.settings.launcher.world_size

    def hierarchy(self) -> Hierarchy:
        """Connect everyone as the layout has it, in the modes that were chosen."""
        choice = self.settings.mode
        chosen = [choice.mode_of(dimension) for dimension in range(len(LEVELS))]
        if self._wire != "fp32":
            chosen[1:] = [DEFAULT_BETWEEN] * (len(LEVELS) - 1)  # which has light wires
        self._prepared = self._prepare(chosen)
        chosen = ["" if isinstance(self._prepared.get(name), str) else name for name in chosen]
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

    def _places_of_hosts(self, choice: ModeChoice) -> tuple[RackPlace, ...]:
        if self._wire == "int8":  # everyone sends to everyone: there are no levels
            return (RackPlace(),) * len(self.layout.hosts)
        firsts = [self.members[ranks[0]] for ranks in self.layout.hosts]
        return places_of([RackPlace(first.rack, first.aisle) for first in firsts], choice)

    def _between(self, dimension: int, peers: Sequence[int], name: str, *, wire: bool = True) -> Background:
        """Return what serves peers on different hosts: one mode, or levels where they stand in several racks."""
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
        """Connect the chosen mode, or all candidates, of one dimension; `like`: another one of the same peers."""
        made = {
            mode: self._make(mode, peers, name, self._wire if wire else "fp32")
            for mode in candidates(self._chosen[dimension], dimension)
        }
        return self._explored(_TABLES[dimension], made, like)

    def _make(self, mode: str, peers: Sequence[int], name: str, wire: str) -> Any:
        given = self.peers(peers, name, wire=wire, prepared=self._prepared.get(mode))
        return MODES[mode].load().connect(given)

    def _prepare(self, chosen: Sequence[str]) -> dict[str, Any]:
        """Find out together which of the chosen modes can serve us; by name, a text says why one cannot."""
        found = {}
        for name in dict.fromkeys(chosen):
            if name in MODES and MODES[name].needs_agreement:
                mode = MODES[name].load()
                size, facts = len(self.members), self.settings.launcher
                found[name] = mode.prepare(self.store, self.rank, size, facts)
                if isinstance(found[name], str) and self.rank == 0:
                    _tell_that_it_gives_way(name, found[name])
        return found

    def peers(
        self, ranks: Sequence[int], name: str, *, wire: str = "fp32", prepared: Any = None
    ) -> DimensionPeers:
        """Some members of the group, as a mode that connects them sees them."""
        here = self.members[self.rank].host
        members = tuple(self.members[rank] for rank in ranks)
        return DimensionPeers(
            name=name,
            store=self.store,
            members=members,
            index=ranks.index(self.rank),
            timeout_s=self.timeout_s,
            describe=lambda peer, what: f"{members[peer]} {what} during {self._operation()}",
            lives=lambda peer: (
                not roll.in_vain() and (members[peer].host != here or lives(members[peer].pid))
            ),
            whole_world=self._is_whole_world,
            short_lived=roll.watched_over(),
            wire=wire,
            homes=self.homes,
            secret=self.settings.launcher.secret,
            prepared=prepared,
        )

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


@cache
def _tell_that_it_gives_way(mode: str, reason: str) -> None:
    """Say on standard error that a mode cannot serve: once for each reason, since programs make many groups."""
    print(
        f"weft: mode {mode} gives way to {DEFAULT_INSIDE} inside a host and {DEFAULT_BETWEEN} between hosts: {reason}",
        file=sys.stderr,
        flush=True,
    )
