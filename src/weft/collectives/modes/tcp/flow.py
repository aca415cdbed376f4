"""Bytes around a ring: in from the left, added or taken over, and out to the right, many steps at once."""

from __future__ import annotations

import os
import selectors
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from weft.collectives.modes.peers import let_nothing_through
from weft.collectives.modes.tcp.mesh import Mesh, bytes_of
from weft.collectives.modes.tcp.signature import DIFFERS, HEADER_BYTES
from weft.collectives.reduction import Reduction
from weft.errors import MismatchError, PeerError

BLOCK_BYTES = 1 << 17  # added at once, and passed on


@dataclass
class FlowStep:
    """One segment of a tensor on its way in or out."""

    segment: Tensor
    reduction: Reduction | None = None  # None: what comes in replaces ours
    memory: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.memory = bytes_of(self.segment)


class Flow:
    """One collective: steps out and steps in. What goes out in step k + 1 is what came in in step k."""

    def __init__(self, out: Sequence[FlowStep], into: Sequence[FlowStep], header: bytes = b"") -> None:
        self.out, self.into = out, into
        self.header = header  # goes before it, where the neighbours shall make sure that they do the same
        self.out_turn = self.sent = 0
        self.in_turn = self.taken = 0  # bytes of the step that have come in
        self.in_place = [0] * len(into)  # bytes of each step that are added and may go on
        self.error: BaseException | None = None
        self._ways_left = 2  # out and in: a way without bytes, too, has the header of the neighbour before it
        self._over = threading.Event()

    def sendable(self) -> memoryview:
        """Return the bytes of the present step that may go out now."""
        memory = self.out[self.out_turn].memory
        limit = len(memory) if self.out_turn == 0 else min(len(memory), self.in_place[self.out_turn - 1])
        return memory[self.sent : limit]

    @property
    def all_sent(self) -> bool:
        while self.out_turn < len(self.out) and self.sent == len(self.out[self.out_turn].memory):
            self.out_turn, self.sent = self.out_turn + 1, 0
        return self.out_turn == len(self.out)

    @property
    def all_taken(self) -> bool:
        while self.in_turn < len(self.into) and self.taken == len(self.into[self.in_turn].memory):
            self.in_turn, self.taken = self.in_turn + 1, 0
        return self.in_turn == len(self.into)

    def way_ended(self) -> None:
        """Note that all has gone out, or that all has come in; the flow ends with the second."""
        self._ways_left -= 1
        if self._ways_left == 0:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self._over.set()

    def wait(self) -> None:
        """Return when the flow has ended."""
        self._over.wait()
        if self.error is not None:
            raise self.error


class HeaderExchange(Flow):
    """The exchange before a flow: the header of both sides, which must be the same."""

    def __init__(self, header: bytes, *, sends: bool, takes: bool) -> None:
        self.landing = torch.empty(HEADER_BYTES, dtype=torch.uint8)
        out = [FlowStep(torch.frombuffer(bytearray(header), dtype=torch.uint8))] if sends else []
        super().__init__(out, [FlowStep(self.landing)] if takes else [], header)

    @property
    def answered(self) -> bool:
        return not self.into or bytes(self.landing.tolist()) == self.header


class Pump:
    """Moves flows between two neighbours, one after the other and without a gap."""

    def __init__(self, mesh: Mesh, *, left: int, right: int) -> None:
        self._mesh = mesh
        self._left, self._right = left, right
        self._outgoing: deque[Flow] = deque()
        self._incoming: deque[Flow] = deque()
        self._posted: deque[Flow] = deque()
        self._scratch = torch.empty(BLOCK_BYTES, dtype=torch.uint8)
        self._scratch_memory = bytes_of(self._scratch)
        self._filled = 0  # bytes of a block that wait in the scratch for the rest
        self._selector = selectors.PollSelector()
        self._watched: dict[int, int] = {}
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        # Not in `close`: the thread that serves may still look at it.
        weakref.finalize(self, _close_all, self._wake_read, self._wake_write)
        self._wanted = threading.Event()
        # Who waited for the last flow goes on before the thread that served it has seen that there is no other.
        self._turning = threading.Lock()
        self._closed = False

    # -- in the caller's thread -------------------------------------------------------------------

    def run(self, flow: Flow) -> None:
        """Carry out one flow here and now."""
        with self._turning:
            self._add(flow)
            while self._outgoing or self._incoming:
                self._turn()

    # -- in a thread of its own -------------------------------------------------------------------

    def post(self, flow: Flow) -> None:
        """Hand a flow to the thread that serves."""
        self._posted.append(flow)
        self._wanted.set()
        os.write(self._wake_write, b"p")

    def serve(self) -> None:
        """Carry out what is posted, for as long as the pump lives."""
        flows: list[Flow] = []
        try:
            while not self._closed:
                while self._posted:
                    flows.append(self._posted.popleft())
                    self._add(flows[-1])
                with self._turning:
                    busy = bool(self._outgoing or self._incoming)
                    if busy:
                        self._turn()
                if not busy:
                    flows.clear()
                    # Not in the selector: it is the caller's while nothing is posted.
                    self._wanted.wait()
                    self._wanted.clear()
            raise PeerError(self._mesh.describe(self._left, "was given up"))  # to those who still wait
        except BaseException as error:
            for flow in (*flows, *self._posted):
                flow.end(error)

    def close(self) -> None:
        self._closed = True
        self._wanted.set()
        os.write(self._wake_write, b"c")

    # -- moving -----------------------------------------------------------------------------------

    def _add(self, flow: Flow) -> None:
        if flow.header:
            knock = HeaderExchange(flow.header, sends=bool(flow.out), takes=bool(flow.into))
            self._outgoing.append(knock)
            self._incoming.append(knock)
        self._outgoing.append(flow)
        self._incoming.append(flow)

    def _turn(self) -> None:
        pulled = self._pull()
        pushed, blocked = self._push()
        if not pulled and not pushed and (self._incoming or blocked):
            self._wait(reading=bool(self._incoming), writing=blocked)

    def _push(self) -> tuple[bool, bool]:
        """Send what may go; return whether any went, and whether the socket would take no more."""
        pushed = False
        while self._outgoing:
            flow = self._outgoing[0]
            if flow.all_sent:
                self._outgoing.popleft()
                flow.way_ended()
                continue
            data = flow.sendable()
            if not data:
                return pushed, False  # until more has come in
            count = self._send(data)
            if count == 0:
                return pushed, True
            flow.sent += count
            pushed = True
        return pushed, False

    def _pull(self) -> bool:
        """Receive a block, or what there is of it; return whether anything came."""
        while self._incoming:
            flow = self._incoming[0]
            if flow.all_taken:
                self._incoming.popleft()
                if isinstance(flow, HeaderExchange) and not flow.answered:
                    what = self._mesh.describe(self._left, DIFFERS)
                    raise MismatchError(f"{what}; use --debug to see both sides")
                flow.way_ended()
                continue
            step = flow.into[flow.in_turn]
            if step.reduction is None:
                count = self._receive(step.memory[flow.taken :])
                flow.taken += count
                flow.in_place[flow.in_turn] = flow.taken
            else:
                count = self._receive_and_add(flow, step, step.reduction)
            return count > 0
        return False

    def _receive_and_add(self, flow: Flow, step: FlowStep, reduction: Reduction) -> int:
        want = min(BLOCK_BYTES, len(step.memory) - flow.taken)
        count = self._receive(self._scratch_memory[self._filled : want])
        self._filled += count
        if self._filled == want:
            size = step.segment.element_size()
            block = step.segment[flow.taken // size : (flow.taken + want) // size]
            reduction.combine(self._scratch[:want].view(block.dtype), block, block)
            flow.taken += want
            flow.in_place[flow.in_turn] = flow.taken
            self._filled = 0
        return count

    def _send(self, data: memoryview) -> int:
        try:
            return self._mesh.socket_of(self._right).send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerError(self._mesh.describe(self._right, f"was lost: {error.strerror}")) from error

    def _receive(self, into: memoryview) -> int:
        try:
            count = self._mesh.socket_of(self._left).recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerError(self._mesh.describe(self._left, f"was lost: {error.strerror}")) from error
        if count == 0:
            raise PeerError(self._mesh.describe(self._left, "closed its connection"))
        return count

    # -- waiting ----------------------------------------------------------------------------------

    def _wait(self, *, reading: bool, writing: bool) -> None:
        wanted: dict[int, int] = {}
        if reading:
            wanted[self._left] = selectors.EVENT_READ
        if writing:
            wanted[self._right] = wanted.get(self._right, 0) | selectors.EVENT_WRITE
        for peer in wanted.keys() | self._watched.keys():
            self._watch(peer, wanted.get(peer, 0))
        if not self._selector.select(self._mesh.timeout_s):
            peer = self._left if reading else self._right
            raise PeerError(self._mesh.describe(peer, let_nothing_through(self._mesh.timeout_s)))
        self._hush()

    def _watch(self, peer: int, events: int) -> None:
        before = self._watched.get(peer, 0)
        if events == before:
            return
        connection = self._mesh.socket_of(peer)
        if not before:
            self._selector.register(connection, events)
        elif not events:
            self._selector.unregister(connection)
        else:
            self._selector.modify(connection, events)
        self._watched[peer] = events

    def _hush(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            return


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
