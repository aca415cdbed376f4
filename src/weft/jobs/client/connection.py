"""A connection to the service: requests, typed answers, and errors in the words of the service."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import httpx
import msgspec

from weft.errors import UsageError, WeftError
from weft.jobs.client.address import ServiceAddress, ServiceMissingError
from weft.jobs.spec.read import SpecProblem
from weft.version import __version__

T = TypeVar("T")
API = "/api/v1"
TIMEOUT_S = 60.0  # for the service to answer
CONNECT_S = 10.0
UNAUTHORIZED = 401
RETRY_S = 0.5  # before a request is made again
BEAT_S = 15.0  # between the beats of a stream
Query = Mapping[str, Any]


class ServiceError(WeftError):
    """A request that the service refused or failed to answer."""

    def __init__(
        self, status: int, message: str, code: str = "", problems: tuple[SpecProblem, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.problems = status, code, problems
        self.exit_code = 2 if 400 <= status < 500 else 1


class _ErrorBody(msgspec.Struct):
    """The inside of an error's answer."""

    code: str = ""
    text: str = ""
    problems: list[dict[str, Any]] | None = None


class _ErrorAnswer(msgspec.Struct):
    """The answer of the service to a request that it refuses."""

    error: _ErrorBody


class ServiceConnection:
    """Requests to one service. Threads may share it."""

    def __init__(self, address: ServiceAddress, *, timeout_s: float = TIMEOUT_S) -> None:
        self.address, self._timeout_s = address, timeout_s
        self._http = _open(address, timeout_s)

    def __enter__(self) -> ServiceConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    @property
    def http(self) -> httpx.Client:
        """The client below, for what is beside the API: the doors at the root of the service."""
        return self._http

    def get(self, path: str, kind: type[T], query: Query | None = None) -> T:
        """Ask for something."""
        return self._decoded(self._send("GET", path, query=query), kind)

    def send(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        tries: int = 1,
        timeout_s: float | None = None,
    ) -> T:
        """Ask the service to do something, and return its answer; the kind `type(None)` is for answers without one.

        A request that may be made twice, as it has an Idempotency-Key, is made again if the connection broke. One that
        takes the service long has a time-out of its own.
        """
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", **(headers or {})}
        for left in reversed(range(tries)):
            try:
                answer = self._send(method, path, content, headers, timeout_s=timeout_s)
                return self._decoded(answer, kind)
            except ServiceError as error:
                if error.status or not left:
                    raise
                time.sleep(RETRY_S)
        raise AssertionError("a request is made at least once")

    def send_file(self, path: str, file: Path, kind: type[T], *, timeout_s: float) -> T:
        """Send a file as the body of a POST, piece by piece, and return the answer."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(file.stat().st_size)}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        with self._errors_in_words(), file.open("rb") as content:
            answer = self._http.post(API + path, content=content, headers=headers, timeout=timeout)
        self._check(answer)
        return self._decoded(answer, kind)

    def put_bytes(self, path: str, content: bytes) -> None:
        self._send("PUT", path, content, {"Content-Type": "application/octet-stream"})

    def _send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Query | None = None,
        timeout_s: float | None = None,
    ) -> httpx.Response:
        try:
            return self._answer(method, path, content, headers, query, timeout_s)
        except (ServiceMissingError, ServiceError) as error:
            if not self._found_again(error):
                raise
        return self._answer(method, path, content, headers, query, timeout_s)

    def _answer(
        self,
        method: str,
        path: str,
        content: bytes | None,
        headers: Mapping[str, str] | None,
        query: Query | None,
        timeout_s: float | None,
    ) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s or self._timeout_s, connect=CONNECT_S)
        with self._errors_in_words():
            answer = self._http.request(
                method, API + path, content=content, headers=headers, params=_given(query), timeout=timeout
            )
        self._check(answer)
        return answer

    def _found_again(self, error: WeftError) -> bool:
        """Return whether this machine's service is a new one, after an error that an old one's address may give."""
        if isinstance(error, ServiceError) and error.status != UNAUTHORIZED:
            return False
        address = self.address.renewed()
        if address == self.address:
            return False
        self._http.close()
        self.address, self._http = address, _open(address, self._timeout_s)
        return True

    @contextmanager
    def open(
        self,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        silence_s: float | None = None,
    ) -> Iterator[httpx.Response]:
        """Yield an answer whose body is read piece by piece; `silence_s` is the longest wait for the next piece."""
        with ExitStack() as stack:
            try:
                answer = stack.enter_context(self._opened(path, query, headers, silence_s))
            except (ServiceMissingError, ServiceError) as error:
                if not self._found_again(error):
                    raise
                answer = stack.enter_context(self._opened(path, query, headers, silence_s))
            yield answer

    @contextmanager
    def _opened(
        self, path: str, query: Query | None, headers: Mapping[str, str] | None, silence_s: float | None
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(silence_s or TIMEOUT_S, connect=CONNECT_S)
        asking = self._http.stream("GET", API + path, params=_given(query), headers=headers, timeout=timeout)
        with self._errors_in_words(), asking as answer:
            if answer.status_code >= 400:
                answer.read()
            self._check(answer)
            yield answer

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Turn errors of the network into words."""
        url = self.address.url
        try:
            yield
        except httpx.ConnectError as error:
            reason = _reason(error)
            raise ServiceMissingError(
                f"{url} must be a jobs service that answers, got: {reason}; start one there with `weft up`, "
                "or name another with --url or WEFT_URL"
            ) from error
        except (httpx.TimeoutException, httpx.NetworkError, httpx.ProtocolError) as error:
            raise ServiceError(
                0, f"{url} must answer in time, got: {_reason(error)}; is the service still there?"
            ) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"a service's URL must look like http://host:8765, got {url}: {error}") from None

    def _check(self, answer: httpx.Response) -> None:
        if answer.status_code < 300:
            return
        raise self._refusal(answer)

    def _refusal(self, answer: httpx.Response) -> ServiceError:
        status, url = answer.status_code, self.address.url
        try:
            found = msgspec.json.decode(answer.content, type=_ErrorAnswer).error
        except msgspec.MsgspecError:
            said = f"{status} {answer.reason_phrase}".strip()
            return ServiceError(status, f"{url} must be a jobs service, got the answer {said}; check the URL")
        if status == UNAUTHORIZED:
            text = found.text or f"{url} must know who asks, got no valid token"
            return ServiceError(
                status, f"{text.removesuffix('; log in')}; write `weft login {url}`", found.code
            )
        problems = tuple(map(_problem, found.problems or ()))
        text = "\n".join(map(str, problems)) or found.text or f"the service answered {status}"
        return ServiceError(status, text, found.code, problems)

    def _decoded(self, answer: httpx.Response, kind: type[T]) -> T:
        if kind is type(None):
            return None
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.MsgspecError as error:
            raise ServiceError(
                answer.status_code,
                f"{self.address.url} must answer as weft {__version__} does, got: {error}; is it another version?",
            ) from None


def _open(address: ServiceAddress, timeout_s: float) -> httpx.Client:
    headers = {"User-Agent": f"weft/{__version__}"}
    if address.token:
        headers["Authorization"] = f"Bearer {address.token}"
    return httpx.Client(
        base_url=address.url,
        headers=headers,
        timeout=httpx.Timeout(timeout_s, connect=CONNECT_S),
        verify=_trusted(address),
        trust_env=not address.is_loopback,  # no proxy leads to this machine itself
    )


def _problem(found: Mapping[str, Any]) -> SpecProblem:
    return SpecProblem(*(str(found.get(name) or "") for name in ("path", "must", "got", "next")))


def _given(query: Query | None) -> dict[str, str]:
    """Return the words of a query that were given; lists have commas between them."""
    found: dict[str, str] = {}
    for name, value in (query or {}).items():
        if value is None or value == () or value == []:
            continue
        found[name] = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return found


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _trusted(address: ServiceAddress) -> ssl.SSLContext | bool:
    if address.ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=address.ca)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"{address.ca} must hold certificates in PEM, got: {error}; name another file with --ca"
        ) from None
