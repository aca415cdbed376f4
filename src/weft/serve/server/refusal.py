"""A request that is not carried out: the HTTP status, what gRPC calls it, and a sentence for the caller."""

from __future__ import annotations

from weft.errors import WeftError


class RefusalError(WeftError):
    """The caller gets `status` and `{"error": message}`; the server goes on."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class GoneError(RefusalError):
    """The client left; there is nobody to answer."""

    def __init__(self) -> None:
        super().__init__(499, "the client left before the answer")
