"""Users, sessions, tokens, secrets, webhooks and the audit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from weft.documents import Document
from weft.jobs.api.types.common import Id, PageQuery, Role, Text, UserName
from weft.jobs.spec.model import JobEvent, VariableName

Password = Annotated[str, Meta(min_length=8, max_length=1000)]
SystemName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?$")]
Scope = Literal["read", "write", "admin"]
Days = Annotated[int, Meta(ge=1, le=3650)]


Most = Annotated[float, Meta(ge=0, le=1e18)]


class UserQuota(Document, frozen=True):
    """The weight of a user in the fair share, and the most that their jobs may hold at a time; null: no limit."""

    weight: Annotated[float, Meta(ge=0.001, le=1000)] = 1.0
    cpus: Most | None = None
    memory_bytes: Most | None = None
    gpus: Most | None = None


class UserView(msgspec.Struct, frozen=True):
    """One user."""

    id: int
    name: str
    role: Role
    disabled: bool
    has_password: bool
    created_ms: int
    system_user: str | None = None  # as whom their jobs run; null: as the service
    quota: UserQuota = UserQuota()
    usage: float = 0.0  # share of the cluster that they held lately; older use counts less


class UsersAnswer(msgspec.Struct, frozen=True):
    """All users."""

    users: tuple[UserView, ...]


class NewUser(Document, frozen=True):
    """A user to be made; without a password, one who logs in by a link."""

    name: UserName
    role: Role = "member"
    password: Password | None = None
    system_user: SystemName | None = None


class UserChanges(Document, frozen=True):
    """Changes to a user; what is left out stays. Users may change their own password alone."""

    role: Role | UnsetType = UNSET
    password: Password | UnsetType | None = UNSET
    old_password: Annotated[str, Meta(max_length=1000)] | None = None  # needed for one's own password
    disabled: bool | UnsetType = UNSET
    system_user: SystemName | UnsetType | None = UNSET


class LinkAnswer(msgspec.Struct, frozen=True):
    """A link that logs in once."""

    url: str
    expires_ms: int


class Login(Document, frozen=True):
    """A name and a password, or the text of a link."""

    name: Annotated[str, Meta(max_length=100)] | None = None
    password: Annotated[str, Meta(max_length=1000)] | None = None
    link: Annotated[str, Meta(max_length=200)] | None = None


class SessionUser(msgspec.Struct, frozen=True):
    """The user who is logged in."""

    id: int
    name: str
    role: Role


class SessionAnswer(msgspec.Struct, frozen=True):
    """The user who is logged in, and the value that writes with the cookie must send as X-Weft-CSRF."""

    user: SessionUser
    csrf: str | None  # null where a token is used
    version: str
    shared: bool  # users see each other's jobs
    scopes: tuple[str, ...]


class TokenView(msgspec.Struct, frozen=True):
    """One token, without its text."""

    id: int
    name: str
    scopes: tuple[str, ...]
    created_ms: int
    used_ms: int | None
    expires_ms: int | None


class TokensAnswer(msgspec.Struct, frozen=True):
    """The caller's tokens."""

    tokens: tuple[TokenView, ...]


class NewToken(Document, frozen=True):
    """A token to be made."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: tuple[Scope, ...] = ("read", "write")
    days: Days | None = 90  # until it expires; null: never


class NewTokenAnswer(msgspec.Struct, frozen=True):
    """A token with its text, which is shown this once."""

    token: TokenView
    text: str


class SecretView(msgspec.Struct, frozen=True):
    """The name of a secret; its value is never answered."""

    name: str
    created_ms: int


class SecretsAnswer(msgspec.Struct, frozen=True):
    """The caller's secrets."""

    secrets: tuple[SecretView, ...]


class NewSecret(Document, frozen=True):
    """A value that the caller's jobs may have in an environment variable."""

    name: VariableName
    value: Annotated[str, Meta(min_length=1, max_length=64_000)]


class NewWebhook(Document, frozen=True):
    """An address to which events are sent."""

    url: Annotated[str, Meta(max_length=2000)]
    events: tuple[JobEvent, ...] = ("completed", "failed")
    project: Text | None = None  # of all projects if none is named


class WebhookChanges(Document, frozen=True):
    """Changes to a webhook."""

    events: tuple[JobEvent, ...] | UnsetType = UNSET
    active: bool | UnsetType = UNSET


class WebhookView(msgspec.Struct, frozen=True):
    """One webhook."""

    id: int
    url: str
    events: tuple[str, ...]
    project: str | None
    active: bool
    created_ms: int


class WebhooksAnswer(msgspec.Struct, frozen=True):
    """The caller's webhooks, and the key that signs messages to addresses in the caller's specifications."""

    webhooks: tuple[WebhookView, ...]
    notify_key: str


class NewWebhookAnswer(msgspec.Struct, frozen=True):
    """A webhook with the key that signs what is sent to it, shown this once."""

    webhook: WebhookView
    key: str


class DeliveryView(msgspec.Struct, frozen=True):
    """One message to a webhook."""

    id: int
    webhook_id: int | None
    url: str
    event: str
    job: int | None
    state: Literal["waiting", "delivered", "failed"]
    tries: int
    status: int | None  # of the last answer
    message: str | None
    created_ms: int
    next_ms: int | None


class DeliveriesAnswer(msgspec.Struct, frozen=True):
    """The newest deliveries."""

    deliveries: tuple[DeliveryView, ...]


class AuditQuery(PageQuery, frozen=True):
    """Conditions on the entries of the audit."""

    user: Text | None = None
    action: Text | None = None


class AuditEntry(msgspec.Struct, frozen=True):
    """One action of a user."""

    id: int
    time_ms: int
    user: str
    action: str
    target: str
    detail: dict[str, Any]


class AuditAnswer(msgspec.Struct, frozen=True):
    """One page of the audit, newest first."""

    entries: tuple[AuditEntry, ...]
    next: str | None


class StreamQuery(Document, frozen=True):
    """Topics of the stream: jobs, hosts, job:7, job:7:metrics."""

    topics: Annotated[str, Meta(max_length=4000)] = "jobs"
    after: Id | None = None  # the last event that was seen; the header Last-Event-ID counts more
