"""The world of this process: `init`, `shutdown`, who it is, and the process sets; one at a time, many in a row."""

from __future__ import annotations

import atexit
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft.collectives.groups import roll
from weft.collectives.modes.tcp.mesh import own_address
from weft.collectives.torch_private import PrefixStore
from weft.compat.horovod.engine.control import ControlPlane, RankFacts, meet_all, meet_alone
from weft.compat.horovod.engine.engine import HorovodEngine
from weft.compat.horovod.engine.operations import HandleTable, HorovodOp
from weft.compat.horovod.engine.place import (
    CrossPlace,
    FixedPlaces,
    Places,
    WorldPlace,
    announce,
    cross_place,
)
from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.transport import AloneTransport, DataTransport, GroupTransport
from weft.compat.horovod.errors import NOT_INITIALIZED, HorovodInternalError
from weft.compat.horovod.negotiation.messages import GLOBAL_SET, OpKind, OpRequest
from weft.compat.horovod.settings import (
    DYNAMIC_TIMELINE,
    HorovodSettings,
    decided_elsewhere,
    settings_from,
)
from weft.errors import CollectiveError, ConnectError

logger = logging.getLogger("horovod")
# What making a world may raise when a member is lost meanwhile: ours, torch's, a socket's.
BROKEN = (RuntimeError, ConnectError, CollectiveError, OSError)


class HorovodWorld:
    """The present world of this process, if there is one."""

    def __init__(self) -> None:
        self.handles = HandleTable()
        self._engine: HorovodEngine | None = None
        self._of_parent: HorovodEngine | None = None  # of the process that this one is a fork of
        self._place: WorldPlace | None = None
        self._cross: CrossPlace | None = None
        self._places: Places | None = None
        self._sets: list[ProcessSet] = []  # registered, beside the global one
        self._settings = HorovodSettings()
        self._counters: Counter[tuple[int, str]] = Counter()  # unnamed operations, by set and kind
        self._joins = 0  # in this world
        self._told = False

    # -- coming and going -----------------------------------------------------------------------------

    def init(self, comm: Any = None, process_sets: Any = None) -> None:
        """Join the others; harmless if that was done."""
        if self._engine is not None:
            return
        sets, dynamic = _sets_given(process_sets)
        _check_comm(comm)
        settings = self._settings = settings_from(os.environ)
        if settings.log_level is not None:
            logger.setLevel(settings.log_level)
        self._dynamic = dynamic or settings.dynamic_sets
        if self._places is None:
            self._places = _find_places()
            atexit.register(self.shutdown)
        while True:
            place = self._places.next(settings)
            try:
                self._make(place, settings)
            except BROKEN as error:
                if not self._places.broken(error):
                    raise
                continue
            break
        if place.rank == 0 and not self._told:
            self._told = True
            for sentence in decided_elsewhere(os.environ):
                logger.warning("%s", sentence)
        for each in sets:
            self._register(each)

    def _make(self, place: WorldPlace, settings: HorovodSettings) -> None:
        control, transport = self._connect(place, settings)
        engine = HorovodEngine(
            place.rank, place.size, control, transport, settings, self._change_sets, self.handles
        )
        self._engine, self._place = engine, place
        self._cross = cross_place(control.roster, place.rank)
        self._counters.clear()
        self._joins = 0
        global_process_set.attach(engine, GLOBAL_SET)
        assert self._places is not None
        announce(os.environ, place, self._cross, elastic=not isinstance(self._places, FixedPlaces))
        if settings.timeline and settings.timeline != DYNAMIC_TIMELINE:
            engine.timeline.start(settings.timeline, settings.mark_cycles)
        self._places.formed(engine.fail)

    def _connect(self, place: WorldPlace, settings: HorovodSettings) -> tuple[ControlPlane, DataTransport]:
        facts = RankFacts(place.rank, place.host, place.local_rank, place.local_size, os.getpid())
        if place.size == 1:
            return meet_alone(facts), AloneTransport()
        in_vain = place.in_vain or (lambda: False)
        control = meet_all(
            place.store,
            facts,
            place.size,
            address=own_address(place.settings.launcher),
            secret=place.secret,
            timeout_s=settings.start_timeout_s,
            in_vain=in_vain,
        )
        try:
            transport = self._transport(place, PrefixStore("data", place.store), range(place.size))
        except BaseException:
            control.close()
            raise
        return control, transport

    def _transport(self, place: WorldPlace, store: Any, ranks: Sequence[int]) -> DataTransport:
        """Make the transport of some ranks, this one among them."""
        if len(ranks) == 1:
            return AloneTransport()
        with roll.interruptible(place.in_vain) if place.in_vain is not None else _nothing():
            index = list(ranks).index(place.rank)
            timeout_s = self._settings.timeout_s
            return GroupTransport(store, index, len(ranks), timeout_s, place.settings)

    def shutdown(self) -> None:
        """Leave the world, and so end it for all; harmless if there is none."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        engine.stop()
        for each in (*self._sets, global_process_set):
            each.attach(None, None)
        self._sets = []
        self._place = self._cross = None
        if self._places is not None:
            self._places.left()

    def forked(self) -> None:
        """Leave the engine to the process that was forked; this one still knows who that is, as loaders of data ask."""
        self._of_parent = self._engine  # kept: to free it would close what both processes share
        self._engine = self._places = None
        self._sets = []
        self.handles = HandleTable()
        global_process_set.attach(None, None)

    # -- who we are -----------------------------------------------------------------------------------

    @property
    def initialized(self) -> bool:
        return self._engine is not None

    @property
    def places(self) -> Places | None:
        """Return where this process's places come from, once it was initialized."""
        return self._places

    @property
    def place(self) -> WorldPlace:
        if self._place is None:
            raise ValueError(NOT_INITIALIZED)
        return self._place

    @property
    def cross(self) -> CrossPlace:
        if self._cross is None:
            raise ValueError(NOT_INITIALIZED)
        return self._cross

    @property
    def engine(self) -> HorovodEngine:
        """The engine, for operations."""
        if self._engine is None:
            raise HorovodInternalError(NOT_INITIALIZED)
        return self._engine

    # -- names ----------------------------------------------------------------------------------------

    def name_of(self, kind: str, set_id: int, name: str | None) -> str:
        """Return the name under which an operation is matched; those without one are counted, by set and kind."""
        if name is not None:
            return f"{kind}.{name}"
        self._counters[set_id, kind] += 1
        since = f"{self._joins}." if self._joins else ""
        return f"{kind}.noname.{since}{self._counters[set_id, kind]}"

    def note_join(self) -> None:
        """Count unnamed operations anew, as all ranks have joined: those that joined early have had fewer."""
        self._joins += 1
        self._counters.clear()

    # -- process sets ---------------------------------------------------------------------------------

    def add_process_set(self, given: ProcessSet | Sequence[int]) -> ProcessSet:
        """Register a set; all ranks call this alike."""
        made = given if isinstance(given, ProcessSet) else ProcessSet(given)
        self._need_dynamic()
        self._register(made)
        return made

    def remove_process_set(self, given: ProcessSet) -> bool:
        """Remove a set; all ranks call this alike. The global set and unknown ones are not removed."""
        engine = self.engine
        self._need_dynamic()
        number = given.process_set_id
        if number is None or number == GLOBAL_SET or number not in engine.sets:
            return False
        name = self.name_of("remove_process_set", GLOBAL_SET, None)
        request = OpRequest(OpKind.REMOVE_SET, GLOBAL_SET, name, root=number)
        op = HorovodOp(request, request.key)
        engine.submit(op, hurry=True)
        engine.wait(op)
        op.result()
        for each in (*self._sets, given):
            if each.process_set_id == number:
                each.attach(None, None)
        self._sets = [each for each in self._sets if each.process_set_id is not None]
        return True

    def _need_dynamic(self) -> None:
        _ = self.engine
        if not self._dynamic:
            raise ValueError(
                "process sets must be allowed to change, got neither HOROVOD_DYNAMIC_PROCESS_SETS=1 nor "
                'hvd.init(process_sets="dynamic"); set one of them'
            )

    def _register(self, made: ProcessSet) -> None:
        engine = self.engine
        ranks = tuple(made.ranks or ())
        self._check_ranks(ranks, engine)
        name = self.name_of("add_process_set", GLOBAL_SET, None)
        request = OpRequest(OpKind.ADD_SET, GLOBAL_SET, name, splits=ranks)
        op = HorovodOp(request, request.key)
        engine.submit(op, hurry=True)
        engine.wait(op)
        made.attach(engine, op.result())
        self._sets.append(made)

    def _check_ranks(self, ranks: tuple[int, ...], engine: HorovodEngine) -> None:
        if not ranks or len(set(ranks)) != len(ranks) or not all(0 <= rank < engine.size for rank in ranks):
            raise ValueError(
                f"a process set must have different ranks below {engine.size}, got {list(ranks)}; mend them"
            )
        if ranks in engine.sets.values():
            raise ValueError(
                f"a process set must be new, got {list(ranks)}, which is there already; use that one"
            )

    def _change_sets(self, number: int, request: OpRequest) -> None:
        """Carry out a change that all ranks have agreed on; the executing thread calls this."""
        engine, place = self._engine, self._place
        assert engine is not None
        assert place is not None
        if request.kind == OpKind.REMOVE_SET:
            engine.sets.pop(number, None)
            transport = engine.transports.pop(number, None)
            if transport is not None:
                transport.close()
            engine.drop_set(number)
            return
        if place.rank in request.splits:
            store = PrefixStore(f"set/{number}", place.store) if place.store is not None else None
            engine.transports[number] = self._transport(place, store, request.splits)
        engine.sets[number] = request.splits

    def sets(self) -> dict[int, list[int]]:
        """Return the ranks of all process sets, by number."""
        return {number: list(ranks) for number, ranks in self.engine.sets.items()}

    # -- timelines ------------------------------------------------------------------------------------

    def start_timeline(self, path: str, mark_cycles: bool) -> None:
        self._need_dynamic_timeline()
        self.engine.timeline.start(path, mark_cycles)

    def stop_timeline(self) -> None:
        self._need_dynamic_timeline()
        self.engine.timeline.stop()

    def _need_dynamic_timeline(self) -> None:
        _ = self.place
        if self._settings.timeline != DYNAMIC_TIMELINE:
            raise ValueError(
                "timelines may be started and stopped if HOROVOD_TIMELINE is DYNAMIC from hvd.init() on, got "
                f"{self._settings.timeline!r}; set HOROVOD_TIMELINE=DYNAMIC"
            )


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _find_places() -> Places:
    """Return where places come from: an elastic run's views, or the launcher's variables."""
    from weft.compat.horovod.elastic.membership import elastic_places

    return elastic_places(os.environ) or FixedPlaces()


def _check_comm(comm: Any) -> None:
    if comm:
        raise ValueError(
            "hvd.init() must be called without a communicator or ranks, got comm="
            f"{comm!r}; start the ranks that are wanted with `weft run -n N`, or use process sets"
        )


def _sets_given(process_sets: Any) -> tuple[list[ProcessSet], bool]:
    """Return the sets to register at the start, and whether more may follow."""
    if process_sets is None:
        return [], False
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(f'process_sets must be a list of sets or "dynamic", got {process_sets!r}')
        return [], True
    sets = [each if isinstance(each, ProcessSet) else ProcessSet(each) for each in process_sets]
    ranks = [tuple(each.ranks or ()) for each in sets]
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"process sets must be different, got {[list(each) for each in ranks]}; drop one")
    return sets, False


world = HorovodWorld()
# A child has none of its parent's threads, and would end the world of all at its exit.
os.register_at_fork(after_in_child=world.forked)
