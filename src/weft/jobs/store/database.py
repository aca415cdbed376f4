"""The database of the service: opened from an address, brought to today's schema, written by one thread.

    database = Database.open("sqlite:////var/lib/weft/weft.db")        or "postgresql://user@host/weft"
    await database.write(lambda connection: connection.execute(...))   in a transaction shared with others
    await database.read(lambda connection: ...)

Many small writes a second are cheap only together: the writer takes all that wait into one transaction. Each has a
savepoint of its own, so one that fails undoes nothing but itself, and none is answered before the commit. Those that
are a `JoinedWrite` of one kind are carried out by one call, which a server answers in one message.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.store.schema import upgrade

READERS = 4  # threads that answer questions at the same time
MOST_TOGETHER = 512  # writes in one transaction
STANDSTILL_MS = 5000  # after which PostgreSQL ends a transaction in which nothing happens
_WRITE_LOCK = 0x77656675  # PostgreSQL's advisory lock of those who write
BUSY_MS = 30_000  # for which SQLite waits for another process's write
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Work = Callable[[sa.Connection], T]


class JoinedWrite(Protocol[T_co]):
    """A write that can be carried out with others of its class at once."""

    def __call__(self, connection: sa.Connection) -> T_co: ...
    @classmethod
    def write_all(cls, connection: sa.Connection, works: Sequence[Any]) -> Sequence[T_co]:
        """Carry out several and return their results; if it raises, each is carried out alone."""


class Database:
    """One database; `write` and `read` may be called from any thread."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        # A server that is asked outside of transactions answers in one message in place of three. What is read
        # is the same: under READ COMMITTED every statement sees the newest commits in any case.
        outside = {"isolation_level": "AUTOCOMMIT"} if engine.dialect.name == "postgresql" else {}
        self._reading = engine.execution_options(**outside)
        self._pending: SimpleQueue[tuple[Work[Any], Future[Any]] | None] = SimpleQueue()
        self._listeners: list[Callable[[], object]] = []
        self._readers = ThreadPoolExecutor(READERS, "database-reader")
        self._writer = threading.Thread(target=self._write_all, name="database-writer", daemon=True)
        self._writer.start()

    @classmethod
    def open(cls, address: str) -> Database:
        """Open a database, make or upgrade its tables; a newer schema than ours is refused."""
        engine = make_engine(address)
        try:
            upgrade(engine)
        except BaseException as error:
            engine.dispose()
            if not isinstance(error, sa.exc.OperationalError):
                raise
            reason = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
            shown = engine.url.render_as_string(hide_password=True)
            raise UsageError(
                f"the database must be reachable, got {shown}: {reason}; check --database"
            ) from None
        return cls(engine)

    def close(self) -> None:
        """Finish what waits to be written, and let the database go."""
        self._pending.put(None)
        self._writer.join()
        self._readers.shutdown()
        self.engine.dispose()

    def on_commit(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call a function, which must be quick, in the writer's thread after each commit; return what ends that."""
        self._listeners = [*self._listeners, listener]

        def forget() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        return forget

    def submit(self, work: Work[T]) -> Future[T]:
        """Write within the next transaction; the result comes after its commit."""
        result: Future[T] = Future()
        self._pending.put((work, result))
        return result

    async def write(self, work: Work[T]) -> T:
        return await asyncio.wrap_future(self.submit(work))

    async def read(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self.ask, work)

    def ask(self, work: Work[T]) -> T:
        """Read in this thread; once more if the connection turns out to have been lost since it was last used."""
        try:
            with self._reading.connect() as connection:
                return work(connection)
        except sa.exc.DBAPIError as error:
            if not error.connection_invalidated:
                raise
        with self._reading.connect() as connection:
            return work(connection)

    # -- the writer -------------------------------------------------------------------------------

    def _write_all(self) -> None:
        open_ = True
        while open_:
            first = self._pending.get()
            if first is None:
                return
            batch = [first]
            with suppress(Empty):
                while len(batch) < MOST_TOGETHER:
                    another = self._pending.get_nowait()
                    if another is None:
                        open_ = False
                        break
                    batch.append(another)
            self._write(batch)

    def _write(self, batch: list[tuple[Work[Any], Future[Any]]]) -> None:
        # A caller that was cancelled meanwhile does not wait any more; after this, none can cancel.
        batch = [(work, result) for work, result in batch if result.set_running_or_notify_cancel()]
        done: list[tuple[Future[Any], Any]] = []
        try:
            with self._turn() as connection:
                first = True
                for kind, several in _joined(batch):
                    if kind is not None:
                        _next_savepoint(connection, first=first)
                        first = False
                        try:
                            values = kind.write_all(connection, [work for work, _ in several])
                        except Exception:  # of one of them: found out below, one by one
                            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT work")
                        else:
                            done += zip([result for _, result in several], values, strict=True)
                            continue
                    for work, result in several:
                        if len(batch) > 1:
                            _next_savepoint(connection, first=first)
                            first = False
                        try:
                            done.append((result, work(connection)))
                        except Exception as error:  # the caller's, who is told
                            if len(batch) == 1:
                                raise
                            connection.exec_driver_sql("ROLLBACK TO SAVEPOINT work")
                            result.set_exception(error)
        except Exception as error:  # the commit failed, or the connection is gone: nothing was written
            for _, result in batch:
                if not result.done():
                    result.set_exception(error)
            return
        for result, value in done:
            result.set_result(value)
        for listener in self._listeners:
            listener()

    @contextmanager
    def _turn(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that is committed at the end; no other service writes meanwhile."""
        with ExitStack() as stack:
            engine = self.engine.execution_options(writes=True)
            try:
                connection = stack.enter_context(engine.begin())
                _wait_for_turn(connection)
            except sa.exc.DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                # It was lost since it was last used, and nothing was written: the pool makes another.
                with suppress(sa.exc.SQLAlchemyError):
                    stack.pop_all().close()
                connection = stack.enter_context(engine.begin())
                _wait_for_turn(connection)
            yield connection


def _joined(
    batch: Sequence[tuple[Work[Any], Future[Any]]],
) -> Iterator[tuple[type[JoinedWrite[Any]] | None, list[tuple[Work[Any], Future[Any]]]]]:
    """Yield writes in their order, those of one kind that follow each other together with what carries them out."""
    for kind, found in groupby(batch, key=lambda one: type(one[0])):
        several = list(found)
        yield (kind if len(several) > 1 and hasattr(kind, "write_all") else None), several


def make_engine(address: str) -> sa.Engine:
    """Return an engine for SQLite or PostgreSQL."""
    try:
        url = sa.make_url(address)
    except sa.exc.ArgumentError:
        url = sa.URL.create("unknown")
    if url.drivername in ("postgresql", "postgres"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageError(
            "the database must be sqlite:///PATH or postgresql://USER@HOST/NAME, "
            f"got {address.partition('://')[0] + '://...'!r}; leave --database out for SQLite"
        )
    if url.get_backend_name() == "postgresql":
        # A service that stands still in the middle of a transaction must not keep the others waiting for long.
        limits = {"options": f"-c idle_in_transaction_session_timeout={STANDSTILL_MS}"}
        return sa.create_engine(url, pool_size=READERS + 1, connect_args=limits)
    engine = sa.create_engine(url, pool_size=READERS + 1, connect_args={"timeout": BUSY_MS / 1000})
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _wait_for_turn(connection: sa.Connection) -> None:
    """Let one service write at a time, as SQLite does by itself: events come in order, nobody waits in a circle."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")


def _next_savepoint(connection: sa.Connection, *, first: bool) -> None:
    """Keep what was written so far whatever becomes of the next piece, in one message to a server."""
    statements = ["SAVEPOINT work"] if first else ["RELEASE SAVEPOINT work", "SAVEPOINT work"]
    if connection.dialect.name == "postgresql":
        statements = ["; ".join(statements)]
    for statement in statements:
        connection.exec_driver_sql(statement)


def _set_up_sqlite(connection: Any, record: Any) -> None:
    """Readers go on while one writes; a commit outlives the process, and with FULL a loss of power, too."""
    # Python's sqlite3 begins transactions late and breaks savepoints; SQLAlchemy says BEGIN itself (_begin_sqlite).
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A reader that turns into a writer fails when another has written meanwhile, so writers say so from the start.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
