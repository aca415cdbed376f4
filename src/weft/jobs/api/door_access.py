"""The doors' callers: the same tokens, sessions and passwords as everywhere, in the doors' words."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from weft.jobs.api.access import Authenticator, Identity
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.doors.access import Authenticate, Caller, DoorError


def door_access(authenticator: Authenticator) -> Authenticate:
    """Return the function by which doors find out who asks."""

    async def authenticate(request: HTTPConnection) -> Caller:
        try:
            identity = await authenticator.identify(request)
            if request.scope.get("method", "GET") not in ("GET", "HEAD"):
                authenticator.check_csrf(request, identity)
        except ApiRefusal as refusal:
            raise DoorError("unauthenticated", str(refusal)) from None
        return _caller(identity)

    return authenticate


def _caller(identity: Identity) -> Caller:
    """Return an identity as doors know it; a token without the scope of writing is a viewer's there."""
    writes = "write" in identity.scopes or identity.job_id is not None
    role = identity.role if writes else "viewer"
    if role == "admin" and not identity.is_admin and identity.job_id is None:
        role = "member"
    sees_all = identity.shared or identity.is_admin
    return Caller(identity.user_id, identity.name, role, sees_all, identity.job_id)
