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

from torch.distributed import Store

from weft.collectives import arena
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.members import Layout, Member, layout_of
from weft.collectives.mesh import Mesh, listen, own_address
from weft.collectives.ring import Ring
from weft.collectives.shm import SharedMemory
from weft.errors import CollectiveError

SLAB_BYTES = 8 << 20  # of each rank of a host; two halves take turns


def host_identity() -> str:
    """The same for processes that can share memory, and for no others: the kernel, and its /dev/shm."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{arena.HOME.stat().st_dev}"


def meet(store: Store, rank: int, size: int, timeout: timedelta, operation: Callable[[], str]) -> Meeting:
    """Introduce ourselves to all members, and hear who they are."""
    address = own_address()
    member = Member(
        rank=rank,
        host=host_identity(),
        name=os.environ.get("WEFT_HOST") or gethostname(),
        pid=os.getpid(),
        address=address,
    )
    store.set(f"member/{rank}", json.dumps(asdict(member)))
    members = [Member(**json.loads(store.get(f"member/{other}"))) for other in range(size)]
    return Meeting(store, members, rank, timeout, operation)


class Meeting:
    """The members of a group, and the means to connect some of them."""

    def __init__(
        self,
        store: Store,
        members: Sequence[Member],
        rank: int,
        timeout: timedelta,
        operation: Callable[[], str],
    ) -> None:
        self.store = store
        self.members = tuple(members)
        self.rank = rank
        self.layout: Layout = layout_of(members)
        self._timeout_s = timeout.total_seconds()
        self._operation = operation  # what the group is doing now, for errors

    def hierarchy(self) -> Hierarchy:
        """Connect everyone as the layout has it."""
        local = self.layout.locals_of(self.rank)
        shared = self._shared_memory(local) if len(local) > 1 else None
        across: dict[int, Ring] = {}
        if len(self.layout.hosts) > 1:
            for piece in range(self.layout.slices):
                owners = self.layout.owners(piece)
                if self.rank in owners:
                    across[piece] = self._ring(owners, f"slice/{piece}")
        return Hierarchy(self.layout, self.rank, shared, across)

    def _describe(self, peers: Sequence[int]) -> Callable[[int, str], str]:
        def sentence(peer: int, what: str) -> str:
            return f"{self.members[peers[peer]]} {what} during {self._operation()}"

        return sentence

    def _shared_memory(self, peers: Sequence[int]) -> SharedMemory:
        index = peers.index(self.rank)
        key = f"arena/{peers[0]}"
        if index == 0:
            arena.sweep()
            name = f"{arena.PREFIX}{os.getpid()}-{secrets.token_hex(6)}"
            try:
                descriptor = arena.create(name, len(peers), SLAB_BYTES)
            except OSError as error:
                self.store.set(key, "")
                needed = len(peers) * SLAB_BYTES >> 20
                raise CollectiveError(
                    f"/dev/shm must have {needed} MiB to share, got {error.strerror}; make it larger "
                    "(mount -o remount,size=1G /dev/shm) or use --mode gloo"
                ) from error
            self.store.set(key, name)
        else:
            name = self.store.get(key).decode()
            if not name:
                raise CollectiveError(
                    f"{self.members[peers[0]]} could not make the memory to share; see its error"
                )
            descriptor = arena.attach(name)
        shared = arena.Arena(
            descriptor, index=index, pids=[self.members[peer].pid for peer in peers], slab_bytes=SLAB_BYTES
        )
        mode = SharedMemory(shared, timeout_s=self._timeout_s, describe=self._describe(peers))
        mode.barrier()
        if index == 0:
            arena.unlink(name)  # all have it open
        return mode

    def _ring(self, peers: Sequence[int], name: str) -> Ring:
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
            timeout_s=self._timeout_s,
            describe=self._describe(peers),
        )
        return Ring(mesh)
