"""Mode `ring`: every peer passes on to its right what comes from its left, over TCP.

Nothing waits for a step to end: as soon as a block has come in and is added, it may go out. So the card sends and
receives all the time, and a reduction of S bytes among H hosts takes 2 (H - 1) / H S / rate, plus one block's way.

Small tensors take the direct way instead: everyone sends to everyone, in one hop, and adds up in the peers' order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from weft.collectives.modes.mode import Background, Bounds, even_bounds
from weft.collectives.modes.peers import DimensionPeers, let_nothing_through
from weft.collectives.modes.tcp.flow import Flow, FlowStep, Pump
from weft.collectives.modes.tcp.mesh import Mesh, bytes_of, listen
from weft.collectives.modes.tcp.signature import DIFFERS, HEADER_BYTES, header
from weft.collectives.modes.wires.light import light
from weft.collectives.reduction import Reduction
from weft.errors import MismatchError, PeerError
from weft.secret import new_secret, secret_for

DIRECT_BYTES = 1 << 15


class Ring:
    """Collectives over a mesh of connections."""

    name = "ring"

    def __init__(self, mesh: Mesh) -> None:
        self.index, self.size = mesh.index, mesh.size
        self._mesh = mesh
        self._right = (self.index + 1) % self.size
        self._pump = Pump(mesh, left=(self.index - 1) % self.size, right=self._right)
        self._landing: dict[int, Tensor] = {}  # where small tensors of the others arrive
        self._driver: threading.Thread | None = None

    @classmethod
    def connect(cls, peers: DimensionPeers) -> Background:
        """Connect the peers with each other, and give their sums the wire that was chosen; a collective call."""
        address = peers.members[peers.index].address
        listener = listen(address)
        peers.store.set(f"{peers.name}/{peers.index}", f"{address} {listener.getsockname()[1]}")
        addresses = []
        for peer in range(peers.size):
            address, _, port = peers.store.get(f"{peers.name}/{peer}").decode().rpartition(" ")
            addresses.append((address, int(port)))
        mesh = Mesh(
            listener,
            addresses,
            index=peers.index,
            secret=_secret_of(peers),
            timeout_s=peers.timeout_s,
            describe=peers.describe,
            lives=peers.lives,
        )
        return light(cls(mesh), mesh, peers.wire, peers.homes)

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        if values.nbytes <= DIRECT_BYTES:
            self._direct(values, reduction)
        else:
            self._pump.run(self._all_reduce_flow(values, reduction))

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self._pump.run(self._scatter_flow(values, bounds, reduction))

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        self._pump.run(self._gather_flow(values, bounds))

    def broadcast(self, values: Tensor, root: int) -> None:
        step, same = [FlowStep(values)], header("broadcast", values.dtype, values.numel(), root)
        if self.index == root:
            flow = Flow(out=step, into=[], header=same)
        else:
            # What goes out is what came in a step before, so the way on starts with an empty step.
            out = [] if self._right == root else [FlowStep(values[:0]), *step]
            flow = Flow(out=out, into=step, header=same)
        self._pump.run(flow)

    def barrier(self) -> None:
        self._direct(torch.zeros(1, dtype=torch.uint8), Reduction("MAX"))

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Flow:
        """Begin, and go on in the background; several may be under way, and are carried out in this order.

        One follows the other without a gap on the wire. `wait` on what is returned; nothing else may be called
        before all have ended.
        """
        return self._post(self._all_reduce_flow(values, reduction))

    def start_reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> Flow:
        """Begin a reduce-scatter as `start_all_reduce` begins a reduction: one follows the other without a gap."""
        return self._post(self._scatter_flow(values, bounds, reduction))

    def start_all_gather(self, values: Tensor, bounds: Bounds) -> Flow:
        """Begin an all-gather in the same way."""
        return self._post(self._gather_flow(values, bounds))

    def _post(self, flow: Flow) -> Flow:
        if self._driver is None:
            self._driver = threading.Thread(target=self._pump.serve, name="weft-ring", daemon=True)
            self._driver.start()
        self._pump.post(flow)
        return flow

    def _all_reduce_flow(self, values: Tensor, reduction: Reduction) -> Flow:
        bounds = even_bounds(values.numel(), self.size)
        up, down = self._scatter(values, bounds, reduction), self._gather(values, bounds)
        # The last segment that comes in on the way up is the first to go out on the way down.
        same = header(reduction.name, values.dtype, values.numel())
        return Flow(out=[*up[0], *down[0]], into=[*up[1], *down[1]], header=same)

    def _scatter_flow(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> Flow:
        steps = self._scatter(values, bounds, reduction)
        return Flow(*steps, header(reduction.name, values.dtype, tuple(bounds)))

    def _gather_flow(self, values: Tensor, bounds: Bounds) -> Flow:
        return Flow(*self._gather(values, bounds), header("all_gather", values.dtype, tuple(bounds)))

    def _scatter(
        self, values: Tensor, bounds: Bounds, reduction: Reduction
    ) -> tuple[list[FlowStep], list[FlowStep]]:
        """Out and in of a reduce-scatter that leaves peer i with segment i."""
        return (
            [FlowStep(segment) for segment in self._segments(values, bounds, self.index - 1)],
            [FlowStep(segment, reduction) for segment in self._segments(values, bounds, self.index - 2)],
        )

    def _gather(self, values: Tensor, bounds: Bounds) -> tuple[list[FlowStep], list[FlowStep]]:
        return (
            [FlowStep(segment) for segment in self._segments(values, bounds, self.index)],
            [FlowStep(segment) for segment in self._segments(values, bounds, self.index - 1)],
        )

    def _segments(self, values: Tensor, bounds: Bounds, first: int) -> Sequence[Tensor]:
        """All segments but one, backwards from number `first`."""
        chosen = [bounds[(first - turn) % self.size] for turn in range(self.size - 1)]
        return [values[begin:end] for begin, end in chosen]

    # -- small tensors ----------------------------------------------------------------------------

    def _direct(self, values: Tensor, reduction: Reduction) -> None:
        """Send the values of every peer to every other, in one hop."""
        landing = self._landing.get(values.nbytes)
        if landing is None:
            length = -(-(HEADER_BYTES + values.nbytes) // HEADER_BYTES) * HEADER_BYTES
            landing = torch.empty(self.size * length, dtype=torch.uint8).view(self.size, length)
            landing = self._landing[values.nbytes] = landing[:, : HEADER_BYTES + values.nbytes]
        others = [(self.index + offset) % self.size for offset in range(1, self.size)]
        same = header("direct", reduction.name, values.dtype, values.numel())
        landing[self.index, HEADER_BYTES:].copy_(values.view(torch.uint8))
        mine = bytes_of(landing[self.index])
        mine[:HEADER_BYTES] = same
        for peer in others:
            self._transfer(peer, mine, sending=True)
        for peer in reversed(others):
            self._transfer(peer, bytes_of(landing[peer]), sending=False, begins=same)
        terms = [landing[peer, HEADER_BYTES:].view(values.dtype) for peer in range(self.size)]
        reduction.combine(terms[0], terms[1], values)
        for term in terms[2:]:
            reduction.combine(values, term, values)

    def _transfer(self, peer: int, data: memoryview, *, sending: bool, begins: bytes = b"") -> None:
        """Send or receive a small message whole; it fits the sockets' buffers, so nobody waits for ever.

        One that does not begin as ours does is of another call, and may be shorter.
        """
        connection = self._mesh.socket_of(peer)
        connection.settimeout(self._mesh.timeout_s)
        try:
            if sending:
                connection.sendall(data)
                return
            position = 0
            while position < len(data):
                count = connection.recv_into(data[position:])
                if count == 0:
                    raise PeerError(self._mesh.describe(peer, "closed its connection"))
                position += count
                if data[: len(begins)] != begins and position >= len(begins):
                    what = self._mesh.describe(peer, DIFFERS)
                    raise MismatchError(f"{what}; use --debug to see both sides")
        except TimeoutError as error:
            silence = let_nothing_through(self._mesh.timeout_s)
            raise PeerError(self._mesh.describe(peer, silence)) from error
        except OSError as error:
            raise PeerError(
                self._mesh.describe(peer, f"was lost: {os.strerror(error.errno or 0)}")
            ) from error
        finally:
            connection.setblocking(False)

    def close(self) -> None:
        self._pump.close()
        self._mesh.close()


def _secret_of(peers: DimensionPeers) -> str:
    """Return the secret by which the peers know each other.

    It is made of the run's, which `weft run` gives to its workers alone. Other launchers give none: peers then agree on
    one through the store, which keeps out strays, but nobody who can reach the store.
    """
    if peers.secret:
        return secret_for(peers.secret, peers.name)
    if peers.index == 0:
        peers.store.set(f"{peers.name}/secret", new_secret())
    agreed: bytes = peers.store.get(f"{peers.name}/secret")
    return agreed.decode()
