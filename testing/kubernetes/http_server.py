"""The HTTP of our own API server: rights, paths, forms of bodies, streams, and answers that are lost."""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from testing.kubernetes import go_yaml
from testing.kubernetes.admission import warnings_about
from testing.kubernetes.discovery import answer_to
from testing.kubernetes.objects import KINDS, ApiRefusalError, Data

if TYPE_CHECKING:
    from testing.kubernetes.api_server import VirtualKubernetes

TOKEN = "a-token"
_PATH = re.compile(
    r"/(?:api/v1|apis/[^/]+/[^/]+)/namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(log|eviction))?"
)
_SINCE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")


def serve(cluster: VirtualKubernetes) -> ThreadingHTTPServer:
    """Answer the requests for a cluster at a free port of this machine, in threads."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, cluster))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def __init__(self, cluster: VirtualKubernetes, *connection: Any) -> None:
        self._cluster = cluster
        super().__init__(*connection)

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length).decode()
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self._cluster.requests.append((self.command, address.path, body))
        try:
            self._check_rights(address.path, query)
            self._carry_out(address.path, query, body)
        except ApiRefusalError as refusal:
            if self._cluster.drop_refusals > 0:
                self._cluster.drop_refusals -= 1
                self.close_connection = True
                return
            self._send(refusal.code, refusal.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _check_rights(self, path: str, query: dict[str, str]) -> None:
        if not self._cluster.anonymous and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise ApiRefusalError(401, "Unauthorized")
        if self._cluster.busy > 0:
            self._cluster.busy -= 1
            raise ApiRefusalError(429, "too many requests")
        match = _PATH.fullmatch(path)
        if match is None:
            return
        _, kind, name, sub = match.groups()
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(self.command, "get")
        if self.command == "GET" and name is None:
            verb = "watch" if query.get("watch") else "list"
        group = path.split("/")[2] if path.startswith("/apis/") else ""
        resource = f"{kind}/{sub}" if sub else kind
        if kind in self._cluster.forbidden or verb not in self._cluster.rules.get((group, resource), ()):
            told = (
                f'{kind} is forbidden: User "me" cannot {verb} resource "{resource}" in API group "{group}"'
            )
            raise ApiRefusalError(403, told)

    def _body(self, text: str, *kinds: str) -> Data:
        """Return the object that was sent, in one of the forms that are taken."""
        kind = self.headers.get("Content-Type", "")
        if kind not in kinds:
            raise ApiRefusalError(
                415, f"the body of the request was in an unknown format, got {kind or 'none'}"
            )
        found: Data = go_yaml.load(text) if kind == "application/yaml" else json.loads(text)
        return found

    def _carry_out(self, path: str, query: dict[str, str], body: str) -> None:
        if path.endswith("/selfsubjectaccessreviews"):
            self._send(201, {"status": {"allowed": self._is_allowed(body)}})
            return
        if (told := answer_to(path, self._cluster.version)) is not None:
            self._send(200, told)
            return
        match = _PATH.fullmatch(path)
        if match is None or match[2] not in KINDS:
            raise ApiRefusalError(404, f"the server could not find the requested resource {path}")
        namespace, kind, name, sub = match.groups()
        if sub == "log":
            self._stream(self._log_lines(name, namespace, query), "text/plain")
        elif sub == "eviction":
            self._cluster.evict(namespace, name)
            self._send(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        elif self.command == "POST":
            self._create(kind, namespace, query, body)
        elif self.command == "PATCH":
            # The others are taken by a real one as well; a run sends none of them.
            change = self._body(body, "application/merge-patch+json")
            changed = self._cluster.admission.patch(kind, namespace, name, change)
            self._send(200, changed, warnings=warnings_about(changed))
        elif self.command == "DELETE":
            # Clients tell how in the query or, as kubectl does, in a body.
            options = json.loads(body) if body else {}
            policy = query.get("propagationPolicy") or options.get("propagationPolicy", "")
            self._send(200, self._cluster.admission.delete(kind, namespace, name, policy))
        elif name is not None:
            with self._cluster.store.changed:
                self._send(200, copy.deepcopy(self._cluster.store.get(kind, namespace, name)))
        elif query.get("watch"):
            self._watch(kind, namespace, query)
        else:
            self._send(200, self._cluster.store.listing(kind, namespace, query))

    def _is_allowed(self, body: str) -> bool:
        asked = self._body(body, "application/json")["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
        verbs = self._cluster.rules.get((asked["group"], resource), ())
        return asked["resource"] not in self._cluster.forbidden and asked["verb"] in verbs

    def _create(self, kind: str, namespace: str, query: dict[str, str], body: str) -> None:
        item = self._body(body, "application/json", "application/yaml")
        # A field of a typing error would be left out, with a warning. Other clients look for those themselves.
        if query.get("fieldManager") == "weft" and query.get("fieldValidation") != "Strict":
            raise ApiRefusalError(400, "objects must be sent with fieldValidation=Strict")
        self._cluster.admission.check(item, code=400)
        made = self._cluster.admission.create(kind, namespace, item, is_trial=query.get("dryRun") == "All")
        if self._cluster.drop_answers > 0:
            self._cluster.drop_answers -= 1
            raise ConnectionResetError
        self._cluster.wait_for("words", lambda: self._cluster.silent_kind != kind)
        self._send(201, made, warnings=warnings_about(item))

    def _watch(self, kind: str, namespace: str, query: dict[str, str]) -> None:
        events = self._cluster.store.watch(
            kind,
            namespace,
            query,
            bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
        )
        self._stream((json.dumps(event).encode() + b"\n" for event in events), "application/json")

    def _log_lines(self, name: str, namespace: str, query: dict[str, str]) -> Iterator[bytes]:
        since = query.get("sinceTime", "")
        if since and not _SINCE.fullmatch(since):
            raise ApiRefusalError(400, f"sinceTime must be a time of RFC 3339, got {since}")
        nodes = self._cluster.nodes
        nodes.check_log(name, namespace, query.get("container", ""))
        asked = {word: query.get(word) == "true" for word in ("follow", "timestamps")}
        return nodes.log_lines(name, namespace, since.rstrip("Z"), **asked)

    # -- answers ----------------------------------------------------------------------------------

    def _send(self, code: int, data: Data, *, warnings: Iterable[str] = ()) -> None:
        body = json.dumps(data).encode()
        self.send_response(code)
        for text in warnings:
            self.send_header("Warning", f"299 - {json.dumps(text)}")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code == 429:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, pieces: Iterator[bytes], kind: str) -> None:
        first = next(pieces, b"")  # or an error, before anything is said
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):
            for piece in _with_first(first, pieces):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")


def _with_first(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest
