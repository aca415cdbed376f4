"""The objects of our own cluster and their history: resource versions, lists, and watches that expire."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator

from testing.kubernetes.objects import KINDS, ApiRefusalError, Data, has_fields, is_selected


class ObjectStore:
    """All objects of one cluster. Whoever reads or changes several things at once holds `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.epoch = 0  # streams of an earlier one end
        self._objects: dict[tuple[str, str, str], Data] = {}  # by kind, namespace and name
        self._history: list[tuple[int, str, str, Data]] = []  # version, kind, what happened, the object
        self._now = 1
        self._expired = 0  # versions up to this one are forgotten

    # -- objects ----------------------------------------------------------------------------------

    def of_kind(self, kind: str) -> list[Data]:
        """Return all objects of a kind, the oldest first."""
        with self.changed:
            return [item for (other, _, _), item in self._objects.items() if other == kind]

    def all(self) -> list[tuple[str, Data]]:
        """Return all objects with their kinds."""
        return [(kind, item) for (kind, _, _), item in self._objects.items()]

    def find(self, kind: str, namespace: str, name: str) -> Data | None:
        """Return an object; None where there is none."""
        return self._objects.get((kind, namespace, name))

    def get(self, kind: str, namespace: str, name: str) -> Data:
        """Return an object; refuse one that is not there."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise ApiRefusalError(404, f'{kind} "{name}" not found')
        return found

    def put(self, what: str, kind: str, item: Data) -> None:
        """Keep an object, new or changed, under a new version."""
        self._now += 1
        item["metadata"]["resourceVersion"] = str(self._now)
        self._objects[kind, item["metadata"]["namespace"], item["metadata"]["name"]] = item
        self._note(kind, what, copy.deepcopy(item))

    def forget(self, kind: str, item: Data) -> None:
        """Keep an object no more."""
        metadata = item["metadata"]
        self._objects.pop((kind, metadata["namespace"], metadata["name"]), None)
        self._now += 1
        gone = copy.deepcopy(item)
        gone["metadata"]["resourceVersion"] = str(self._now)
        self._note(kind, "DELETED", gone)

    def _note(self, kind: str, what: str, item: Data) -> None:
        self._history.append((self._now, kind, what, item))
        self.changed.notify_all()

    # -- streams ----------------------------------------------------------------------------------

    def break_streams(self) -> None:
        """End all streams, as an API server that restarts does."""
        with self.changed:
            self.epoch += 1
            self.changed.notify_all()

    def expire(self) -> None:
        """Forget all versions, and break all streams: watches that go on get 410."""
        with self.changed:
            self._now += 1
            self._expired = self._now
            self.break_streams()

    def listing(self, kind: str, namespace: str, query: dict[str, str]) -> Data:
        """Return the objects of a kind that the selectors take. As in a real list, they do not tell their kind."""
        with self.changed:
            items = [
                {
                    field: copy.deepcopy(part)
                    for field, part in item.items()
                    if field not in ("apiVersion", "kind")
                }
                for (other, _, _), item in self._objects.items()
                if other == kind and _is_asked_for(kind, namespace, query, item)
            ]
            version, single = KINDS[kind]
            metadata = {"resourceVersion": str(self._now)}
            return {"apiVersion": version, "kind": f"{single}List", "items": items, "metadata": metadata}

    def watch(self, kind: str, namespace: str, query: dict[str, str], *, bookmarks: bool) -> Iterator[Data]:
        """Yield what happens to the objects of a kind after a version; without one, first those that are there."""
        version, epoch, place = int(query.get("resourceVersion") or 0), self.epoch, 0
        if not version:
            with self.changed:
                version = self._now
                there = [item for item in self.of_kind(kind) if _is_asked_for(kind, namespace, query, item)]
                found = [{"type": "ADDED", "object": copy.deepcopy(item)} for item in there]
            yield from found
        while True:
            with self.changed:
                if version < self._expired:
                    yield {"type": "ERROR", "object": ApiRefusalError(410, "too old resource version").status}
                    return
                found = []
                for number, other, what, item in self._history[place:]:
                    place += 1
                    if number > version and other == kind and _is_asked_for(kind, namespace, query, item):
                        found.append({"type": what, "object": item})
                if not found:
                    self.changed.wait(0.5)
                    if self.epoch != epoch:
                        return
                    api_version, single = KINDS[kind]
                    bookmark: Data = {"kind": single, "apiVersion": api_version}
                    bookmark = {**bookmark, "metadata": {"resourceVersion": str(self._now)}}
                    found = [{"type": "BOOKMARK", "object": bookmark}] if bookmarks else []
            yield from found


def _is_asked_for(kind: str, namespace: str, query: dict[str, str], item: Data) -> bool:
    """Return whether an object of a kind is in the namespace, and taken by the selectors of a request."""
    mine = item["metadata"]["namespace"] == namespace and is_selected(item, query.get("labelSelector", ""))
    return mine and has_fields(kind, item, query.get("fieldSelector", ""))
