"""The REST API of a Kubernetes cluster, as far as a run needs it: create, list, watch, read logs, patch, delete.

Objects are sent as the very text that a dry run prints.
What passes (a busy or restarting API server) is tried again; what does not is an error with a sentence.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from weft.errors import ConnectError, UsageError
from weft.launch.engines.kubernetes.kubeconfig import find_access
from weft.launch.engines.kubernetes.objects.yaml_text import one_to_yaml
from weft.launch.pod_settings import KubernetesConfig

Data = dict[str, Any]
CONNECT_S = 10.0
ANSWER_S = 30.0
WATCH_S = 240  # for which one watch lasts; then another one goes on where it stopped
TRY_FOR_S = 60.0  # while the API server does not answer
FIRST_TRY_S = 10.0  # the same, for one that has never answered
PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
TOLD_AT_TURN = 4  # some four seconds of a server's refusals that may pass, after which they are told
_PASSING = frozenset({429, 500, 502, 503, 504})
MERGE = "application/merge-patch+json"
_NO_RIGHT = re.compile(r' cannot [a-z]+ resource "')
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class ClusterError(ConnectError):
    """The cluster refused a request; `status` is the HTTP status, 0 where there was no answer at all."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason  # in the cluster's word: Conflict, AlreadyExists
        self.repeated = False  # whether an earlier try may have been carried out


def kind_path(api_version: str, kind: str, namespace: str | None) -> str:
    """Return the path of a kind's collection."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    return f"{root}/namespaces/{namespace}/{kind.lower()}s" if namespace else f"{root}/{kind.lower()}s"


class ClusterApi:
    """One cluster, one namespace. Safe to use from several threads."""

    def __init__(self, settings: KubernetesConfig) -> None:
        try:
            import httpx2
            import lightkube  # noqa: F401
        except ModuleNotFoundError:
            raise UsageError(
                "--engine kubernetes must have lightkube, got none; pip install 'weft[kubernetes]'"
            ) from None
        access = find_access(settings)
        self._errors = (httpx2.TransportError,)
        self._streaming = httpx2.Timeout(WATCH_S + 60, connect=CONNECT_S)
        self._http = access.http_client(httpx2.Timeout(ANSWER_S, connect=CONNECT_S))
        self.namespace: str = settings.namespace or access.config.namespace or "default"
        self.server = access.server
        self.on_warning: Callable[[str], None] = lambda _: (
            None
        )  # what the cluster says about what it takes, once
        self._warned: set[str] = set()
        self._ahead_s = 0.0  # of the server's clock
        self._has_answered = False
        self._was_let_in = False  # the user is known, so a refusal to know it may pass
        self._has_command = access.command is not None  # that would log in again with each try

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        content: str | None = None,
        content_type: str = "application/json",
        doing: str,
    ) -> Data:
        """Send one request, again while the server is busy or away; return its answer."""
        headers = {"Content-Type": content_type} if content is not None else {}
        deadline, repeated = time.monotonic() + (TRY_FOR_S if self._has_answered else FIRST_TRY_S), False
        for turn in range(1_000_000):
            try:
                answer = self._http.request(
                    method, path, params=dict(params or {}), content=content, headers=headers
                )
            except self._errors as error:
                repeated = True
                trouble = f"{doing}: {self.server} must answer, got {error or type(error).__name__}"
                if time.monotonic() > deadline or "CERTIFICATE" in trouble:  # which no wait changes
                    raise ClusterError(f"{trouble}; is the cluster up, is the kubeconfig right?") from None
                time.sleep(_pause(turn))
                continue
            self._note_headers(answer.headers)
            if not self._has_answered:  # it is there, if only to say that it is busy
                self._has_answered, deadline = True, deadline + TRY_FOR_S - FIRST_TRY_S
            self._was_let_in |= answer.status_code < 400
            repeated |= answer.status_code >= 500
            if self._passes(answer.status_code) and time.monotonic() < deadline:
                if turn == TOLD_AT_TURN:  # a webhook that is down, say
                    self.on_warning(f"{_refusal(doing, answer.status_code, answer.text)}; tried again")
                time.sleep(_retry_after(answer.headers, turn))
                continue
            if answer.status_code >= 400:
                refusal = _refusal(doing, answer.status_code, answer.text)
                # Somebody else changed the object meanwhile, or the quota that it counts for: nothing was done.
                if refusal.reason == "Conflict" and time.monotonic() < deadline:
                    time.sleep(_pause(turn))
                    continue
                refusal.repeated = repeated
                raise refusal
            found: Data = answer.json()
            return found
        raise AssertionError("unreachable")

    def _passes(self, status: int) -> bool:
        """Return whether a refusal may be gone soon: that of a busy server, or of one that cannot ask who we are."""
        return status in _PASSING or (status == 401 and self._was_let_in and not self._has_command)

    def _note_headers(self, headers: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._ahead_s = parsedate_to_datetime(headers["Date"]).timestamp() - time.time()
        for text in _WARNING.findall(", ".join(headers.get_list("Warning"))):
            if text not in self._warned:  # each change of a Job is judged again
                self._warned.add(text)
                self.on_warning(text.replace('\\"', '"'))

    @property
    def now_s(self) -> float:
        """The time by the clock of the API server, whose objects tell when they were made."""
        return time.time() + self._ahead_s

    def path_of(self, item: Data, *, named: bool = True) -> str:
        """Return the path of an object, or of its kind."""
        namespace = (
            None if item["kind"].startswith("Cluster") else item["metadata"].get("namespace", self.namespace)
        )
        path = kind_path(item["apiVersion"], item["kind"], namespace)
        return f"{path}/{item['metadata']['name']}" if named else path

    def create(self, item: Data) -> Data:
        """Create an object from the text that a dry run prints."""
        try:
            return self.request(
                "POST",
                self.path_of(item, named=False),
                # A field that this cluster does not know is refused, not left out.
                params={"fieldManager": "weft", "fieldValidation": "Strict"},
                content=one_to_yaml(item),
                content_type="application/yaml",
                doing=f"create {item['kind']} {item['metadata']['name']}",
            )
        except ClusterError as error:
            found = self._made_before(item) if error.status == 409 and error.repeated else None
            if found is None:
                raise
            return found

    def _made_before(self, item: Data) -> Data | None:
        """Return an object that a request of ours has made whose answer was lost; None where it is another's.

        The first object of a run holds its secret, which nobody else has; the rest has the name that this one took.
        """
        if item["kind"] in ("Secret", "ConfigMap", "Service"):
            # An empty change returns the object: who may create and change secrets need not be allowed to read all.
            found: Data | None = self.patch(item, {})
        else:
            found = self.read(item)
        return found if found is not None and _same_secrets(item, found) else None

    def apply(self, objects: Iterable[Data]) -> Data:
        """Create objects in order, all or none; return the last one, which starts the pods.

        The others then belong to it. Whatever ends this before its end, Ctrl-C too, leaves none of them.
        """
        made: list[Data] = []
        answer: Data = {}
        item: Data | None = None
        try:
            for item in objects:
                answer = self.create(item)
                made.append(item)
            item = None
            for other in made[:-1]:
                self._give_to(other, answer)
        except BaseException as error:
            with contextlib.suppress(ClusterError):
                if item is not None and not isinstance(error, ClusterError) and self._made_before(item):
                    made.append(item)  # its answer was not awaited
            with contextlib.suppress(ClusterError):
                self.delete(made)
            if isinstance(error, ClusterError) and error.status == 409:
                raise UsageError(
                    f"a run must have a name that is free in the namespace {self.namespace}, got "
                    f"{str(error).partition(': ')[2]}; use --name, or delete what is left of the other run"
                ) from None
            raise
        return answer

    def _give_to(self, item: Data, owner: Data) -> None:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        self.patch(item, {"metadata": {"ownerReferences": [reference]}})

    def patch(self, item: Data, change: Data) -> Data:
        """Change some fields of an object."""
        return self.request(
            "PATCH",
            self.path_of(item),
            content=json.dumps(change),
            content_type=MERGE,
            doing=f"change {item['kind']} {item['metadata']['name']}",
        )

    def read(self, item: Data) -> Data | None:
        """Return an object as it is now; None if there is none."""
        try:
            return self.request(
                "GET", self.path_of(item), doing=f"read {item['kind']} {item['metadata']['name']}"
            )
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, objects: Iterable[Data]) -> None:
        """Delete objects, the last one first, and what they have made; those that are gone already count as deleted."""
        for item in reversed(list(objects)):
            try:
                self.request(
                    "DELETE",
                    self.path_of(item),
                    params={"propagationPolicy": "Background"},
                    doing=f"delete {item['kind']} {item['metadata']['name']}",
                )
            except ClusterError as error:
                if error.status != 404:
                    raise

    def pods(self, selector: str) -> list[Data]:
        """Return the pods that have some labels."""
        return list(self._list_pods(selector)["items"])

    def _list_pods(self, selector: str) -> Data:
        path = kind_path("v1", "Pod", self.namespace)
        return self.request("GET", path, params={"labelSelector": selector}, doing="list the pods of the run")

    def events(self, **about: str) -> list[Data]:
        """Return the events about the objects with some fields (`uid`, `kind`); none where nobody may read them.

        The events of an object stay for an hour after it, and another one may have its name: its identity tells.
        """
        path = kind_path("v1", "Event", self.namespace)
        params = {
            "fieldSelector": ",".join(f"involvedObject.{field}={value}" for field, value in about.items())
        }
        try:
            return list(self.request("GET", path, params=params, doing="read events")["items"])
        except ClusterError:
            return []

    # -- streams ----------------------------------------------------------------------------------

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        """Yield all pods with some labels by name, whenever one of them changes, until `over`."""
        turn, refused_at, has_watched = 0, float("inf"), False
        while not over.is_set():
            try:
                listing = self._list_pods(selector)
                pods = {pod["metadata"]["name"]: pod for pod in listing["items"]}
                yield dict(pods)
                version = listing["metadata"]["resourceVersion"]
                while not over.is_set():
                    began = time.monotonic()
                    for event in self._watch(selector, version):
                        turn, refused_at, has_watched = 0, float("inf"), True
                        version = event["object"]["metadata"].get("resourceVersion", version)
                        if event["type"] == "BOOKMARK":
                            continue
                        name = event["object"]["metadata"]["name"]
                        if event["type"] == "DELETED":
                            pods.pop(name, None)
                        else:
                            pods[name] = event["object"]
                        yield dict(pods)
                        if over.is_set():
                            return
                    if time.monotonic() - began < 1.0:  # something between us ends every stream
                        over.wait(_pause(turn))
                        turn += 1
            except ClusterError as error:
                if error.status in (401, 403):  # for good, unless it was let in before
                    refused_at = min(refused_at, time.monotonic())
                    was_allowed = has_watched if error.status == 403 else self._was_let_in
                    if not was_allowed or time.monotonic() - refused_at > TRY_FOR_S:
                        raise
                over.wait(_pause(turn))  # 410: what we knew is too old; the list tells what there is
                turn += 1
            except (*self._errors, ValueError):  # or the end of a stream in the middle of a line
                over.wait(_pause(turn))
                turn += 1

    def _watch(self, selector: str, version: str) -> Iterator[Data]:
        params = {
            "labelSelector": selector,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        path = kind_path("v1", "Pod", self.namespace)
        with self._http.stream("GET", path, params=params, timeout=self._streaming) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise _refusal("watch the pods of the run", answer.status_code, answer.text)
            for line in answer.iter_lines():
                if not line:
                    continue
                event: Data = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ClusterError(f"watch: {status.get('message', '')}", int(status.get("code", 0)))
                yield event

    def log(self, pod: str, container: str, *, since: str | None, follow: bool) -> Iterator[bytes]:
        """Yield what a container printed, in pieces, each line with its time before it."""
        params = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        if since is not None:
            params["sinceTime"] = since
        path = f"{kind_path('v1', 'Pod', self.namespace)}/{pod}/log"
        try:
            with self._http.stream("GET", path, params=params, timeout=self._streaming) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise _refusal(f"read the log of {pod}", answer.status_code, answer.text)
                yield from answer.iter_bytes()
        except self._errors as error:
            raise ClusterError(f"read the log of {pod}: {error or type(error).__name__}") from None


def _same_secrets(sent: Data, found: Data) -> bool:
    """Return whether an object of the cluster has the secrets of one that was sent; true for one without any."""
    if sent["kind"] != "Secret" or "stringData" in found:
        return bool(sent.get("stringData") == found.get("stringData"))
    texts = {name: base64.b64encode(text.encode()).decode() for name, text in sent["stringData"].items()}
    return bool(found.get("data") == texts)


def _pause(turn: int) -> float:
    return PAUSES_S[min(turn, len(PAUSES_S) - 1)]


def _retry_after(headers: Mapping[str, str], turn: int) -> float:
    """Return the seconds that a busy server asks for, or a pause of our own."""
    header = headers.get("Retry-After", "")
    return min(30.0, float(header)) if header.isdecimal() else _pause(turn)


def _refusal(doing: str, status: int, text: str) -> ClusterError:
    try:
        data = json.loads(text)
        message, reason = str(data.get("message", text)), str(data.get("reason", ""))
    except (ValueError, AttributeError):
        message, reason = text, ""
    message = " ".join(message.split())[:500]
    if status == 403 and "exceeded quota" in message:
        return ClusterError(
            f"the cluster must {doing}, got {status}: {message}; ask for more, or for less", status
        )
    if status == 403 and not _NO_RIGHT.search(
        message
    ):  # by a rule of the cluster, and not for want of a right
        return ClusterError(f"the cluster must {doing}, got {status}: {message}; mend the setting", status)
    advice = {
        400: "mend the setting",
        401: "log in again",
        403: "ask for the Role that `weft kubernetes role` prints",
        404: "is the kind installed in this cluster, is the namespace there?",
        413: "send less",
        422: "mend the setting",
    }.get(status, "")
    end = f"; {advice}" if advice else ""
    return ClusterError(f"the cluster must {doing}, got {status}: {message}{end}", status, reason)
