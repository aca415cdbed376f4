"""The address of a service and the token for it: from arguments, the environment, this machine, or a login.

    Client("https://gpu1:8765")     the token of `weft login https://gpu1:8765`, or WEFT_TOKEN
    Client()                        WEFT_URL; else the service that runs on this machine; else the last login

`weft up` leaves service.json in its data folder, which only the user who started it can read. KeptLogins are kept in
credentials.json, which nobody else may read either.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from weft.errors import ConnectError, UsageError
from weft.files import data_folder, locked

URL_VARIABLE, TOKEN_VARIABLE, HOME_VARIABLE = "WEFT_URL", "WEFT_TOKEN", "WEFT_HOME"
SERVICE_FILE = "service.json"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServiceAddress:
    """A service to talk to; a token that is None asks for nothing but public pages."""

    url: str
    token: str | None = None
    ca: Path | None = None  # the certificates to trust, where they are not those of the system
    home: Path | None = None  # the data folder of a service on this machine, by which it was found

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.url).hostname in LOOPBACK

    def renewed(self) -> ServiceAddress:
        """Return where the service of this machine is now: started again, it has another token and maybe port."""
        found = local_service(self.home) if self.home is not None else None
        return self if found is None else _local_address(found, self.home)


class LocalService(msgspec.Struct, frozen=True):
    """The content of service.json: the service that runs with one data folder."""

    pid: int
    url: str
    token: str | None = None
    ca: str | None = None


class KeptLogin(msgspec.Struct, frozen=True):
    """One service to which the user has logged in."""

    token: str
    user: str = ""
    ca: str | None = None


class KeptLogins(msgspec.Struct, frozen=True):
    """The content of credentials.json."""

    default: str | None = None  # the URL of the last login
    services: dict[str, KeptLogin] = {}


class ServiceMissingError(ConnectError):
    """No service is there, or none is known."""


def default_data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the data folder of `weft up`: WEFT_HOME, else weft in the user's folder for data."""
    if given := environment.get(HOME_VARIABLE):
        return Path(given)
    return data_folder(environment)


def credentials_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where logins are kept."""
    return Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "weft" / "credentials.json"


def plain_url(given: str) -> str:
    """Return a URL in the form by which logins are kept: with a scheme, without a slash at the end."""
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("http", "https") or parts.username or not given.isprintable():
        raise UsageError(
            f"a service's URL must look like http://host:8765, got {given!r}; write it like that"
        )
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def find_service(
    url: str | None = None, token: str | None = None, environment: Mapping[str, str] = os.environ
) -> ServiceAddress:
    """Return the service that is meant, and the token that is known for it."""
    named = environment.get(URL_VARIABLE)
    given = url or named
    if given is None:
        return _unnamed(token, environment)
    chosen = plain_url(given)
    # A token in the environment is for the service that the environment names, not for any that is typed.
    for_it = url is None or named is None or plain_url(named) == chosen
    token = token or (environment.get(TOKEN_VARIABLE) if for_it else None)
    known = _known(chosen, environment)
    return ServiceAddress(chosen, token or (known.token if known else None), known.ca if known else None)


def _unnamed(token: str | None, environment: Mapping[str, str]) -> ServiceAddress:
    token = token or environment.get(TOKEN_VARIABLE)
    local = local_service(default_data_folder(environment))
    if local is not None:
        return _local_address(local, default_data_folder(environment), token)
    logins = read_logins(credentials_path(environment))
    if logins.default is not None and (login := logins.services.get(logins.default)) is not None:
        return ServiceAddress(logins.default, token or login.token, Path(login.ca) if login.ca else None)
    raise ServiceMissingError(
        "a jobs service must run on this machine or be named, got none; start one with `weft up`, "
        "or write `weft login URL`"
    )


def _known(url: str, environment: Mapping[str, str]) -> ServiceAddress | None:
    """Return what logins or this machine's service know of a URL."""
    local = local_service(default_data_folder(environment))
    if local is not None and plain_url(local.url) == url:
        return _local_address(local, None)
    login = read_logins(credentials_path(environment)).services.get(url)
    return ServiceAddress(url, login.token, Path(login.ca) if login.ca else None) if login else None


def _local_address(local: LocalService, home: Path | None, token: str | None = None) -> ServiceAddress:
    """Return the address of this machine's service; with a token of the caller's own it is not looked for again."""
    ca = Path(local.ca) if local.ca else None
    return ServiceAddress(plain_url(local.url), token or local.token, ca, None if token else home)


def local_service(folder: Path) -> LocalService | None:
    """Return the service that runs with a data folder; None if there is none, or it is another user's."""
    try:
        found = msgspec.json.decode((folder / SERVICE_FILE).read_bytes(), type=LocalService)
        os.kill(found.pid, 0)
    except (OSError, ValueError, msgspec.MsgspecError, OverflowError):
        return None
    return found


def read_logins(path: Path) -> KeptLogins:
    """Return the logins that are kept; a file that others may read is refused, as its tokens are known to them."""
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read()
    except FileNotFoundError:
        return KeptLogins()
    if mode & 0o077:
        raise UsageError(
            f"{path} must be readable by you alone, got mode {mode & 0o777:o}; write chmod 600 {path}, and log in again"
        )
    try:
        return msgspec.json.decode(data, type=KeptLogins)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} must hold logins, got: {error}; remove it, and log in again") from None


def keep_login(path: Path, url: str, login: KeptLogin | None) -> None:
    """Keep a login and make it the default; None forgets the login of that URL."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with locked(path.with_name(f".{path.name}.lock")):
        before = read_logins(path)
        services = {name: one for name, one in before.services.items() if name != url}
        default = None if before.default == url else before.default
        if login is not None:
            services[url], default = login, url
        _write_private(path, msgspec.json.format(msgspec.json.encode(KeptLogins(default, services))))


def _write_private(path: Path, data: bytes) -> None:
    """Replace a file by one that nobody else can read at any moment."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as opened:
            opened.write(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
