"""Refusals: a request that is not carried out is answered with an HTTP status and a sentence for the caller."""

from __future__ import annotations

from weft.errors import WeftError


class RefusalError(WeftError):
    """A request that is refused: the caller gets `status` and `{"error": message}`, and the server goes on."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class GoneError(RefusalError):
    """A request whose client disconnected before the answer: none is sent."""

    STATUS = 499  # the number that nginx logs for it

    def __init__(self) -> None:
        super().__init__(self.STATUS, "the client left before the answer")
