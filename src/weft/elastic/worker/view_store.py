"""The store in which the members of a view meet: keys and values, served by its first member.

torch's own TCPStore would do, but for three things. Its calls are C++ that cannot be interrupted, and a member that
waits in them for one that has died may hold the only copy of the training state. It prints pages of frames about each
peer that is lost. And whoever reaches its port may read and write, while here both ends prove that they know the
secret of the run.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from torch.distributed import Store  # type: ignore[attr-defined]

from weft.elastic.replica.member_server import MemberServer
from weft.errors import CollectiveError
from weft.messages import Decoder, Message, encode
from weft.secret import greet

CONNECT_S = 5.0  # for the first member to be reached, and for both ends to prove themselves
LOOK_S = 0.1  # between two looks whether it is in vain to wait
WAIT_S = 0.1  # for which the server holds back its answer about a key that is not there yet
CHUNK_BYTES = 1 << 16


class StoreRequest(Message, frozen=True, tag_field="do"):
    """A request to the store; each is answered by one StoreReply."""


class SetKey(StoreRequest, frozen=True, tag="set"):
    """A request to keep a value."""

    key: str
    value: bytes


class GetKey(StoreRequest, frozen=True, tag="get"):
    """A request for a value; it is awaited for WAIT_S at most."""

    key: str


class AddToKey(StoreRequest, frozen=True, tag="add"):
    """A request to add to a number, which begins at 0, and to return the sum."""

    key: str
    amount: int


class DeleteKey(StoreRequest, frozen=True, tag="delete"):
    """A request to forget a key, and to tell whether it was there."""

    key: str


class CheckKeys(StoreRequest, frozen=True, tag="check"):
    """A request to tell whether all of these keys are there."""

    keys: tuple[str, ...]


class StoreReply(Message, frozen=True):
    """The answer to any request: a value (None: there is none), or a number."""

    value: bytes | None = None
    number: int = 0


_REQUESTS: Decoder[StoreRequest] = Decoder(SetKey, GetKey, AddToKey, CheckKeys, DeleteKey)
_REPLIES: Decoder[StoreReply] = Decoder(StoreReply)


class ViewStoreServer:
    """Serves the store of one worker, in which members of a view meet if the worker is the first of them."""

    def __init__(self, address: str, secret: str) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._server = MemberServer(address, secret, self._answer, name="weft-store")
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()

    def _answer(self, connection: socket.socket) -> None:
        """Answer the requests of one member until it hangs up."""
        with connection.makefile("rb") as lines:
            for line in lines:
                connection.sendall(encode(self._carry_out(_REQUESTS.decode(line))))

    def _carry_out(self, request: StoreRequest) -> StoreReply:
        with self._changed:
            match request:
                case SetKey(key, value):
                    self._values[key] = value
                    self._changed.notify_all()
                case GetKey(key):
                    self._changed.wait_for(lambda: key in self._values, WAIT_S)
                    return StoreReply(self._values.get(key))
                case AddToKey(key, amount):
                    total = int(self._values.get(key, b"0")) + amount
                    self._values[key] = str(total).encode()
                    self._changed.notify_all()
                    return StoreReply(number=total)
                case CheckKeys(keys):
                    return StoreReply(number=int(all(key in self._values for key in keys)))
                case DeleteKey(key):
                    return StoreReply(number=int(self._values.pop(key, None) is not None))
        return StoreReply()


class ViewStore(Store):
    """A member's connection to the store of a view's first member, as torch takes it.

    Every call raises CollectiveError as soon as `in_vain` is true. torch does not keep the Python part of a store
    alive, so its owner must.
    """

    def __init__(self, address: str, port: int, secret: str, in_vain: Callable[[], bool]) -> None:
        super().__init__()
        self._in_vain = in_vain
        self._timeout_s = CONNECT_S
        self._unread = b""
        self._asking = threading.Lock()
        self._connection = self._connect(address, port, secret)

    def _connect(self, address: str, port: int, secret: str) -> socket.socket:
        """Connect; raises at once if nobody listens there."""
        deadline = time.monotonic() + CONNECT_S
        while True:
            self._give_up_if_in_vain()
            try:
                connection = socket.create_connection((address, port), timeout=LOOK_S)
                break
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
        try:
            connection.settimeout(CONNECT_S)
            greet(connection, secret)
        except BaseException:
            connection.close()
            raise
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(LOOK_S)
        return connection

    def close(self) -> None:
        """Hang up; a call that waits in another thread is woken."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    # -- what torch calls -------------------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(SetKey(key, value.encode() if isinstance(value, str) else bytes(value)))

    def get(self, key: str) -> bytes:
        return self._await(key, self._timeout_s)

    def _await(self, key: str, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while (value := self._ask(GetKey(key)).value) is None:
            if time.monotonic() > deadline:
                raise CollectiveError(f"{key!r} must be set within {timeout_s:g} s, got nothing")
        return value

    def add(self, key: str, amount: int) -> int:
        return self._ask(AddToKey(key, amount)).number

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask(CheckKeys(tuple(keys))).number)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        timeout_s = self._timeout_s if timeout is None else timeout.total_seconds()
        for key in keys:
            self._await(key, timeout_s)

    def deleteKey(self, key: str) -> bool:  # noqa: N802 (torch's spelling, for stores in Python)
        return bool(self._ask(DeleteKey(key)).number)

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def clone(self) -> ViewStore:
        """Return this connection: calls of several users wait for each other only for moments."""
        return self

    # -- the connection ---------------------------------------------------------------------------

    def _ask(self, request: StoreRequest) -> StoreReply:
        with self._asking:
            self._give_up_if_in_vain()
            self._connection.sendall(encode(request))
            return _REPLIES.decode(self._receive_line())

    def _receive_line(self) -> bytes:
        while b"\n" not in self._unread:
            try:
                data = self._connection.recv(CHUNK_BYTES)
            except TimeoutError:
                self._give_up_if_in_vain()
                continue
            if not data:
                raise ConnectionError("the first member of the view closed its store")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _give_up_if_in_vain(self) -> None:
        if self._in_vain():
            raise CollectiveError("a member was lost while the group was made")
