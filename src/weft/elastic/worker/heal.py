"""Healing: a member that lacks the newest commit gets it from those who have it, slices from several at once.

Every worker has a server for that, in a thread. What a commit consists of does not change while somebody heals, so
tensors are sent from where they are; see `healing.py`. A source that dies costs nothing but its slice: another sends
that.
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
from dataclasses import dataclass

from torch import Tensor

from weft.collectives.modes.tcp.mesh import bytes_of
from weft.elastic.secret import admit, greet, receive
from weft.elastic.worker.state import Image, empty_like
from weft.errors import ConnectError

SLICE_BYTES = 8 << 20
BUFFER_BYTES = 4 << 20
KNOCK_S = 0.5
PATIENCE_S = 5.0  # with a source that says nothing
_LENGTH = struct.Struct("!Q")


@dataclass(frozen=True)
class Healed:
    """What a healing took."""

    image: Image
    seconds: float
    sources: tuple[str, ...]  # those that sent something


class HealServer:
    """Sends the image of the present view to whoever asks for it."""

    def __init__(self, address: str, secret: str) -> None:
        self._secret = secret
        self._listener = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._view = -1
        self._image: Image | None = None
        threading.Thread(target=self._serve, name="weft-heal", daemon=True).start()

    def publish(self, view: int, image: Image) -> None:
        """From now until `withdraw`, this is what members of the view may have."""
        with self._changed:
            self._view, self._image = view, image
            self._changed.notify_all()

    def withdraw(self) -> None:
        with self._changed:
            self._view, self._image = -1, None

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ConnectError, ValueError):
            connection.settimeout(PATIENCE_S)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            admit(connection, self._secret)
            connection.settimeout(None)
            while True:
                request = json.loads(_receive_block(connection))
                image = self._image_of(request["view"])
                if image is None:
                    return
                if "start" in request:
                    for piece in _pieces(image.tensors, request["start"], request["stop"]):
                        connection.sendall(piece)
                else:
                    _send_block(connection, pickle.dumps((image.rest, image.table())))

    def _image_of(self, view: int) -> Image | None:
        """What was published for this view; waits for one who is on the way to it."""
        with self._changed:
            self._changed.wait_for(lambda: self._view >= view, timeout=PATIENCE_S)
            return self._image if self._view == view else None


def fetch(
    view: int,
    sources: Sequence[tuple[str, str, int]],
    secret: str,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    came: Callable[[], object] = lambda: None,
    patience_s: float = PATIENCE_S,
) -> Healed:
    """Get the image of a view from some (name, address, port); `came` is called with every slice."""
    began = time.monotonic()
    table: Image | None = None
    for _, address, port in sources:
        with suppress(OSError, ConnectError):
            table = _fetch_table(view, address, port, secret, patience_s)
            break
    if table is None:
        raise ConnectError("a source must be there to heal from, got none that answers")
    slices = _Slices(table.nbytes, came)
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
    return Healed(table, time.monotonic() - began, tuple(sorted(slices.came_from)))


class _Slices:
    """The slices that have not come yet, shared by the threads that fetch them."""

    def __init__(self, nbytes: int, tell: Callable[[], object]) -> None:
        self._tell = tell
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
            self._tell()


def _fetch_table(view: int, address: str, port: int, secret: str, patience_s: float) -> Image:
    with _connect(address, port, secret, patience_s) as connection:
        _send_block(connection, json.dumps({"view": view}).encode())
        rest, table = pickle.loads(_receive_block(connection))
        return Image(rest, empty_like(table))


def _fetch_slices(
    view: int,
    source: tuple[str, str, int],
    secret: str,
    tensors: Sequence[Tensor],
    slices: _Slices,
    cancelled: Callable[[], bool],
    patience_s: float,
) -> None:
    """Take slices as long as there are any; one that does not come whole is left to the others."""
    name, address, port = source
    with suppress(OSError, ConnectError), _connect(address, port, secret, patience_s) as connection:
        while slices.left and not cancelled():
            piece = slices.take()
            if piece is None:
                time.sleep(0.01)  # another source may yet fail and leave us its slice
                continue
            try:
                request = {"view": view, "start": piece[0], "stop": piece[1]}
                _send_block(connection, json.dumps(request).encode())
                for memory in _pieces(tensors, *piece):
                    _receive_into(connection, memory)
            except BaseException:
                slices.put_back(piece)
                raise
            slices.came(name)


def knock(address: str, port: int, patience_s: float, in_vain: Callable[[], bool]) -> None:
    """See that somebody listens there; raises at once if nobody does, and soon if it is known that nobody will.

    torch's store would try again and again for as long as it may, whatever becomes known meanwhile.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            socket.create_connection((address, port), timeout=KNOCK_S).close()
            return
        except TimeoutError:
            if in_vain() or time.monotonic() > deadline:
                raise


def _connect(address: str, port: int, secret: str, patience_s: float) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=patience_s)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        greet(connection, secret)
    except BaseException:
        connection.close()
        raise
    return connection


def _pieces(tensors: Sequence[Tensor], start: int, stop: int) -> Iterator[memoryview]:
    """The memory of bytes [start, stop) of all tensors in a row."""
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
