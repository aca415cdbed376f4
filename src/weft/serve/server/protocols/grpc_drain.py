"""The end of the gRPC server: clients hear of it before their last answers, so that nobody calls in vain.

From the moment a gRPC server begins to stop, it cancels every call that arrives, and every call that has arrived and
was not handed to a handler yet (grpc/grpc#41785). A client hears of the end by a message on its connection (GOAWAY) and
makes its next call elsewhere. So the server stops while clients wait for answers: these are held back until every
client that is in the middle of a conversation has called again, and follow the GOAWAY over the same connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic

import grpc

_SETTLE_S = 0.25  # without a new call, before the server says farewell; and for the farewell to go out
_NEXT_CALL_S = 1.0  # a client that has not called again so long after its last answer is not waited for
_HOLD_S = 4.0  # the longest that answers wait for the farewell
_LOOK_S = 0.05  # between two looks at who has called
_MOST_CLIENTS = 4096  # connections whose last answers are remembered; more, and those of old are forgotten
_MOST_ANSWERS = 256  # of one connection, whose threads call one beside the other


class GrpcCallers:
    """The clients of the gRPC server: who was answered a moment ago and has not called since."""

    def __init__(self) -> None:
        self.calls = 0  # since the server started
        self.farewell = asyncio.Event()  # clients have been told that the server ends
        self._answered: dict[str, deque[float]] = {}  # by connection: when answers left that no call followed

    def called(self, peer: str) -> None:
        """Note a call over the connection `peer`."""
        self.calls += 1
        if answered := self._answered.get(peer):
            answered.popleft()

    def answered(self, peer: str) -> None:
        """Note that a call over the connection `peer` was answered."""
        if (times := self._answered.get(peer)) is None:
            if len(self._answered) >= _MOST_CLIENTS:
                self._forget()
            times = self._answered[peer] = deque(maxlen=_MOST_ANSWERS)
        times.append(monotonic())

    def are_between_calls(self) -> bool:
        """Return whether a client was answered a moment ago and may be about to call again."""
        since = monotonic() - _NEXT_CALL_S
        return any(times and times[-1] > since for times in self._answered.values())

    def _forget(self) -> None:
        """Forget connections that were answered long ago; all of them if there are too many still."""
        since = monotonic() - _NEXT_CALL_S
        recent = {peer: times for peer, times in self._answered.items() if times and times[-1] > since}
        self._answered = recent if len(recent) < _MOST_CLIENTS else {}


async def drain_calls(server: grpc.aio.Server, callers: GrpcCallers, drain_s: float) -> None:
    """Wait for the next call of every client, tell all of them that the server ends, and let answers go."""
    await _wait_until_settled(callers, min(_HOLD_S, drain_s))
    stopping = asyncio.ensure_future(server.stop(drain_s))
    await asyncio.sleep(_SETTLE_S)
    callers.farewell.set()
    await stopping


async def _wait_until_settled(callers: GrpcCallers, most_s: float) -> None:
    """Return when nobody is between two calls and no call came in for a moment, after `most_s` seconds at most."""
    quiet_since = monotonic()
    latest = quiet_since + most_s
    calls = -1
    while (now := monotonic()) < latest:
        if calls != callers.calls or callers.are_between_calls():
            calls, quiet_since = callers.calls, now
        elif now - quiet_since >= _SETTLE_S:
            return
        await asyncio.sleep(_LOOK_S)
