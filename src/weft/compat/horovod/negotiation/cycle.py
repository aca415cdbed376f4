"""`TellCycle` decides when a rank tells the coordinator of operations that were submitted. Pure.

Operations that come within a cycle (a millisecond) are told together, and so are fused; a cycle goes on while more
come.
"""

from __future__ import annotations

LONGEST_CYCLES = 10  # that a cycle goes on while more is submitted
HELD_BYTES = 16 << 20  # new operations of this size are told after a cycle, even while others are carried out
BURST_PER_S = 10_000  # submissions: a thread that makes so many wants nothing else done meanwhile


class TellCycle:
    """One cycle after the other. Times are seconds of a clock that only goes on."""

    def __init__(self, cycle_s: float) -> None:
        self._cycle_s = cycle_s
        self.send_at: float | None = None  # when the cycle is over; None: nothing is new
        self._quiet_at = 0.0  # until then nothing is told, whatever its size
        self._longest = 0.0  # when the cycle is over at the latest
        self._seen, self._since = 0, 0.0  # operations at the last look, and when that was

    def is_time(
        self, now: float, *, count: int, since: float, nbytes: int, busy: bool, hurried: bool
    ) -> bool:
        """Return whether what is new is told now; the cycle is over then.

        `count` operations of `nbytes` are new, the first of them `since` then. `busy`: others are being carried out.
        `hurried`: somebody waits for what is new.
        """
        self._begin_or_end(count, since)
        if not count:
            return False
        if now >= self._quiet_at:
            self._prolong(now, count)
        much = nbytes >= HELD_BYTES and now >= self._quiet_at
        over = self.send_at is not None and now >= self.send_at and not busy
        if not (hurried or much or over):
            return False
        self.send_at = None
        return True

    def _begin_or_end(self, count: int, since: float) -> None:
        if not count:
            self.send_at = None
        elif self.send_at is None:
            self._seen, self._since = 1, since
            self.send_at = self._quiet_at = since + self._cycle_s
            self._longest = since + LONGEST_CYCLES * self._cycle_s

    def _prolong(self, now: float, count: int) -> None:
        """Begin the cycle once more if operations still come, but not for ever."""
        burst = count - self._seen > BURST_PER_S * (now - self._since)
        if burst or (count != self._seen and self.send_at is not None and now >= self.send_at):
            if now < self._longest:
                self.send_at = self._quiet_at = now + self._cycle_s
            self._seen, self._since = count, now
