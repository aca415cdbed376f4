"""Failures as answers: every error becomes a status, a code for programs and a sentence for people."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError, WeftError
from weft.jobs.accounts.users import AccountConflictError
from weft.jobs.api.types.common import ApiError, ErrorDetail, RequestProblem
from weft.jobs.data.datasets import DatasetNotFound
from weft.jobs.data.deployments import DeploymentNotFound
from weft.jobs.lifecycle import StateError
from weft.jobs.service.owners import SubmitterError
from weft.jobs.spec.read import SpecError
from weft.jobs.store.hosts import HostNotFound
from weft.jobs.store.jobs import JobNotFound
from weft.jobs.studies.store import StudyNotFound
from weft.serve.server.refusal import RefusalError
from weft.vision.refusals import PicturesConflictError, PicturesForbiddenError, PicturesNotFoundError

_CODES = {
    400: "bad-request",
    401: "not-logged-in",
    403: "forbidden",
    404: "not-found",
    405: "wrong-method",
    408: "too-slow",
    409: "conflict",
    413: "too-large",
    415: "wrong-type",
    421: "wrong-host",
    422: "invalid",
    429: "too-many",
    503: "not-ready",
}


class ApiRefusal(WeftError):  # noqa: N818 (an answer, not a mistake of ours)
    """A request that is refused with a status and a sentence."""

    def __init__(
        self,
        status: int,
        text: str,
        *,
        code: str | None = None,
        problems: tuple[RequestProblem, ...] = (),
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s
        self.answer = ApiError(ErrorDetail(code or _CODES.get(status, "failed"), text, problems))

    def body(self) -> bytes:
        return msgspec.json.encode(self.answer)


def not_found(what: str) -> ApiRefusal:
    """Return the refusal of something that is not there, or not for this caller."""
    return ApiRefusal(404, f"{what} must exist, got none that you may see")


def as_refusal(error: Exception) -> ApiRefusal | None:
    """Return the refusal that an error means; None: a fault of ours."""
    match error:
        case ApiRefusal():
            return error
        case RefusalError():
            return ApiRefusal(error.status, str(error), retry_after_s=error.retry_after_s)
        case SpecError():
            problems = tuple(RequestProblem(one.path, one.must, one.got, one.next) for one in error.problems)
            return ApiRefusal(422, str(error), code="bad-spec", problems=problems)
        case JobNotFound() | HostNotFound() | DatasetNotFound() | DeploymentNotFound() | StudyNotFound():
            return ApiRefusal(404, str(error))
        case SubmitterError():
            return ApiRefusal(403, str(error), code="may-not-submit")
        case StateError():
            return ApiRefusal(409, str(error), code="wrong-state")
        case AccountConflictError():
            return ApiRefusal(409, str(error))
        case PicturesNotFoundError():
            return ApiRefusal(404, str(error))
        case PicturesForbiddenError():
            return ApiRefusal(403, str(error))
        case PicturesConflictError():
            return ApiRefusal(409, str(error))
        case UsageError():
            return ApiRefusal(422, str(error))
        case sa.exc.OperationalError() | sa.exc.TimeoutError():
            return ApiRefusal(
                503, f"the database must work, got {_reason(error)}; try again", code="database"
            )
    return None


def _reason(error: sa.exc.SQLAlchemyError) -> str:
    text = str(getattr(error, "orig", None) or error).strip().splitlines()
    return text[0] if text else type(error).__name__
