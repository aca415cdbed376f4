"""The store in which workers meet: on one address, and without the run's secret."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from weft.collectives.register import autoload
from weft.collectives.rendezvous import Handler, listen_at, serve_store, use_for_env

SHORT = timedelta(seconds=20)


def listening_addresses(port: int) -> set[str]:
    """Return the addresses, in the kernel's hexadecimal, on which somebody listens on a port."""
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    return {
        fields[1].partition(":")[0]
        for fields in lines
        if fields[1].endswith(f":{port:04X}") and fields[3] == "0A"
    }


def torchs(url: str, timeout: timedelta, **options: Any) -> Iterator[tuple[Any, int, int]]:
    yield url, -1, -1


def around() -> Handler:
    table: dict[str, Handler] = {"env": torchs}
    use_for_env(table)
    once = table["env"]
    use_for_env(table)
    assert table["env"] is once
    return once


def test_a_store_listens_on_its_address_alone() -> None:
    store = serve_store("127.0.0.1", 0, SHORT, wait_for_workers=False)
    assert listening_addresses(store.port) == {"0100007F"}
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_rank_0_serves_the_store_at_the_address_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }.items():
        monkeypatch.setenv(name, value)
    handler = around()
    first, rank, size = next(handler("env://", SHORT))
    assert (rank, size) == (0, 1)
    assert listening_addresses(port) == {"0100007F"}
    second, _, _ = next(handler("env://?rank=0&world_size=1", SHORT))  # a second world of the same process
    first.set("key", "value")
    assert second.get("key") == b"value"


def test_other_ranks_and_half_told_ones_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for url in ("env://", "env://?rank=1&world_size=2", "env://?rank=0&world_size=2"):
        assert next(around()(url, SHORT)) == (url, -1, -1)


@pytest.mark.parametrize("address", ["localhost", "192.0.2.7", "", "127.0.0.1/8"])
def test_an_address_that_is_not_ours_is_left_to_torch(address: str) -> None:
    assert listen_at(address, 0) is None


def test_a_worker_of_weft_run_has_it_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.rendezvous import _rendezvous_handlers

    monkeypatch.setitem(_rendezvous_handlers, "env", torchs)
    monkeypatch.delenv("WEFT_RUN_ID", raising=False)
    autoload()
    assert _rendezvous_handlers["env"] is torchs
    monkeypatch.setenv("WEFT_RUN_ID", "1")
    autoload()
    assert _rendezvous_handlers["env"] is not torchs
