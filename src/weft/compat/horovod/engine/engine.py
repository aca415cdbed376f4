"""The engine: a thread that negotiates and a thread that carries out, both asleep while there is nothing to do.

Operations that are submitted within a cycle (a millisecond), or while others are carried out, are told to the
coordinator together, and so are fused; a cycle goes on while more come. One that somebody waits for is told at once, by
the thread that waits, which also listens to the coordinator and carries out what is agreed on: to wake another thread
takes longer than to negotiate. At rank 0 whoever tells or hears something is the coordinator as well.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from weft.compat.horovod.engine.control import ChannelClosed, ControlChannel, ControlPlane, encode
from weft.compat.horovod.engine.cycle_timer import CycleTimer
from weft.compat.horovod.engine.desk import CoordinatorDesk
from weft.compat.horovod.engine.execution import AgreedWork, Execute
from weft.compat.horovod.engine.operations import HandleTable, HorovodOp
from weft.compat.horovod.engine.timeline import NegotiationTimeline
from weft.compat.horovod.engine.transport import DataTransport
from weft.compat.horovod.engine.work_queue import WorkQueue
from weft.compat.horovod.errors import SHUT_DOWN, HorovodInternalError
from weft.compat.horovod.negotiation.cycle import HELD_BYTES, TellCycle
from weft.compat.horovod.negotiation.messages import (
    GLOBAL_SET,
    AgreedBatch,
    AgreedOp,
    AgreedOps,
    AllDrained,
    Execution,
    OpKind,
    OpRequest,
    RankDrained,
    SendAgain,
    StopAll,
    StopRequest,
    ToCoordinator,
    ToRank,
)
from weft.compat.horovod.negotiation.names import OpKey, RankNames
from weft.compat.horovod.settings import HorovodSettings

logger = logging.getLogger("horovod")
AS_BEFORE = AgreedOp("")  # an operation that was agreed on by its number
TOLD_BY_CALLER = (
    2048  # new operations at most: a message of more might wait for a reader, and the caller with it
)
DRAIN_S = 10.0  # at the end, for all ranks to carry out what was agreed on
JOIN_NAME = "join"

ChangeSets = Callable[[int, OpRequest], None]


class HorovodEngine:
    """Negotiates and carries out the operations of one process in one world."""

    def __init__(
        self,
        rank: int,
        size: int,
        control: ControlPlane,
        transport: DataTransport,
        settings: HorovodSettings,
        change_sets: ChangeSets,
        handles: HandleTable,
    ) -> None:
        self.rank, self.size, self.settings = rank, size, settings
        self.handles = handles
        self.sets: dict[int, tuple[int, ...]] = {GLOBAL_SET: tuple(range(size))}
        self.transports: dict[int, DataTransport] = {GLOBAL_SET: transport}
        self.timeline = NegotiationTimeline(rank == 0)
        self.failure: BaseException | None = None  # why nothing more is carried out
        self._control, self._change_sets = control, change_sets
        self._execute = Execute(self.transports, self.sets.__getitem__)
        self._names = RankNames()
        self._lock = threading.Lock()
        self._new: list[HorovodOp] = []  # submitted, and not told to the coordinator
        self._in_flight: dict[OpKey, HorovodOp] = {}  # submitted, and not carried out
        self._new_bytes = 0  # of what is new
        self._new_since = 0.0  # when the first of it was submitted
        self._told_batch = -1  # that was told last, and is not agreed on
        self._prepared: list[AgreedWork] | None = None  # what will be carried out for it
        self._to_do = 0  # executions that were agreed on and are not carried out
        self._noticed = False  # the negotiating thread will see that something is new
        self._hurried = False  # somebody waits for what is new
        self._stop_asked: str | None = None
        self._drained_here = False
        self._agreed = WorkQueue(self._carry_out, self._on_end, handles, self._attend, self._nudge)
        self._desk = threading.RLock()  # held by who tells or hears: names, the coordinator, connections
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cycle = CycleTimer()  # rings when the first submission of a cycle is a cycle ago
        self._nudged = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ranks_by_line = {channel.fileno(): rank for rank, channel in control.channels.items()}
        self._lines = (
            select.epoll()
        )  # connections, and what wakes a thread that listens to them for the other
        for line in (self._nudged, *self._ranks_by_line):
            self._lines.register(line, select.EPOLLIN)
        self._bell = select.epoll()  # what wakes the negotiating thread
        self._bell.register(self._wake, select.EPOLLIN)
        self._bell.register(self._cycle, select.EPOLLIN)
        self._bell.register(self._lines, select.EPOLLIN)
        self._seat = threading.Lock()  # held by a thread that listens while it waits
        self._attending = 0  # that thread's number
        self._stopped = threading.Event()  # nothing more will be agreed on
        self._closable = threading.Event()  # nobody needs this rank's connections any more
        self._coordinator = (
            CoordinatorDesk(size, control, settings, self.timeline, self._obey) if rank == 0 else None
        )
        self._over = False
        self._threads = [
            threading.Thread(target=self._negotiate, name="weft-horovod-negotiate", daemon=True),
            threading.Thread(target=self._agreed.serve, name="weft-horovod-execute", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    # -- for the process's threads --------------------------------------------------------------------

    def submit(self, op: HorovodOp, hurry: bool = False, nbytes: int | None = None) -> None:
        """Take in an operation of a size; `hurry`: `wait` is called for it next, and tells it."""
        if nbytes is None:
            nbytes = sum(tensor.nbytes for tensor in op.inputs)
        with self._lock:
            if self.failure is not None:
                raise self._shut_down_error()
            if self._in_flight.setdefault(op.key, op) is not op:
                raise ValueError(
                    f"{op.request.name} must not be submitted again before it is done, got a second one; wait for the "
                    "first with hvd.synchronize() or give it another name"
                )
            self._new.append(op)
            before = self._new_bytes
            self._new_bytes = before + nbytes
            if not self._noticed and not hurry:
                self._noticed, self._new_since = True, time.monotonic()
                self._cycle.set(self.settings.cycle_s)
            # While work is carried out the negotiating thread sleeps, unless there is much to tell.
            crossed = before < HELD_BYTES <= before + nbytes and self._to_do > 0
        if crossed:
            os.eventfd_write(self._wake, 1)

    def wait(self, op: HorovodOp) -> None:
        """Return when an operation is done; the thread that waits negotiates and carries out work meanwhile."""
        if not op.done:
            if self._new:
                self._tell_now()
            self._agreed.help_until_done(op)

    def _attend(self, op: HorovodOp) -> bool:
        """Listen in the negotiating thread's stead until an operation is done or work is agreed on.

        Returns False if another thread does.
        """
        if self._stopped.is_set() or not self._seat.acquire(blocking=False):
            return False
        self._attending = threading.get_ident()
        try:
            self._bell.modify(self._lines, 0)  # the negotiating thread does not hear them now
            while not (op.done or self._agreed.waiting or self._stopped.is_set()):
                timeout_s = self._timeout(None)
                events = self._lines.poll(-1 if timeout_s is None else timeout_s)
                with self._desk:
                    came = self._hear(events)
                    self._coordinate(came, time.monotonic())
        finally:
            self._attending = 0
            self._bell.modify(self._lines, select.EPOLLIN)
            self._seat.release()
        return True

    def _nudge(self) -> None:
        """Let a thread that listens for others see whether it has something else to do."""
        if self._attending not in (0, threading.get_ident()):
            with suppress(OSError):
                os.eventfd_write(self._nudged, 1)

    def _hear(self, events: Sequence[tuple[int, int]]) -> bool:
        """Take in what has come on connections; return whether there is something to decide."""
        came = False
        for number, _ in events:
            rank = self._ranks_by_line.get(number)
            if rank is not None:
                came = self._hear_from(rank, self._control.channels[rank]) or came
            elif number == self._nudged:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._nudged)
        return came

    def _tell_now(self) -> None:
        """Tell the coordinator of what is new from the thread that waits for it; much of it is left to the other."""
        if len(self._new) > TOLD_BY_CALLER:
            self._hurried = True
            with suppress(OSError):  # closed meanwhile
                os.eventfd_write(self._wake, 1)
            return
        with self._desk:
            desk = self._coordinator
            if self._new and self._tell_new(time.monotonic()) and desk is not None:
                desk.send_decisions()
            if self._told_batch >= 0 and desk is not None and self._hear(self._lines.poll(0)):
                desk.send_decisions()  # those who wait for this rank alone need not wait for its preparation
            if self._told_batch >= 0:
                self._prepared = self._resolve_batch(self._told_batch)

    def stop(self) -> None:
        """Stop all ranks, wait until all have carried out what was agreed on, and let go of everything."""
        self._ask_to_stop("")
        if not self._closable.wait(DRAIN_S):
            for transport in self.transports.values():
                transport.abort()
        self._over = True
        os.eventfd_write(self._wake, 1)
        self._agreed.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(DRAIN_S)
        self._control.close()
        for transport in self.transports.values():
            transport.close()
        with self._seat:  # nobody listens any more
            self._lines.close()
            self._bell.close()
            os.close(self._wake)
            self._cycle.close()
            os.close(self._nudged)
        self.timeline.stop()

    def fail(self, error: BaseException) -> None:
        """Give up this world at once: a member is known to be lost. Any thread may call this."""
        self._fail_all(error)
        for transport in list(self.transports.values()):
            transport.abort()
        self._stopped.set()
        self._closable.set()
        self._nudge()

    def _ask_to_stop(self, reason: str) -> None:
        with self._lock:
            if self._stop_asked is None:
                self._stop_asked = reason
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _shut_down_error(self) -> HorovodInternalError:
        why = f": {self.failure}" if str(self.failure) else ""
        error = HorovodInternalError(f"{SHUT_DOWN}{why}")
        error.__cause__ = self.failure if isinstance(self.failure, Exception) else None
        return error

    # -- the negotiating thread -----------------------------------------------------------------------

    def _negotiate(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # nobody would hear of it
            if not self._over:
                logger.exception("the negotiation failed")
                self.fail(error)

    def _loop(self) -> None:
        cycle = TellCycle(self.settings.cycle_s)
        stop_told = False
        while not self._over:
            timeout_s = self._timeout(cycle.send_at)
            events = self._bell.poll(-1 if timeout_s is None else timeout_s)
            with self._desk:
                came = self._answer(events)
                now = time.monotonic()
                if cycle.is_time(
                    now,
                    count=len(self._new),
                    since=self._new_since,
                    nbytes=self._new_bytes,
                    busy=bool(self._to_do),
                    hurried=self._hurried,
                ):
                    came = self._tell_new(now) or came
                if self._stop_asked is not None and not stop_told:
                    stop_told = True
                    self._to_coordinator(StopRequest(self._stop_asked))
                if self._stopped.is_set() and self._drained_here:
                    self._drained_here = False
                    self._to_coordinator(RankDrained())
                self._coordinate(came, now)

    def _answer(self, events: Sequence[tuple[int, int]]) -> bool:
        """Take note of what has woken the negotiating thread; return whether there is something to decide."""
        came = False
        for number, _ in events:
            if number == self._wake:
                with suppress(BlockingIOError):
                    os.eventfd_read(number)
            elif number == self._cycle.fileno():
                self._cycle.clear()
            else:
                came = self._hear(self._lines.poll(0))
        return came

    def _timeout(self, send_at: float | None) -> float | None:
        """Return for how long there is nothing to do but for what wakes the thread; None: for ever."""
        now = time.monotonic()
        # While there is something to do, its end wakes this thread.
        waits = [max(0.0, send_at - now)] if send_at is not None and not self._to_do else []
        if self._coordinator is not None and not self._stopped.is_set():
            look_s = self._coordinator.next_stall_look_s(now)
            waits += [] if look_s is None else [look_s]
        return min(waits, default=None)

    def _coordinate(self, came: bool, now: float) -> None:
        """Decide, at rank 0, on what has come, and look for ranks that are late."""
        if self._coordinator is None:
            return
        if came:
            self._coordinator.send_decisions()
        self._coordinator.look_for_stalls(now, stopped=self._stopped.is_set())

    def _tell_new(self, now: float) -> bool:
        """Tell the coordinator of what was submitted; return whether there is something to decide."""
        with self._lock:
            new, self._new, self._new_bytes = self._new, [], 0
            if self._noticed:
                self._cycle.off()
            self._noticed = self._hurried = False
        if self._stopped.is_set():
            return False
        if self.settings.mark_cycles or self.timeline.mark_cycles:
            self.timeline.cycle(now)
        ready = self._names.ask([op.request for op in new])
        self._told_batch, self._prepared = ready.batch, None
        return self._to_coordinator(ready)

    def _to_coordinator(self, message: ToCoordinator) -> bool:
        if self._coordinator is not None:
            return self._coordinator.hear(0, message, stopped=self._stopped.is_set())
        self._control.channels[0].send(encode(message))
        return False

    def _hear_from(self, rank: int, channel: ControlChannel) -> bool:
        """Take in what a rank or the coordinator says; return whether there is something to decide."""
        try:
            messages = channel.receive(wait=False)  # another thread may have been quicker
        except ChannelClosed:
            line = channel.fileno()
            self._lines.unregister(line)
            del self._ranks_by_line[line]
            return self._on_closed(rank)
        came = False
        for message in messages:
            if self._coordinator is not None:
                came = self._coordinator.hear(rank, message, stopped=self._stopped.is_set()) or came
            else:
                self._obey(message)
        return came

    def _on_closed(self, rank: int) -> bool:
        if self._coordinator is not None:
            self._coordinator.lost(rank)
            return False
        if not self._stopped.is_set():
            self.fail(HorovodInternalError(f"rank 0 on {self._control.roster[0].host} is gone"))
        self._closable.set()
        return False

    # -- what the coordinator says --------------------------------------------------------------------

    def _obey(self, message: ToRank) -> None:
        match message:
            case AgreedOps():
                self._take_on(message.executions)
                self._names.follow(message)
            case AgreedBatch(number):
                works = self._prepared if number == self._told_batch else None
                self._names.batch_agreed(number)
                self._put(self._resolve_batch(number) if works is None else works)
                self._told_batch, self._prepared = -1, None
            case SendAgain(numbers):
                self._to_coordinator(self._names.again(numbers))
                if self._coordinator is not None:
                    self._coordinator.send_decisions()
            case StopAll(reason):
                self._stopped.set()
                self._agreed.close()
                self._nudge()
                if reason:  # somebody is lost: what is under way would wait for them
                    self.fail(HorovodInternalError(reason))
            case AllDrained():
                self._closable.set()

    def _take_on(self, executions: Sequence[Execution]) -> None:
        self._put([self._resolve(execution) for execution in executions])

    def _put(self, works: Sequence[AgreedWork]) -> None:
        with self._lock:
            self._to_do += len(works)
        self._agreed.put(works)

    def _resolve_batch(self, number: int) -> list[AgreedWork]:
        """Find this rank's operations of a batch, which may not be agreed on yet."""
        return [
            AgreedWork(
                execution.kind,
                execution.set_id,
                list(map(self._in_flight.get, keys)),
                (AS_BEFORE,) * len(keys),
            )
            for execution, keys in self._names.batch(number)
        ]

    def _resolve(self, execution: Execution) -> AgreedWork:
        """Find this rank's operations of an execution."""
        keys = self._names.agreed(execution.numbers)
        found: list[HorovodOp | None] = list(map(self._in_flight.get, keys))
        for agreed in execution.ops:
            key = execution.set_id, agreed.name
            op = self._in_flight.get(key)
            if op is not None:
                self._names.learn(key, agreed, op.request)
            elif agreed.number >= 0 and agreed.request is not None:  # this rank has joined
                self._names.learn(key, agreed, agreed.request)
            found.append(op)
        as_before = (AS_BEFORE,) * len(execution.numbers)
        return AgreedWork(execution.kind, execution.set_id, found, as_before + execution.ops)

    # -- the executing thread, or one that waits ------------------------------------------------------

    def _carry_out(self, work: AgreedWork) -> None:
        if self.failure is not None:
            return
        try:
            self._do(work)
            with self._lock:
                self._to_do -= 1
                wake = not self._to_do and bool(self._new)
            if wake:
                os.eventfd_write(self._wake, 1)
        except BaseException as error:
            self._finish(work, error)
            self._ask_to_stop(str(error) or type(error).__name__)
            self.fail(error)
            if isinstance(error, KeyboardInterrupt):  # in the thread that waits
                raise

    def _on_end(self) -> None:
        """Everything that was agreed on before the end was carried out."""
        if self.failure is None:
            self._fail_all(None)
        self._drained_here = True
        with suppress(OSError):
            os.eventfd_write(self._wake, 1)

    def _do(self, work: AgreedWork) -> None:
        """Carry out work, and tell the threads that wait for it."""
        if work.agreed[0].error:
            self._finish(work, None)
            return
        kind = OpKind(work.kind)
        timed = self.timeline.on
        if timed:
            self.timeline.begin(work, time.monotonic())
        if kind in (OpKind.ADD_SET, OpKind.REMOVE_SET):
            for agreed, op in zip(work.agreed, work.ops, strict=True):
                if op is not None:
                    self._change_sets(agreed.value, op.request)
                    op.extra = agreed.value
        elif kind == OpKind.JOIN:
            for agreed, op in zip(work.agreed, work.ops, strict=True):
                if op is not None:
                    op.extra = agreed.value
        elif kind != OpKind.BARRIER:
            self._execute.run(work)
        if timed:
            self.timeline.end(work, time.monotonic())
        self._finish(work, None)

    def _finish(self, work: AgreedWork, error: BaseException | None) -> None:
        done = [op for op in work.ops if op is not None]
        disagreed = work.agreed[0].error  # what was not agreed on is fused with nothing
        if disagreed or error is not None:
            for op in done:
                op.error = HorovodInternalError(disagreed) if disagreed else _as_internal(error)
        with self._lock:
            if work.set_id == GLOBAL_SET and len(done) == len(self._in_flight):  # it is all there was
                self._in_flight.clear()
            else:
                forget = self._in_flight.pop
                for op in done:
                    forget(op.key, None)
        self._tell_done(done)

    def _tell_done(self, ops: Sequence[HorovodOp]) -> None:
        self.handles.tell(ops)
        self._nudge()

    def _fail_all(self, error: BaseException | None) -> None:
        """Let everything that is in flight fail, and everything that comes later."""
        with self._lock:
            if self.failure is None:
                self.failure = error if error is not None else HorovodInternalError("")
            left, self._in_flight, self._new = list(self._in_flight.values()), {}, []
        for op in left:
            op.error = self._shut_down_error()
        self._tell_done(left)

    def drop_set(self, set_id: int) -> None:
        """Let operations of a process set that is no more fail."""
        with self._lock:
            left = [op for (owner, _), op in self._in_flight.items() if owner == set_id]
            for op in left:
                self._in_flight.pop((set_id, op.request.name))
        for op in left:
            op.error = HorovodInternalError(
                f"process set {set_id} was removed before {op.request.name} was done"
            )
        self._tell_done(left)

    def ranks_of(self, set_id: int) -> Sequence[int]:
        return self.sets[set_id]


def _as_internal(error: BaseException | None) -> HorovodInternalError:
    """Return the error that scripts expect, with the original as its cause."""
    made = HorovodInternalError(str(error) or type(error).__name__)
    made.__cause__ = error
    return made
