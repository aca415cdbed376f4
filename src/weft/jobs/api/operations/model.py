"""One operation of the API as data: its path, its request, its answer, and who may ask."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from weft.jobs.api.types.common import NoQuery

PREFIX = "/api/v1"
# Who may call: anybody; who may see; who may submit and act; administrators.
Access = Literal["open", "read", "write", "admin"]
Method = Literal["get", "post", "put", "patch", "delete"]


@dataclass(frozen=True, kw_only=True)
class ApiOperation:
    """One method of one path."""

    name: str  # of its handler, and of the function in generated clients
    method: Method
    path: str  # below PREFIX; parts in braces are parameters: {job:int}, {path:path}
    summary: str
    access: Access = "read"
    answer: Any = None  # the type of its JSON; None: no body
    body: Any = None
    query: type = NoQuery
    status: int = 200
    media_type: str = "application/json"  # of the answer
    body_media_type: str = "application/json"
    audit: str | None = (
        None  # the word for it in the audit; None: the service writes its own, or it changes nothing
    )
    once: bool = False  # takes an Idempotency-Key
    job_scope: bool = False  # a token of one job may call it for that job

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Names and kinds of the parameters in the path."""
        return tuple((name, kind or "str") for name, kind in re.findall(r"{(\w+)(?::(\w+))?}", self.path))

    @property
    def plain_path(self) -> str:
        """The path as OpenAPI writes it."""
        return PREFIX + re.sub(r"{(\w+):\w+}", r"{\1}", self.path)


def get_operation(name: str, path: str, summary: str, answer: Any, **more: Any) -> ApiOperation:
    return ApiOperation(name=name, method="get", path=path, summary=summary, answer=answer, **more)


def post_operation(
    name: str, path: str, summary: str, answer: Any = None, body: Any = None, **more: Any
) -> ApiOperation:
    settings: dict[str, Any] = {"access": "write", "status": 201 if answer is not None else 204, **more}
    return ApiOperation(
        name=name, method="post", path=path, summary=summary, answer=answer, body=body, **settings
    )


def patch_operation(name: str, path: str, summary: str, answer: Any, body: Any, **more: Any) -> ApiOperation:
    settings: dict[str, Any] = {"access": "write", **more}
    return ApiOperation(
        name=name, method="patch", path=path, summary=summary, answer=answer, body=body, **settings
    )


def delete_operation(name: str, path: str, summary: str, **more: Any) -> ApiOperation:
    settings: dict[str, Any] = {"access": "write", "status": 204, **more}
    return ApiOperation(name=name, method="delete", path=path, summary=summary, **settings)
