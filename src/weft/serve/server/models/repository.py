"""All models of a server: loaded, unloaded, swapped while requests come in.

Whoever answers is chosen and handed over in one step of the event loop, so a swap is never half done; the version that
was replaced answers what it has taken and then closes.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol, TypedDict

from weft.errors import ModelError, WeftError
from weft.files import write_whole
from weft.serve.server import logs
from weft.serve.server.models.loading import load
from weft.serve.server.models.model import Model
from weft.serve.server.models.place import ModelPlace, Role, roles_of
from weft.serve.server.models.sources import Found, ModelSource, StoreSource
from weft.serve.server.models.tally import Tally
from weft.serve.server.options import ModelOptions, Traffic
from weft.serve.server.refusal import RefusalError
from weft.serve.store import Store

_PATH = re.compile(r"(?:[\w.@~+-]*/)+([\w.@~+-]*)")  # a path with at least one folder


class IndexEntry(TypedDict):
    """A version of a model, or a name of which none is loaded (then `version` is empty)."""

    name: str
    version: str
    state: str  # READY, LOADING or UNAVAILABLE
    reason: str


class LoadScreen(Protocol):
    """Shows a person how models are loaded; `screen.py` has the one of `weft serve`."""

    def begin(self, names: list[str], where: str) -> None: ...

    def loaded(self, model: Model, place: int, count: int) -> None: ...

    def failed(self, name: str, reason: str, place: int, count: int) -> None: ...


class Repository:
    """Names and their models. Everything is called on the event loop."""

    def __init__(
        self,
        sources: Iterable[ModelSource],
        *,
        store: Store | None = None,
        options: Callable[[str], ModelOptions] = lambda _: ModelOptions(),
        traffic: dict[str, Traffic] | None = None,
        state: Path | None = None,
    ) -> None:
        self._store = store
        self._options = options
        self._traffic = traffic or {}
        self._state = state
        self._keeping = asyncio.Lock()
        self._places: dict[str, ModelPlace] = {}
        for source in sources:
            if source.name in self._places and isinstance(source, StoreSource):
                place = self._places[source.name]
                place.also = (*place.also, source.which or "latest")
            elif source.name in self._places:
                raise ModelError(
                    f"models must have different names, got {source.name!r} twice; write NAME=FILE"
                )
            else:
                self._add(source)

    # -- who answers ---------------------------------------------------------------------------------

    def model(self, name: str, version: str | None = None) -> Model:
        """Return who answers a request for a name; a canary takes its share of those that name no version."""
        place = self._places.get(name)
        if place is None or not place.wanted:
            raise RefusalError(404, f"model must be one of {self._known()}, got {name!r}")
        if version is None:
            if place.canary is not None and random.random() * 100 < place.traffic.percent:
                return place.canary
            if place.default is None:
                reason = names_only(place.reason) or "it is being loaded"
                raise RefusalError(503, f"model {name!r} is not ready: {reason}")
            return place.default
        if version not in place.versions:
            loaded = ", ".join(place.versions) or "none"
            raise RefusalError(404, f"the version of {name!r} must be one of {loaded}, got {version!r}")
        return place.versions[version]

    def shadow(self, model: Model) -> Model | None:
        """Return who shall get a copy of what `model` was asked."""
        place = self._places.get(model.name)
        if place is None or place.shadow is None or place.shadow is model:
            return None
        return place.shadow

    def only(self, task: str | None = None) -> Model:
        """The model that is meant when a door names none: the only one, or the only one for a task."""
        ready = [
            place.default for place in self._places.values() if place.wanted and place.default is not None
        ]
        found = [model for model in ready if task is None or model.card.task == task]
        if len(found) != 1:
            kind = f" for the task {task}" if task else ""
            names = ", ".join(model.name for model in found) or "none"
            raise RefusalError(
                404 if not found else 400, f"there must be one model{kind} if none is named, got {names}"
            )
        return self.model(found[0].name)

    def ready(self, name: str, version: str | None = None) -> bool:
        place = self._places.get(name)
        if place is None or not place.wanted:
            return False
        return place.default is not None if version is None else version in place.versions

    def missing(self) -> list[str]:
        """Return the names that should answer and cannot; those that came into the store later count once loaded."""
        places = self._places.items()
        return [name for name, place in places if place.wanted and place.expected and place.default is None]

    def names(self) -> list[str]:
        return [name for name, place in self._places.items() if place.wanted]

    def versions(self, name: str) -> dict[str, Model]:
        return self._places[name].versions

    def loaded(self) -> list[Model]:
        return [model for place in self._places.values() for model in place.versions.values()]

    def tallies(self) -> list[tuple[str, str, Tally]]:
        """The figures of every version that is or was loaded: counters do not go when a version does."""
        places = self._places.items()
        return [(name, version, tally) for name, place in places for version, tally in place.tallies.items()]

    def traffic(self, name: str) -> Traffic:
        self.model(name)
        return self._places[name].traffic

    async def index(self) -> list[IndexEntry]:
        """Return an entry for every loaded version, and for every name of which none is, also in the store."""
        found: list[IndexEntry] = []
        for name, place in self._places.items():
            found += [
                {"name": name, "version": version, "state": "READY", "reason": ""}
                for version in place.versions
            ]
            if not place.versions or place.reason:
                state = "UNAVAILABLE" if place.reason or not place.wanted else "LOADING"
                reason = names_only(place.reason) or ("unloaded" if not place.wanted else "")
                found.append({"name": name, "version": "", "state": state, "reason": reason})
        if self._store is not None:
            stored = set(await asyncio.to_thread(self._store.names))
            found += [
                {"name": name, "version": "", "state": "UNAVAILABLE", "reason": "unloaded"}
                for name in sorted(stored - set(self._places))
            ]
        return found

    # -- changes -------------------------------------------------------------------------------------

    async def start(self, screen: LoadScreen) -> None:
        """Load all there is; what does not load is told, and the others go on, if there are any."""
        self._recall()
        await self._discover(expected=True)
        wanted = [name for name, place in self._places.items() if place.wanted]
        screen.begin(wanted, str(self._store.folder) if self._store else "")
        for number, name in enumerate(wanted, 1):
            await self._refresh(name)
            place = self._places[name]
            if place.default is not None:
                screen.loaded(place.default, number, len(wanted))
            else:
                screen.failed(name, place.reason, number, len(wanted))
        alone = not any(isinstance(place.source, StoreSource) for place in self._places.values())
        if wanted and alone and not self.loaded():
            reasons = "; ".join(f"{name}: {self._places[name].reason}" for name in wanted)
            raise ModelError(f"at least one model must load, got {reasons}")

    async def load(self, name: str, version: str | None = None) -> None:
        """Load or load again; what answered before goes on answering until the new one is ready."""
        place = self._places.get(name)
        if place is None:
            if self._store is None:
                raise RefusalError(404, f"model must be one of {self._known()}, got {name!r}")
            source = StoreSource(self._store, name)
            await self._ask(source, version)
            place = self._add(source)
        elif version is not None:
            await self._ask(place.source, version)
        place.wanted, place.pinned = True, version
        place.failed.clear()
        place.expected = True
        await self._refresh(name)
        if place.reason:
            raise RefusalError(400, f"{name} was not loaded: {names_only(place.reason)}")
        await self._keep()

    async def unload(self, name: str) -> None:
        place = self._places.get(name)
        if place is None or not place.wanted:
            raise RefusalError(404, f"model must be one of {self._known()}, got {name!r}")
        async with place.lock:
            place.wanted, place.reason = False, ""
            self._seat(place, {})
        logs.event("unloaded", model=name)
        await self._keep()

    async def set_traffic(self, name: str, traffic: Traffic) -> None:
        """Set another canary or shadow; a version that cannot be loaded changes nothing."""
        self.model(name)
        place = self._places[name]
        for which in (traffic.canary, traffic.shadow):
            if which is not None:
                await self._ask(place.source, which)
        before = place.traffic
        place.traffic = traffic
        place.failed.clear()
        await self._refresh(name)
        if place.reason:
            reason, place.traffic = place.reason, before
            await self._refresh(name)
            raise RefusalError(400, f"the traffic of {name} stays as it was: {names_only(reason)}")
        await self._keep()

    async def watch(self, poll_s: float) -> None:
        """Follow aliases that move and models that are pushed, for as long as the server lives."""
        while True:
            await asyncio.sleep(poll_s)
            try:
                await self._discover()
                for name, place in list(self._places.items()):
                    if place.wanted and isinstance(place.source, StoreSource):
                        await self._refresh(name)
            except (WeftError, OSError) as error:
                logs.event("store", error=str(error))

    async def close(self, timeout_s: float) -> None:
        """Answer what was taken, then let everything go."""
        models = self.loaded()
        try:
            async with asyncio.timeout(timeout_s):
                for model in models:
                    await model.drained()
        except TimeoutError:
            logs.event("drain", error=f"requests were still at work after {timeout_s:g} s")
        for model in models:
            model.retire()

    # -- inside --------------------------------------------------------------------------------------

    def _add(self, source: ModelSource) -> ModelPlace:
        place = ModelPlace(source, self._options(source.name), self._traffic.get(source.name, Traffic()))
        self._places[source.name] = place
        return place

    async def _discover(self, *, expected: bool = False) -> None:
        """Add the names of the store; one that comes while the server runs makes it unready only once it was loaded."""
        if self._store is None:
            return
        for name in await asyncio.to_thread(self._store.names):
            if name not in self._places:
                self._add(StoreSource(self._store, name)).expected = expected

    async def _ask(self, source: ModelSource, which: str | None) -> Found:
        try:
            return await asyncio.to_thread(source.find, which)
        except (ModelError, ValueError) as error:
            raise RefusalError(404, names_only(str(error))) from None

    async def _refresh(self, name: str) -> None:
        """Make what is loaded what should be; a failure leaves in its role who had it, and is told."""
        place = self._places[name]
        async with place.lock:
            if not place.wanted:
                return
            seats: dict[Role, Model] = {}
            place.reason = ""
            for role in roles_of(place):
                model = await self._fill(name, place, role, seats)
                if model is not None:
                    seats[role] = model
            self._seat(place, seats)

    async def _fill(self, name: str, place: ModelPlace, role: Role, seats: dict[Role, Model]) -> Model | None:
        """Return who plays a part: one that is loaded, or a new one; if that fails, who played it before."""
        before = {"default": place.default, "canary": place.canary, "shadow": place.shadow}.get(role.part)
        try:
            found = await asyncio.to_thread(place.source.find, role.which)
        except Exception as error:  # a store that cannot be read, a factory that cannot be found
            self._failed(name, place, str(error) or type(error).__name__)
            return before
        for model in seats.values():
            if model.version == found.version:
                return model
        if found.version in place.versions and place.stamps.get(found.version) == found.stamp:
            return place.versions[found.version]
        stamp, reason = place.failed.get(found.version, (None, ""))
        if reason and stamp == found.stamp:
            self._failed(name, place, reason)
            return before
        try:
            make = await asyncio.to_thread(load, name, found.version, found.build, place.options)
        except Exception as error:  # whatever a model does when it is loaded, the others go on
            self._failed(name, place, str(error) or type(error).__name__)
            place.failed[found.version] = (found.stamp, place.reason)
            return before
        place.stamps[found.version] = found.stamp
        model = make(place.tally(found.version))
        logs.event(
            "loaded",
            model=name,
            version=found.version,
            part=role.part,
            max_batch=model.options.max_batch,
            batching=model.batch_reason,
        )
        return model

    def _failed(self, name: str, place: ModelPlace, reason: str) -> None:
        place.reason = reason
        if place.logged != reason:  # once is enough: a store is asked again every second
            place.logged = reason
            logs.event("not loaded", model=name, error=reason)

    def _seat(self, place: ModelPlace, seats: dict[Role, Model]) -> None:
        """The swap itself: no await in here."""
        parts = {role.part: model for role, model in seats.items()}
        place.default = parts.get("default")
        place.expected = place.expected or place.default is not None
        place.canary = parts.get("canary")
        place.shadow = parts.get("shadow")
        before = list(place.versions.values())
        place.versions = {model.version: model for model in seats.values()}
        kept = set(map(id, place.versions.values()))
        for model in before:
            if id(model) not in kept:
                model.retire()

    def _known(self) -> str:
        return ", ".join(self.names()) or "none (nothing is loaded)"

    async def _keep(self) -> None:
        """Write what was asked for at run time to disk, before it is acknowledged."""
        if self._state is None:
            return
        async with self._keeping:
            data = {
                name: {"wanted": place.wanted, "pinned": place.pinned, "traffic": asdict(place.traffic)}
                for name, place in self._places.items()
            }
            await asyncio.to_thread(write_whole, self._state, json.dumps(data, indent=1) + "\n")

    def _recall(self) -> None:
        if self._state is None or not self._state.exists():
            return
        try:
            for name, kept in json.loads(self._state.read_text()).items():
                if name not in self._places and self._store is None:
                    continue
                place = self._places.get(name) or self._add(StoreSource(self._store or Store(), name))
                place.wanted, place.pinned = bool(kept["wanted"]), kept["pinned"]
                place.traffic = replace(Traffic(), **kept["traffic"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ModelError(
                f"{self._state} must be what a server wrote there: {error!r}; remove it"
            ) from error


def names_only(reason: str) -> str:
    """Return a reason with the last part of each path in it: callers need not know where files lie."""
    return _PATH.sub(r"\1", reason)
