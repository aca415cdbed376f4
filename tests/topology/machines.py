"""Machines to place workers on, made up."""

from __future__ import annotations

from hypothesis import strategies as st

from weft.topology.host import Accelerator, Core, Host, NetworkCard

GIB = 2**30


def machine(
    name: str = "host1",
    *,
    cores: tuple[int, ...] = (16, 16),  # of each socket
    threads: int = 2,
    numa_per_socket: int = 1,
    accelerators: tuple[int | None, ...] = (0, 0, 1, 1),  # the socket of each
    model: str = "NVIDIA H200",
    accelerator_bytes: int = 140 * GIB,
    memory_bytes: int = 256 * GIB,
    cards: tuple[NetworkCard, ...] = (),
) -> Host:
    """A machine numbered as Linux does: first one thread of each core, then the others."""
    total = sum(cores)
    made = []
    for socket, count in enumerate(cores):
        for index in range(count):
            first = sum(cores[:socket]) + index
            numa = socket * numa_per_socket + index * numa_per_socket // count
            cpus = tuple(first + thread * total for thread in range(threads))
            made.append(Core(socket=socket, index=index, numa=numa, cpus=cpus))
    return Host(
        name=name,
        cores=tuple(made),
        memory_bytes=memory_bytes,
        accelerators=tuple(
            Accelerator(index=index, model=model, memory_bytes=accelerator_bytes, socket=socket)
            for index, socket in enumerate(accelerators)
        ),
        cards=cards,
    )


@st.composite
def machines(draw: st.DrawFn, *, equal_sockets: bool = False, with_accelerators: bool = True) -> Host:
    """Any machine, odd ones included."""
    sockets = draw(st.integers(1, 4))
    size = st.integers(1, 12)
    cores = [draw(size)] * sockets if equal_sockets else [draw(size) for _ in range(sockets)]
    seats = st.lists(st.integers(0, sockets - 1), max_size=6)
    anywhere = st.lists(st.none() | st.integers(0, sockets), max_size=6)  # unknown, or a socket we cannot use
    return machine(
        cores=tuple(cores),
        threads=draw(st.integers(1, 2)),
        numa_per_socket=draw(st.integers(1, 2)),
        accelerators=tuple(draw(seats | anywhere)) if with_accelerators else (),
    )
