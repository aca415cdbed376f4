"""The transfer of a state image between members: a server that sends it, and a fetch from several servers at once.

Every worker has a server, in a thread. What a commit consists of does not change while somebody is healed, so tensors
are sent from where they are; see `healing.py`. A source that dies costs nothing but its slice: another sends that.

A connection begins with proof that both sides know the run's secret (`weft.secret`). Then the client sends
requests, each a block of JSON: a table of the image, or bytes [start, stop) of its tensors in a row.
"""

from __future__ import annotations

import json
import pickle
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import Empty, Queue

from torch import Tensor

from weft.collectives.modes.tcp.mesh import bytes_of
from weft.elastic.replica.member_server import MemberServer
from weft.elastic.replica.state import StateImage, empty_like
from weft.errors import ConnectError
from weft.secret import greet, receive

SLICE_BYTES = 8 << 20  # of tensors, asked for at once from one source
SOCKET_BUFFER_BYTES = 4 << 20
PATIENCE_S = 5.0  # with a source that sends nothing
LOOK_S = 0.02  # between two looks whether what is fetched is still wanted
RETRY_S = 0.01  # until a thread without a slice looks whether another source has failed
_LENGTH = struct.Struct("!Q")  # bytes of the block that follows


@dataclass(frozen=True)
class TransferRequest:
    """A client's request: bytes [start, stop) of the tensors of a view's image, or its table where both are None."""

    view: int
    start: int | None = None
    stop: int | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> TransferRequest:
        return cls(**json.loads(data))


@dataclass(frozen=True)
class StateSource:
    """A member that offers its state: its name, and where its server listens."""

    worker: str
    address: str
    port: int


@dataclass(frozen=True)
class FetchedState:
    """A state image that was fetched, how long that took, and which members sent some of it."""

    image: StateImage
    seconds: float
    sources: tuple[str, ...]


class StateServer:
    """A server that sends the image of the present view to members that ask for it."""

    def __init__(self, address: str, secret: str) -> None:
        self._changed = threading.Condition()
        self._view = -1
        self._image: StateImage | None = None
        self._server = MemberServer(address, secret, self._answer, name="weft-heal")
        self.port = self._server.port

    def publish(self, view: int, image: StateImage) -> None:
        """Offer an image to the members of a view, until `withdraw`."""
        with self._changed:
            self._view, self._image = view, image
            self._changed.notify_all()

    def withdraw(self) -> None:
        """Offer nothing any more: the tensors may change from now on."""
        with self._changed:
            self._view, self._image = -1, None

    def close(self) -> None:
        self._server.close()

    def _answer(self, connection: socket.socket) -> None:
        """Answer the requests of one client until it hangs up, or asks for what is not offered any more."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
        with suppress(ValueError, TypeError):  # a request of other fields
            while True:
                request = TransferRequest.from_bytes(_receive_block(connection))
                image = self._image_of(request.view)
                if image is None:
                    return
                if request.start is None or request.stop is None:
                    _send_block(connection, pickle.dumps((image.rest, image.table())))
                else:
                    for memory in _memory_of(image.tensors, request.start, request.stop):
                        connection.sendall(memory)

    def _image_of(self, view: int) -> StateImage | None:
        """Return what was published for a view; wait a while if this member has not come to that view yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._view >= view, timeout=PATIENCE_S)
            return self._image if self._view == view else None


def fetch(
    view: int,
    sources: Sequence[StateSource],
    secret: str,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    on_slice: Callable[[], object] = lambda: None,
    patience_s: float = PATIENCE_S,
) -> FetchedState:
    """Get the image of a view from several sources at once; `on_slice` is called after every slice.

    Raises ConnectError if no source is left before the image is whole, and as soon as `cancelled` returns True: a
    source that says nothing any more is not waited for then.
    """
    fetched: Queue[FetchedState | BaseException] = Queue()

    def take_slice() -> None:
        if not cancelled():  # who cancelled it does something else by now
            on_slice()

    def work() -> None:
        try:
            fetched.put(_fetch_all(view, sources, secret, cancelled, take_slice, patience_s))
        except BaseException as error:
            fetched.put(error)

    threading.Thread(target=work, name="weft-fetch", daemon=True).start()
    while True:
        try:
            result = fetched.get(timeout=LOOK_S)
        except Empty:
            if cancelled():
                raise ConnectError("a member was lost while the state came from it or others") from None
            continue
        if isinstance(result, BaseException):
            raise result
        return result


def _fetch_all(
    view: int,
    sources: Sequence[StateSource],
    secret: str,
    cancelled: Callable[[], bool],
    on_slice: Callable[[], object],
    patience_s: float,
) -> FetchedState:
    """Get the table of an image from the first source that answers, and its slices from all."""
    began = time.monotonic()
    table: StateImage | None = None
    for source in sources:
        with suppress(OSError, ConnectError):
            table = _fetch_table(view, source, secret, patience_s)
            break
    if table is None:
        raise ConnectError("a source must be there to heal from, got none that answers")
    slices = _Slices(table.nbytes, on_slice)
    threads = [
        threading.Thread(
            target=_fetch_slices,
            args=(view, source, secret, table.tensors, slices, cancelled, patience_s),
            daemon=True,
        )
        for source in sources[: max(1, slices.left)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if slices.left:
        raise ConnectError(f"the state must come whole, got {slices.left} slices too few: no source is left")
    return FetchedState(table, time.monotonic() - began, tuple(sorted(slices.came_from)))


class _Slices:
    """The slices that have not come yet, shared by the threads that fetch them."""

    def __init__(self, nbytes: int, on_slice: Callable[[], object]) -> None:
        self._on_slice = on_slice
        self._todo = deque(
            (start, min(start + SLICE_BYTES, nbytes)) for start in range(0, nbytes, SLICE_BYTES)
        )
        self.left = len(self._todo)
        self.came_from: set[str] = set()
        self._lock = threading.Lock()

    def take(self) -> tuple[int, int] | None:
        with self._lock:
            return self._todo.popleft() if self._todo else None

    def put_back(self, piece: tuple[int, int]) -> None:
        with self._lock:
            self._todo.append(piece)

    def came(self, source: str) -> None:
        with self._lock:
            self.left -= 1
            self.came_from.add(source)
            self._on_slice()


def _fetch_table(view: int, source: StateSource, secret: str, patience_s: float) -> StateImage:
    """Get an image whose tensors have the right shapes, and no values yet."""
    with _connect(source, secret, patience_s) as connection:
        _send_block(connection, TransferRequest(view).to_bytes())
        rest, table = pickle.loads(_receive_block(connection))
        return StateImage(rest, empty_like(table))


def _fetch_slices(
    view: int,
    source: StateSource,
    secret: str,
    tensors: Sequence[Tensor],
    slices: _Slices,
    cancelled: Callable[[], bool],
    patience_s: float,
) -> None:
    """Take slices as long as there are any; a slice that does not come whole is left to the other sources."""
    with suppress(OSError, ConnectError), _connect(source, secret, patience_s) as connection:
        while slices.left and not cancelled():
            piece = slices.take()
            if piece is None:
                time.sleep(RETRY_S)  # another source may yet fail and leave us its slice
                continue
            try:
                _send_block(connection, TransferRequest(view, *piece).to_bytes())
                for memory in _memory_of(tensors, *piece):
                    _receive_into(connection, memory)
            except BaseException:
                slices.put_back(piece)
                raise
            slices.came(source.worker)


def _connect(source: StateSource, secret: str, patience_s: float) -> socket.socket:
    connection = socket.create_connection((source.address, source.port), timeout=patience_s)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        greet(connection, secret)
    except BaseException:
        connection.close()
        raise
    return connection


def _memory_of(tensors: Sequence[Tensor], start: int, stop: int) -> Iterator[memoryview]:
    """Yield the memory of bytes [start, stop) of all tensors in a row."""
    offset = 0
    for tensor in tensors:
        first, last = max(start, offset), min(stop, offset + tensor.nbytes)
        if first < last:
            yield bytes_of(tensor)[first - offset : last - offset]
        offset += tensor.nbytes
        if offset >= stop:
            return


def _receive_into(connection: socket.socket, memory: memoryview) -> None:
    while memory:
        count = connection.recv_into(memory)
        if not count:
            raise ConnectionError("the source closed the connection")
        memory = memory[count:]


def _send_block(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _receive_block(connection: socket.socket) -> bytes:
    return receive(connection, _LENGTH.unpack(receive(connection, _LENGTH.size))[0])
