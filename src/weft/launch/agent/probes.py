"""Probes between two hosts: can they connect, who do they see, how far and how fast is the link.

One agent serves, others call. A call starts with one letter: `w` asks which address the server sees, `p` plays
ping-pong, `s` sends as much as it can and is told how much arrived.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Sequence

from weft.launch.agent.protocol import LinkMeasured, ProbeResult, ProbeTarget

PINGS = 20
BLOCK_BYTES = 1 << 18
SLICE_S = 0.02
_PING_BYTES = 16


def serve() -> socket.socket:
    """Answer probes from a background thread until `stop` is called with the listener that is returned."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    listener = socket.create_server(
        ("", 0), family=family, backlog=128, dualstack_ipv6=family == socket.AF_INET6
    )
    threading.Thread(target=_accept, args=(listener,), daemon=True).start()
    return listener


def stop(listener: socket.socket) -> None:
    """Answer no more callers; those that are being answered may go on."""
    listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for them
    listener.close()


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, peer = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, peer[0]), daemon=True).start()


def _answer(connection: socket.socket, peer: str) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            match connection.recv(1):
                case b"w":
                    connection.sendall(plain_address(peer).encode())
                case b"p":
                    while data := connection.recv(_PING_BYTES):
                        connection.sendall(data)
                case b"s":
                    connection.sendall(_swallow(connection))
        except OSError:
            return  # the caller went away; it will say so itself


def _swallow(connection: socket.socket) -> bytes:
    """Read to the end; how many bits a second came."""
    buffer = bytearray(BLOCK_BYTES)
    # The clock starts with the first bytes: before they came, the sender was still connecting.
    connection.recv_into(buffer)
    began = now = time.perf_counter()
    slices = [0]
    while got := connection.recv_into(buffer):
        now = time.perf_counter()
        slices += [0] * (int((now - began) / SLICE_S) + 1 - len(slices))
        slices[-1] += got
    return struct.pack("!d", 8 * pace(slices, now - began))


def pace(slices: Sequence[int], elapsed_s: float) -> float:
    """Bytes a second that a link carries, from what came in each slice of time.

    The upper quartile: the mean would count the time a young connection takes to find its pace, and the waits for
    a lost packet, which on a slow link fill most of a short measurement.
    """
    if len(slices) < 3:  # the last is cut short
        return sum(slices) / elapsed_s if elapsed_s > 0 else 0.0
    return sorted(slices[:-1])[(len(slices) - 1) * 3 // 4] / SLICE_S


def plain_address(address: str) -> str:
    """An IPv4 address as IPv4 even where a dual-stack socket says ::ffff:10.0.0.1."""
    return address.removeprefix("::ffff:")


def reach(targets: Sequence[ProbeTarget], timeout_s: float) -> tuple[ProbeResult, ...]:
    """Try to connect to each target, all at once; the results in the same order."""
    results: dict[int, ProbeResult] = {}

    def work(index: int) -> None:
        results[index] = _reach(targets[index], timeout_s)

    # Plain threads: importing an executor takes longer than all the rest of the agent's answer.
    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(results[index] for index in range(len(targets)))


def _reach(target: ProbeTarget, timeout_s: float) -> ProbeResult:
    source = None
    try:
        with socket.create_connection((target.address, target.port), timeout=timeout_s) as connection:
            source = plain_address(connection.getsockname()[0])
            connection.sendall(b"w")
            seen_as = connection.recv(64).decode()
    except OSError as error:
        reason = "timed out" if isinstance(error, TimeoutError) else (error.strerror or str(error))
        return ProbeResult(target.host, target.address, source, error=reason)
    return ProbeResult(target.host, target.address, source, seen_as)


def measure(address: str, port: int, seconds: float) -> LinkMeasured:
    """Measure the round trip (median of a few) and the bandwidth (counted by the receiver) to a peer that serves."""
    try:
        rtt_ms = _round_trip_ms(address, port)
        return LinkMeasured(_bandwidth_mbps(address, port, seconds), rtt_ms)
    except OSError as error:
        return LinkMeasured(error=error.strerror or str(error))


def _call(address: str, port: int, letter: bytes) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=5.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(letter)
    return connection


def _round_trip_ms(address: str, port: int) -> float:
    times = []
    with _call(address, port, b"p") as connection:
        for _ in range(PINGS):
            began = time.perf_counter()
            connection.sendall(bytes(_PING_BYTES))
            connection.recv(_PING_BYTES, socket.MSG_WAITALL)
            times.append(time.perf_counter() - began)
    return round(sorted(times)[PINGS // 2] * 1000, 3)


def _bandwidth_mbps(address: str, port: int, seconds: float) -> float:
    block = bytes(BLOCK_BYTES)
    with _call(address, port, b"s") as connection:
        # Or a slow link would take another second to empty what the kernel had buffered.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, BLOCK_BYTES)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(8, socket.MSG_WAITALL)
    if len(answer) < 8:
        raise ConnectionError("the peer hung up")
    bits_per_second: float = struct.unpack("!d", answer)[0]
    return round(bits_per_second / 1e6, 1)


def rounds(count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Every pair of `count` hosts once, in rounds in which no host is in two pairs (the circle method)."""
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    schedule = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        schedule.append(tuple((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(schedule)
