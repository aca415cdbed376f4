"""The process of `weft up`: data folder, database, job service and web interface, until a signal ends it."""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
import uvloop

import weft
from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.accounts import tokens, users
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.accounts.users import Account
from weft.jobs.api.access import Authenticator
from weft.jobs.api.app import JobsApplication
from weft.jobs.api.door_access import door_access
from weft.jobs.api.headlines import Headlines
from weft.jobs.api.pages import Pages
from weft.jobs.api.state import ApiState
from weft.jobs.api.stream.hub import StreamHub
from weft.jobs.doors.mounts import routes
from weft.jobs.service.attempts.system_user import own_name, why_not
from weft.jobs.service.config import JobsAs, ServiceConfig
from weft.jobs.service.owners import open_ways
from weft.jobs.service.service import JobService
from weft.jobs.store.database import Database
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import token
from weft.jobs.upkeep.retention import RetentionPolicy
from weft.jobs.upkeep.sweep import sweeping
from weft.jobs.webhooks.sender import WebhookSender
from weft.serve.server.hosts import LoopbackHosts
from weft.serve.server.http.limits import ConnectionLimits
from weft.serve.server.http.listener import HttpListener, bind, shown_address
from weft.serve.server.options import is_loopback

DRAIN_S = 5.0
UPLOAD_S = 600.0  # for a request to arrive: 100 MiB over a slow line
_PART_BYTES = 1 << 20  # of an upload, handed on as it comes


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """The options of `weft up`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8765  # 0: any that is free
    database: str | None = None  # SQLite in the data folder if none is given
    tls_cert: Path | None = None
    tls_key: Path | None = None
    shared: bool = True  # users see each other's jobs
    allow_hosts: tuple[
        str, ...
    ] = ()  # names besides localhost that a service on a loopback address answers to
    insecure: bool = False  # other machines may connect without TLS
    private_webhooks: tuple[str, ...] = ()  # networks that webhooks may go to though they are private
    pages: Path | None = None  # the built console
    jobs_as: JobsAs | None = (
        None  # as whom jobs run; none: as their submitters if this is root, else as the service
    )
    keep_days: int | None = None  # after the end of a job; none: for ever
    keep_bytes: int | None = None  # of all jobs' files; none: without bound
    ready_file: Path | None = None

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert and --tls-key must be given together, got one of them")
        _ = self.retention  # which checks the bounds
        if not (is_loopback(self.host) or self.tls_cert or self.insecure):
            raise UsageError(
                f"passwords must not travel in clear to {self.host}, got no --tls-cert and --tls-key; give both, "
                "bind to 127.0.0.1, or say --insecure if TLS ends before this service or the network is trusted"
            )

    @property
    def retention(self) -> RetentionPolicy:
        return RetentionPolicy(days=self.keep_days, most_bytes=self.keep_bytes)


def run_service(options: ServiceOptions, tell: Callable[[str], None]) -> None:
    """Run the service until SIGTERM or SIGINT; running jobs go on after it."""
    options.data.mkdir(0o700, parents=True, exist_ok=True)
    with locked_data(options.data):
        # Neither a commit nor a snapshot of the code around it takes accounts and secrets along.
        (options.data / ".gitignore").write_text("*\n")
        address = options.database or f"sqlite:///{options.data.resolve()}/weft.db"
        listening = bind(options.host, options.port)
        try:
            database = Database.open(address)
            try:
                uvloop.run(_serve(options, database, listening, tell))
            finally:
                database.close()
        finally:
            listening.close()


@contextmanager
def locked_data(folder: Path) -> Iterator[None]:
    """Hold the data folder, which one service uses at a time."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"the data folder must be free, got {folder} that {_holder(folder)} uses; stop that, or say --data"
            ) from None
        yield
    finally:
        os.close(handle)


def _holder(folder: Path) -> str:
    try:
        found = json.loads((folder / "service.json").read_text())
        return f"the service at {found['url']} (process {found['pid']})"
    except (OSError, ValueError, KeyError):
        return "another service"


def choose_jobs_as(options: ServiceOptions) -> tuple[JobsAs, str]:
    """Return as whom jobs run, and a sentence about it; where nothing was said, root lets each run as its submitter."""
    folder, reached = options.data.resolve(), (sys.executable, weft.__file__)
    as_service = f"jobs run as {own_name()}, whoever submits them"
    if options.jobs_as is None and (reason := why_not()) is not None:
        return "service", f"{as_service}: this process may not become other users, {reason}"
    try:
        open_ways(options.jobs_as or "users", folder, *reached)
    except UsageError as error:
        if options.jobs_as is not None:
            raise
        return "service", f"{as_service}: {error}"
    if options.jobs_as == "service":
        return "service", as_service
    return "users", "jobs run as the system users of those who submit them; see weft user system"


@dataclass(frozen=True)
class RunningService:
    """A service that answers."""

    url: str
    state: ApiState
    token: str  # of the account that started it
    link: str


async def _serve(
    options: ServiceOptions, database: Database, listening: socket.socket, tell: Callable[[str], None]
) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, ending.set)
    jobs_as, about_jobs = choose_jobs_as(options)
    config = ServiceConfig(folder=options.data.resolve(), jobs_as=jobs_as)
    async with service_on(options, database, listening, config) as running:
        _write_private(options.data / "service.json", _description(options, running))
        if options.ready_file is not None:
            write_whole(options.ready_file, json.dumps({"url": running.url, "pid": os.getpid()}) + "\n")
        tell(f"weft is at {running.url}, its data in {options.data}")
        tell(f"log in once with {running.link}")
        tell(about_jobs)
        try:
            await ending.wait()
        finally:
            (options.data / "service.json").unlink(missing_ok=True)
    tell("ended; running jobs go on")


def _description(options: ServiceOptions, running: RunningService) -> str:
    ca = str(options.tls_cert.resolve()) if options.tls_cert is not None else None
    found = {"pid": os.getpid(), "url": running.url, "token": running.token, "ca": ca}
    return json.dumps(found) + "\n"


def _write_private(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


@asynccontextmanager
async def service_on(
    options: ServiceOptions,
    database: Database,
    listening: socket.socket,
    config: ServiceConfig | None = None,
) -> AsyncIterator[RunningService]:
    """Answer on a socket while the block runs."""
    url = _url(options, listening)
    service = JobService(config or ServiceConfig(folder=options.data.resolve()), database)
    service.variables.url = url
    sealer = Sealer(options.data / "secret.key")
    state = ApiState(
        jobs=service,
        authenticator=Authenticator(database, shared=options.shared),
        sealer=sealer,
        headlines=Headlines(database),
        hub=StreamHub(database, service.points),
        shared=options.shared,
        secure=options.tls_cert is not None,
        root_url=url,
        private_webhooks=options.private_webhooks,
    )
    hosts = LoopbackHosts(options.allow_hosts) if is_loopback(options.host) else None
    doors = routes(service, door_access(state.authenticator))
    app = JobsApplication(state, pages=Pages(options.pages), doors=doors, hosts=hosts)
    tls = (str(options.tls_cert), str(options.tls_key)) if options.tls_cert else None
    limits = ConnectionLimits(body_bytes=_PART_BYTES, ahead_bytes=_PART_BYTES, request_s=UPLOAD_S)
    listener = HttpListener(listening, app, limits, tls, web_sockets=True)
    account = await database.write(lambda c: first_user(c, account_name()))
    if service.config.jobs_as == "users" and account.system_user is None:
        # Who starts the service can run whatever its own user can.
        await database.write(lambda c: users.change_user(c, account.id, system_user=own_name()))
    local = f"service in {options.data.resolve()} on {socket.gethostname()}"[-100:]
    text, link = await database.write(lambda c: _start_tokens(c, account, local))
    sender = WebhookSender(database, sealer, root_url=url, allowed=options.private_webhooks)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(state.hub.running())
        await stack.enter_async_context(sender.running())
        await stack.enter_async_context(service.running())
        await stack.enter_async_context(sweeping(service, options.retention))
        await listener.start()
        try:
            yield RunningService(url, state, text, f"{url}/login#link={link}")
        finally:
            state.hub.close()
            await listener.drain(DRAIN_S)
            await state.headlines.close()
            with suppress(sa.exc.SQLAlchemyError):
                await database.write(lambda c: _forget(c, local))


def _url(options: ServiceOptions, listening: socket.socket) -> str:
    scheme = "https" if options.tls_cert else "http"
    shown = shown_address(listening)
    for anywhere in ("0.0.0.0", "[::]"):
        if shown.startswith(f"{anywhere}:"):
            shown = f"{socket.gethostname()}:{shown.rpartition(':')[2]}"
    return f"{scheme}://{shown}"


def account_name() -> str:
    """Return the name of the system user as a name of ours."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = ""
    return re.sub(r"[^A-Za-z0-9._@-]", "-", name).lstrip("._@-")[:100] or "admin"


def first_user(connection: sa.Connection, name: str) -> Account:
    """Return the administrator who starts the service: by that name, or any; where there is none, one is made."""
    known = users.list_users(connection)
    admins = [one for one in known if one.role == "admin" and not one.disabled]
    if admins:
        return next((one for one in admins if one.name == name), admins[0])
    named = next((one for one in known if one.name == name), None)
    if named is None:
        return users.add_user(connection, name, "admin")
    # Who can start the service on its data can change them, too.
    return users.change_user(connection, named.id, role="admin", disabled=False)


def _start_tokens(connection: sa.Connection, account: Account, name: str) -> tuple[str, str]:
    """Return the token for this machine's commands and the text of a login link, both new."""
    _forget(connection, name)
    tokens.remove_expired(connection)
    scopes = sorted(tokens.allowed_scopes(account.role))
    local = tokens.make_token(connection, account.id, name=name, scopes=scopes)
    until = now_ms() + tokens.LINK_MS
    link = tokens.make_token(
        connection, account.id, kind="link", name="login link", scopes=(), expires_ms=until
    )
    return local, link


def _forget(connection: sa.Connection, name: str) -> None:
    """Revoke the token for this machine's commands."""
    connection.execute(sa.delete(token).where(token.c.kind == "api", token.c.name == name))
