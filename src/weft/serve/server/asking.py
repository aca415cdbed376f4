"""A request of any door but the quick one: counted, copied to a shadow, given up when the client leaves."""

from __future__ import annotations

from time import perf_counter

from weft.serve.server.door import mirror, until_gone
from weft.serve.server.models.model import Model
from weft.serve.server.models.queue import Feeds
from weft.serve.server.models.repository import Repository
from weft.serve.server.protocols.bodies import Receive
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.refusal import RefusalError


async def ask(
    repository: Repository, model: Model, feeds: Feeds, receive: Receive, timeout_s: float | None = None
) -> dict[str, Array]:
    """The model's outputs by name."""
    began = perf_counter()
    try:
        with model.held():
            found = model.start(feeds, timeout_s)
            if (other := repository.shadow(model)) is not None:
                mirror(other, feeds)
            results = found if isinstance(found, list) else await until_gone(found, receive)
    except RefusalError as refusal:
        model.tally.failed(refusal.status, perf_counter() - began)
        raise
    except Exception as error:  # the model's own failure
        model.tally.failed(500, perf_counter() - began)
        raise RefusalError(500, f"model {model.name!r} failed: {error}") from error
    model.answered(began)
    return dict(zip(model.output_names, results, strict=True))
