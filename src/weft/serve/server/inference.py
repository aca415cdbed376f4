"""Inference on a loaded model, the same for every protocol: run, copied to a shadow, counted, given up with its client.

Each protocol reads the tensors of a request inside `Counted`, awaits `run_model`, and writes the outputs.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from types import TracebackType

from starlette.types import Receive

from weft.serve.server.models.model import Model
from weft.serve.server.models.queue import Feeds
from weft.serve.server.models.repository import Repository
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.refusal import GoneError, RefusalError


class Counted:
    """A context that counts one request to a model: the time of an answer, or the status of a refusal.

    An exception of the model itself becomes a refusal with status 500, so that the caller learns the reason.
    """

    __slots__ = ("_began", "_model")

    def __init__(self, model: Model, began: float) -> None:
        self._model = model
        self._began = began  # by perf_counter

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        model, took = self._model, perf_counter() - self._began
        if error is None:
            model.tally.answered(took)
        elif isinstance(error, RefusalError):
            model.tally.failed(error.status, took)
        elif isinstance(error, asyncio.CancelledError):  # the client left
            model.tally.failed(GoneError.STATUS, took)
        elif isinstance(error, Exception):
            model.tally.failed(500, took)
            raise RefusalError(500, f"model {model.name!r} failed: {error}") from error


async def run_model(
    repository: Repository,
    model: Model,
    feeds: Feeds,
    receive: Receive | None = None,
    timeout_s: float | None = None,
) -> list[Array]:
    """Return the outputs of a model in its order, and give the model's shadow a copy of the inputs.

    With `receive`, the request is given up when its client disconnects.
    """
    started = model.start(feeds, timeout_s)
    if (shadow := repository.shadow(model)) is not None:
        mirror(shadow, feeds)
    if isinstance(started, list):
        return started
    with model.held():
        return await (started if receive is None else until_gone(started, receive))


async def outputs_by_name(
    repository: Repository, model: Model, feeds: Feeds, receive: Receive
) -> dict[str, Array]:
    """Run a model for a request whose tensors have been read, counted, and return the outputs by name."""
    with Counted(model, perf_counter()):
        outputs = await run_model(repository, model, feeds, receive)
    return dict(zip(model.output_names, outputs, strict=True))


async def until_gone(future: asyncio.Future[list[Array]], receive: Receive) -> list[Array]:
    """Await a result; if the client disconnects first, cancel it and raise GoneError."""
    gone = asyncio.ensure_future(receive())  # after the body, the only message left is the disconnect
    gone.add_done_callback(lambda _: future.cancel())
    try:
        return await future
    except asyncio.CancelledError:
        if gone.done():
            raise GoneError from None
        raise
    finally:
        gone.cancel()


def mirror(shadow: Model, feeds: Feeds) -> None:
    """Run a shadow on a copy of a request. Nobody waits for the outputs; a full queue drops the copy."""
    began = perf_counter()
    try:
        started = shadow.start(feeds)
    except Exception:
        shadow.tally.failed(500, 0.0)
        return
    if isinstance(started, list):
        shadow.tally.answered(perf_counter() - began)
    else:
        started.add_done_callback(lambda done: _mirrored(shadow, done, began))


def _mirrored(shadow: Model, done: asyncio.Future[list[Array]], began: float) -> None:
    took = perf_counter() - began
    if done.cancelled() or done.exception() is not None:
        shadow.tally.failed(500, took)
    else:
        shadow.tally.answered(took)
