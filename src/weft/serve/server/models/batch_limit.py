"""The most rows that a run of a model may hold, decided when the model is loaded: one pure decision."""

from __future__ import annotations

from dataclasses import dataclass

from weft.serve.server.models.row_check import RowCheck
from weft.serve.server.options import ModelOptions

WORTH = 1.2  # times the rows/s of single rows that batches must give before they are made by default


@dataclass(frozen=True)
class BatchLimit:
    """The most rows in one run, and the reason, as the model's card, configuration and log show it."""

    rows: int
    reason: str


def may_batch(options: ModelOptions, *, free_rows: bool, is_torch: bool) -> bool:
    """Return whether batches come into question, so that rows are worth comparing."""
    return options.max_batch > 1 and free_rows and not (is_torch and options.adapts)


def batch_limit(
    options: ModelOptions, *, free_rows: bool, is_torch: bool, check: RowCheck | None, gain: float
) -> BatchLimit:
    """Decide from the options, the comparison of rows, and the gain in rows/s of a full batch.

    A torch module may hold any Python, of which drawn rows see only a part: it is batched only where somebody asks
    for batches, and no model is where its rows were seen to differ.
    """
    if options.max_batch == 1:
        return BatchLimit(1, "one row a run, as asked")
    if not free_rows:
        return BatchLimit(1, "the number of rows of an input or output is fixed")
    if is_torch and options.adapts:
        return BatchLimit(1, "a torch module is not batched unless --max-batch asks for it")
    assert check is not None
    if check.independent is False or (check.independent is None and options.adapts):
        return BatchLimit(1, check.reason)
    if options.adapts and gain < WORTH:
        return BatchLimit(1, f"batches would give {gain:.1f} times the rows/s")
    return BatchLimit(options.max_batch, check.reason)
