"""`CoordinatorDesk` is the coordinator's side of the engine of rank 0: it hears ranks, and sends what is decided."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from weft.compat.horovod.engine.control import ControlPlane, encode
from weft.compat.horovod.engine.timeline import NegotiationTimeline
from weft.compat.horovod.negotiation.coordinator import Coordinator
from weft.compat.horovod.negotiation.messages import (
    AllDrained,
    RankDrained,
    ReadyOps,
    StopAll,
    StopRequest,
    ToCoordinator,
    ToRank,
)
from weft.compat.horovod.settings import HorovodSettings

logger = logging.getLogger("horovod")


class CoordinatorDesk:
    """Hears what ranks tell, and sends them what is agreed on; `obey` takes what is for rank 0 itself."""

    def __init__(
        self,
        size: int,
        control: ControlPlane,
        settings: HorovodSettings,
        timeline: NegotiationTimeline,
        obey: Callable[[ToRank], None],
    ) -> None:
        self._control, self._settings, self._timeline, self._obey = control, settings, timeline, obey
        self._coordinator = Coordinator(
            size, capacity=settings.cache_capacity, fusion_bytes=settings.fusion_bytes
        )
        self._ranks = frozenset(range(size))
        self._drained: set[int] = set()  # ranks that have carried out all that was agreed on
        self._gone: set[int] = set()  # ranks whose connection is closed
        self._stop_sent = False  # all ranks were told that nothing more is agreed on

    def hear(self, rank: int, message: ToCoordinator, *, stopped: bool) -> bool:
        """Take in what a rank tells; return whether there is something to decide."""
        match message:
            case ReadyOps():
                if stopped:
                    return False
                now = time.monotonic()
                if self._timeline.on:
                    spelled_out = self._coordinator.spelled_out(message)
                    self._timeline.arrivals(rank, spelled_out, self._coordinator.request_of, now)
                self._coordinator.receive(rank, message, now)
                return True
            case StopRequest(reason):
                self.stop_all(reason)
            case RankDrained():
                self._drained.add(rank)
                self._end_if_drained()
        return False

    def lost(self, rank: int) -> None:
        """Take note that the connection of a rank is closed; a rank that is lost stops all others."""
        self._gone.add(rank)
        if not self._stop_sent:
            self.stop_all(f"rank {rank} on {self._control.roster[rank].host} is gone")
        self._end_if_drained()

    def send_decisions(self) -> None:
        """Decide what can be carried out, and tell all ranks."""
        encoded: dict[int, bytes] = {}
        mine: list[ToRank] = []
        for rank, message in self._coordinator.decide():
            if rank == 0:
                mine.append(message)
                continue
            if id(message) not in encoded:
                encoded[id(message)] = encode(message)
            self._control.channels[rank].send(encoded[id(message)])
        for message in mine:
            self._obey(message)

    def stop_all(self, reason: str) -> None:
        """Tell all ranks that nothing more is agreed on; only the first reason counts."""
        if not self._stop_sent:
            self._stop_sent = True
            self._send_all(StopAll(reason))

    def _end_if_drained(self) -> None:
        if self._stop_sent and self._drained | self._gone >= self._ranks:
            self._send_all(AllDrained())

    def _send_all(self, message: ToRank) -> None:
        data = encode(message)
        for rank, channel in self._control.channels.items():
            if rank not in self._gone:
                channel.send(data)
        self._obey(message)

    def next_stall_look_s(self, now: float) -> float | None:
        """Return for how long nobody can be found to be late; None: for ever."""
        oldest = self._coordinator.oldest()
        if oldest is None:
            return None
        limits_s = (self._settings.stall_warn_s, self._settings.stall_shutdown_s)
        waits_s = [max(limit_s / 4, oldest + limit_s - now) for limit_s in limits_s if limit_s]
        return min(waits_s, default=None)

    def look_for_stalls(self, now: float, *, stopped: bool) -> None:
        """Warn of operations that some ranks have not submitted for long, and stop the world for them if asked to."""
        settings = self._settings
        if settings.stall_warn_s:
            missing = self._coordinator.missing(now, settings.stall_warn_s)
            if missing:
                lines = [
                    f"rank {rank}: {', '.join(sorted(names))}" for rank, names in sorted(missing.items())
                ]
                logger.warning(
                    "operations were submitted by some ranks and not by others for more than %g s; ranks that are "
                    "missing, and what they have not submitted:\n%s",
                    settings.stall_warn_s,
                    "\n".join(lines),
                )
        if settings.stall_shutdown_s:
            late = self._coordinator.missing(now, settings.stall_shutdown_s, again=True)
            if late and not stopped:
                who = "; ".join(f"rank {rank}: {', '.join(names)}" for rank, names in sorted(late.items()))
                self.stop_all(
                    f"stalled for more than {settings.stall_shutdown_s:g} s, missing {who} "
                    "(HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)"
                )
