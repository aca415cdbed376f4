"""State from peers: in slices from several at once, whole or not at all, and only for who knows the secret."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch._dynamo  # an optimizer loads it, and it sets a variable

from weft.elastic.replica import state, state_transfer
from weft.elastic.replica.state_transfer import StateServer, StateSource, fetch
from weft.errors import ConnectError, UsageError


def registered(seed: int) -> dict[str, object]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.BatchNorm1d(30), torch.nn.Linear(30, 2))
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(seed):
        model(torch.randn(8, 40)).sum().backward()
        optimizer.step()
        schedule.step()
    return {"model": model, "optimizer": optimizer, "schedule": schedule}


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_transfer, "SLICE_BYTES", 1000)


@contextmanager
def serving(*servers: StateServer) -> Iterator[list[StateSource]]:
    try:
        yield [
            StateSource(f"source {index}", "127.0.0.1", server.port) for index, server in enumerate(servers)
        ]
    finally:
        for server in servers:
            server.close()


def test_a_newcomer_gets_everything_from_several_sources() -> None:
    ours, theirs = registered(1), registered(3)
    servers = [StateServer("127.0.0.1", "secret") for _ in range(3)]
    for server in servers:
        server.publish(7, state.image_of(theirs, {"position": (3, 0, 48)}))
    with serving(*servers) as sources:
        healed = fetch(7, sources, "secret")
    assert state.load(healed.image, ours) == {"position": (3, 0, 48)}
    for name in ("model", "optimizer", "schedule"):
        assert str(ours[name].state_dict()) == str(theirs[name].state_dict())  # type: ignore[attr-defined]
    assert set(healed.sources) <= {"source 0", "source 1", "source 2"}


def test_a_settled_image_does_not_change_while_gradients_are_computed() -> None:
    theirs = registered(1)
    model = theirs["model"]
    assert isinstance(model, torch.nn.Module)
    image = state.image_of(theirs, settled=True)
    before = [tensor.clone() for tensor in image.tensors]
    model(torch.randn(8, 40)).sum().backward()
    assert all(map(torch.equal, image.tensors, before))
    assert not all(map(torch.equal, state.image_of(theirs).tensors, before)), "the buffers have changed"
    shared = {tensor.data_ptr() for tensor in image.tensors}
    assert shared >= {parameter.data_ptr() for parameter in model.parameters()}, "parameters are not copied"


def test_a_source_that_is_gone_costs_nothing() -> None:
    theirs = registered(2)
    living, dead = StateServer("127.0.0.1", "secret"), StateServer("127.0.0.1", "secret")
    living.publish(1, state.image_of(theirs))
    with serving(living, dead) as sources:
        dead.close()
        healed = fetch(1, sources, "secret", patience_s=2.0)
    assert healed.sources == ("source 0",)
    assert all(map(torch.equal, healed.image.tensors, state.image_of(theirs).tensors))


def test_without_any_source_it_is_told() -> None:
    server = StateServer("127.0.0.1", "secret")
    with serving(server) as sources:
        server.close()
        with pytest.raises(ConnectError, match="must be there to heal from"):
            fetch(1, sources, "secret")


def test_a_source_that_falls_silent_is_left_as_soon_as_it_is_known_to_be_lost() -> None:
    lost = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = StateSource("silent", "127.0.0.1", silent.getsockname()[1])
        threading.Timer(0.1, lost.set).start()
        with pytest.raises(ConnectError, match="a member was lost while the state came"):
            fetch(1, [source], "secret", cancelled=lost.is_set, patience_s=300.0)


def test_who_does_not_know_the_secret_gets_nothing() -> None:
    server = StateServer("127.0.0.1", "secret")
    server.publish(1, state.image_of(registered(1)))
    with serving(server) as sources, pytest.raises(ConnectError):
        fetch(1, sources, "another", patience_s=1.0)


def test_a_server_that_does_not_know_the_secret_is_not_believed() -> None:
    """What it sends would be unpickled."""
    listener = socket.create_server(("127.0.0.1", 0))

    def pretend() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(16)
            connection.sendall(bytes(48))

    thread = threading.Thread(target=pretend)
    thread.start()
    with listener, pytest.raises(ConnectError, match="must be there"):
        fetch(1, [StateSource("liar", "127.0.0.1", listener.getsockname()[1])], "secret", patience_s=1.0)
    thread.join()


def test_what_has_no_state_cannot_be_registered() -> None:
    with pytest.raises(UsageError, match="meter of type int without state_dict and load_state_dict"):
        state.check({"meter": 3})


def test_the_state_of_another_script_is_refused() -> None:
    theirs = registered(1)
    image = state.image_of({"net": theirs["model"]})
    with pytest.raises(UsageError, match="got net for model, optimizer, schedule"):
        state.load(image, theirs)


def test_a_schema_tells_models_apart() -> None:
    assert state.schema(registered(1)) == state.schema(registered(2))
    assert state.schema(registered(1)) != state.schema({"model": torch.nn.Linear(2, 2)})
