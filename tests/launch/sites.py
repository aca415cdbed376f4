"""Small machines for plans that no test has to detect."""

from __future__ import annotations

from weft.launch.sites import HostSite
from weft.topology.host import Accelerator, Core, Host, NetworkCard


def machine(name: str = "h1", *, sockets: int = 1, cores: int = 4, accelerators: int = 0) -> Host:
    """A host with `cores` cores on each socket and its accelerators dealt over the sockets in blocks."""
    return Host(
        name=name,
        memory_bytes=64 << 30,
        cores=tuple(
            Core(socket=socket, index=index, numa=socket, cpus=(socket * cores + index,))
            for socket in range(sockets)
            for index in range(cores)
        ),
        accelerators=tuple(
            Accelerator(
                index=index, model="GPU", memory_bytes=16 << 30, socket=index * sockets // accelerators
            )
            for index in range(accelerators)
        ),
        cards=(
            NetworkCard(name="lo", addresses=("127.0.0.1",), loopback=True, mtu=65536),
            NetworkCard(name="eth0", addresses=(f"10.0.0.{name[-1]}",), speed_mbps=1000),
        ),
    )


def sites(count: int, **shape: int) -> tuple[HostSite, ...]:
    hosts = [machine(f"h{number}", **shape) for number in range(1, count + 1)]
    return tuple(
        HostSite(name=host.name, host=host, address=f"10.0.0.{host.name[-1]}", interface="eth0")
        for host in hosts
    )
