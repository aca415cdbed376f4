"""One watcher of the stream: a bounded queue of encoded messages; who reads too slowly is told to begin anew."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

MOST_WAITING = 512  # messages
MOST_WAITING_BYTES = 1 << 20
RESYNC = b"event: resync\ndata: {}\n\n"
BEAT = b": beat\n\n"


class Watcher:
    """The messages for one reader of some topics."""

    def __init__(
        self, topics: Iterable[str], *, user_id: int, visible_to: int | None, until_s: float
    ) -> None:
        self.topics = frozenset(topics)
        self.user_id = user_id
        self.visible_to = visible_to
        self.until_s = until_s  # by the loop's clock: who may watch is checked again after it
        self.resyncs = 0
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._closed = False

    def offer(self, message: bytes) -> None:
        """Add a message; where too many wait, all of them give way to the news that some were missed."""
        if self._closed:
            return
        if len(self._waiting) >= MOST_WAITING or self._bytes + len(message) > MOST_WAITING_BYTES:
            self._waiting.clear()
            self.resyncs += 1
            message = RESYNC
            self._bytes = 0
        self._waiting.append(message)
        self._bytes += len(message)
        self._arrived.set()

    def close(self) -> None:
        """End the stream after what waits."""
        self._closed = True
        self._arrived.set()

    async def next(self) -> bytes:
        """Return all that waits, as soon as there is something; nothing at the end."""
        while not self._waiting:
            if self._closed:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        together = b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        return together
