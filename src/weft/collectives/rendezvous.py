"""The store in which the workers of a run meet: torch's, listening on the address that the launcher chose alone.

torch's own store listens on all addresses of a host, whatever MASTER_ADDR says, and asks nobody who they are. The store
of a run on one machine listens on its loopback address, that of several hosts on the card that leads to the others.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from weft.collectives.torch_private import TCPStore

BACKLOG = 2048  # callers that may wait to be accepted; as torch has it
Handler = Callable[..., Iterator[tuple[Any, int, int]]]


def listen_at(address: str, port: int) -> socket.socket | None:
    """Listen on one address; None where that cannot be: for a name, an address of another host, a port in use."""
    with suppress(ValueError, OSError):
        # A name may mean 127.0.1.1 here and another address elsewhere.
        family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    return None


def serve_store(
    address: str,
    port: int,
    timeout: timedelta,
    *,
    world_size: int | None = None,
    wait_for_workers: bool = True,
    shared: bool = False,
) -> TCPStore:
    """Make the store that this process serves, on this address alone where that can be; port 0 picks one.

    `shared`: a store that this process serves on the port already is taken.
    """
    from weft.collectives.torch_private import TCPStore

    listener = listen_at(address, port)
    return TCPStore(
        address,
        listener.getsockname()[1] if listener else port,
        world_size,
        is_master=True,
        timeout=timeout,
        wait_for_workers=wait_for_workers,
        multi_tenant=shared,
        master_listen_fd=listener.detach() if listener else None,
    )


def use_for_env(handlers: MutableMapping[str, Handler], name: str = "env") -> None:
    """Have `init_process_group` serve its store so, in a table of torch's handlers; the second time changes nothing."""
    torchs = handlers[name]
    if getattr(torchs, "__module__", "") != __name__:
        handlers[name] = _handler_around(torchs)


def _handler_around(torchs: Handler) -> Handler:
    def handler(url: str, timeout: timedelta | None = None, **options: Any) -> Iterator[tuple[Any, int, int]]:
        if timeout is None:  # a script that calls `rendezvous` itself need not give one
            from torch.distributed.constants import default_pg_timeout

            timeout = default_pg_timeout
        query = dict(parse_qsl(urlsplit(url).query))
        rank, size = (
            query.get("rank") or os.environ.get("RANK"),
            query.get("world_size") or os.environ.get("WORLD_SIZE"),
        )
        address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
        if rank != "0" or not (size and address and port):
            yield from torchs(url, timeout, **options)
            return
        store = serve_store(address, int(port), timeout, world_size=int(size), shared=True)
        yield store, 0, int(size)
        raise RuntimeError("a rendezvous by env:// can be used once")

    return handler
