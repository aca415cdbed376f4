"""The store in which members of a view meet: values reach all, strangers reach none, and nobody waits in vain."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from weft.collectives.groups import roll
from weft.elastic.worker.view_store import ViewStore, ViewStoreServer
from weft.errors import CollectiveError, ConnectError, PeerError

SECRET = "secret"


@pytest.fixture
def server() -> Iterator[ViewStoreServer]:
    served = ViewStoreServer("127.0.0.1", SECRET)
    yield served
    served.close()


def connect(server: ViewStoreServer, in_vain: Callable[[], bool] = lambda: False) -> ViewStore:
    return ViewStore("127.0.0.1", server.port, SECRET, in_vain)


def test_what_one_member_sets_another_gets_also_through_torch(server: ViewStoreServer) -> None:
    one, other = connect(server), connect(server)
    mine, theirs = PrefixStore("view/3", one), PrefixStore("view/3", other)
    mine.set("name", "a\nb")
    assert theirs.get("name") == b"a\nb"
    assert (mine.add("count", 2), theirs.add("count", -1)) == (2, 1)
    assert [theirs.check(["name"]), theirs.check(["name", "age"])] == [True, False]
    assert [theirs.delete_key("name"), theirs.delete_key("name"), mine.check(["name"])] == [
        True,
        False,
        False,
    ]
    one.close()
    other.close()


def test_a_value_is_awaited_for_as_long_as_the_caller_has_patience(server: ViewStoreServer) -> None:
    one, other = connect(server), connect(server)
    threading.Timer(0.2, other.set, ("late", "here")).start()
    assert one.get("late") == b"here"
    one.set_timeout(timedelta(seconds=0.05))
    with pytest.raises(CollectiveError, match="'never' must be set within"):
        one.get("never")
    one.close()
    other.close()


def test_gloo_meets_in_it(server: ViewStoreServer) -> None:
    stores = [connect(server) for _ in range(2)]
    sums = [torch.full((3,), float(rank)) for rank in range(2)]

    def take_part(rank: int) -> None:
        group: Any = dist.ProcessGroupGloo(PrefixStore("g", stores[rank]), rank, 2, timedelta(seconds=20))
        group.allreduce([sums[rank]]).wait()

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(sums[0], torch.ones(3))
    assert torch.equal(sums[0], sums[1])
    for store in stores:
        store.close()


def test_a_stranger_reads_nothing(server: ViewStoreServer) -> None:
    store = connect(server)
    store.set("key", "value")
    store.close()
    with pytest.raises((ConnectError, ConnectionError)):
        ViewStore("127.0.0.1", server.port, "another secret", lambda: False)
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(b'{"do":"get","key":"key"}\n' * 4)
        stranger.settimeout(20)
        answer = b""
        with suppress(ConnectionResetError):  # what the server did not read is lost with the connection
            while piece := stranger.recv(1000):
                answer += piece
    assert b"value" not in answer


def test_who_waits_in_vain_gives_up_at_once(server: ViewStoreServer) -> None:
    lost = threading.Event()
    store = connect(server, lost.is_set)
    store.set_timeout(timedelta(seconds=300))
    threading.Timer(0.1, lost.set).start()
    with pytest.raises(CollectiveError, match="a member was lost"):
        store.get("never")
    store.close()


def test_who_asks_a_first_member_that_is_silent_gives_up_too() -> None:
    """A host whose cable is cut says nothing: only the agents can tell that it is lost."""
    lost = threading.Event()
    real = ViewStoreServer("127.0.0.1", SECRET)
    store = connect(real, lost.is_set)
    real._carry_out = lambda request: time.sleep(1.0) or None  # type: ignore[method-assign,assignment,func-returns-value,return-value]
    threading.Timer(0.1, lost.set).start()
    with pytest.raises(CollectiveError, match="a member was lost"):
        store.check(["key"])
    store.close()
    real.close()


def test_what_is_made_in_vain_is_given_up_and_discarded_when_it_is_there() -> None:
    lost, go_on, discarded = threading.Event(), threading.Event(), threading.Event()

    def make() -> str:
        go_on.wait(60)  # as in C++: nothing interrupts it
        return "made"

    with roll.interruptible(lost.is_set):
        lost.set()
        with pytest.raises(PeerError, match="a member was lost"):
            roll.unless_in_vain(make, discard=lambda made: discarded.set())
    go_on.set()
    assert discarded.wait(60)


def test_what_is_made_in_time_is_returned_and_its_errors_are_raised() -> None:
    def fail() -> str:
        raise CollectiveError("no")

    with roll.interruptible(lambda: False):
        assert roll.unless_in_vain(lambda: "made", discard=lambda made: None) == "made"
        with pytest.raises(CollectiveError, match="no"):
            roll.unless_in_vain(fail, discard=lambda made: None)
