from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.store import tables
from weft.jobs.store.database import Database, make_engine
from weft.jobs.store.schema import _migrate, newest_version

pytestmark = pytest.mark.xdist_group("databases")  # a server is started for them


def add_host(name: str) -> sa.Insert:
    return sa.insert(tables.host).values(name=name, state="up", labels="[]", rack="", capacity="{}")


def names(database: Database) -> list[str]:
    return database.ask(lambda c: list(c.scalars(sa.select(tables.host.c.name).order_by(tables.host.c.name))))


def test_what_was_written_is_there_when_it_is_opened_again(address: str) -> None:
    first = Database.open(address)
    first.submit(lambda c: c.execute(add_host("a"))).result()
    first.close()
    again = Database.open(address)
    assert names(again) == ["a"]
    again.close()


def test_the_schema_is_what_the_tables_say(database: Database) -> None:
    found = sa.inspect(database.engine)
    for table in tables.metadata.sorted_tables:
        assert {column["name"] for column in found.get_columns(table.name)} == set(table.c.keys())
        assert len(found.get_indexes(table.name)) >= len(table.indexes)


def test_a_new_database_is_what_migrations_make_of_an_empty_one(address: str, tmp_path: Path) -> None:
    made = Database.open(address)
    migrated = make_engine(f"sqlite:///{tmp_path}/migrated.db")
    with migrated.execution_options(writes=True).begin() as connection:
        _migrate(connection, None)
        version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    assert version == newest_version()
    assert made.ask(lambda c: c.scalar(sa.text("SELECT version_num FROM alembic_version"))) == version
    found, wanted = sa.inspect(made.engine), sa.inspect(migrated)
    assert set(found.get_table_names()) == set(wanted.get_table_names())
    for table in wanted.get_table_names():
        assert _columns(found, table) == _columns(wanted, table)
        assert _indexes(found, table) == _indexes(wanted, table)
    migrated.dispose()
    made.close()


def _columns(found: sa.Inspector, table: str) -> dict[str, bool]:
    return {column["name"]: column["nullable"] for column in found.get_columns(table)}


def _indexes(found: sa.Inspector, table: str) -> set[tuple[str | None, tuple[str | None, ...]]]:
    """Return the indexes that were asked for, without those that PostgreSQL makes for constraints."""
    own = [one for one in found.get_indexes(table) if "duplicates_constraint" not in one]
    return {(one["name"], tuple(one["column_names"])) for one in own}


def test_every_module_of_tables_is_declared() -> None:
    folder = Path(tables.__file__).parent
    code = "import sys; import weft.jobs.store.migrations.declared; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in folder.glob("*tables.py"):
        assert f"weft.jobs.store.{module.stem}" in loaded.split()


def test_a_write_that_fails_undoes_nothing_but_itself(database: Database) -> None:
    held = threading.Event()
    results = [database.submit(lambda c: held.wait(60))]  # the others gather behind it, into one transaction
    results += [database.submit(lambda c, n=name: c.execute(add_host(n))) for name in ("a", "b", "a", "c")]  # type: ignore[misc]
    held.set()
    errors = [result.exception(timeout=60) for result in results]
    assert [type(error) for error in errors] == [
        type(None),
        type(None),
        type(None),
        sa.exc.IntegrityError,
        type(None),
    ]
    assert names(database) == ["a", "b", "c"]


def test_a_write_that_is_cancelled_stops_nobody_else(database: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(connection: sa.Connection) -> None:
        begun.set()
        go_on.wait(30)
        connection.execute(add_host("slow"))

    async def cancel_two() -> None:
        first = asyncio.create_task(database.write(slow))
        await asyncio.to_thread(begun.wait, 30)
        second = asyncio.create_task(database.write(lambda c: c.execute(add_host("waiting"))))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        go_on.set()

    asyncio.run(cancel_two())
    database.submit(lambda c: c.execute(add_host("third"))).result(30)
    assert names(database) == ["slow", "third"]  # what was begun is done, what waited is not


def test_many_threads_write_and_read(database: Database) -> None:
    def work(thread: int) -> None:
        for number in range(25):
            database.submit(lambda c, n=number: c.execute(add_host(f"{thread}-{n}"))).result(timeout=60)  # type: ignore[misc]
            assert f"{thread}-{number}" in names(database)  # one's own write is seen at once

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 100


def test_connections_that_the_server_has_ended_are_made_again(database: Database) -> None:
    if database.engine.dialect.name != "postgresql":
        return  # a file has no server
    database.submit(lambda c: c.execute(add_host("a"))).result(60)
    assert names(database) == ["a"]
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    ending = make_engine(database.engine.url.render_as_string(hide_password=False))
    for write in (True, False):
        with ending.connect() as connection:
            connection.execute(sa.text(others + "AND datname = current_database()"))
        if write:
            database.submit(lambda c: c.execute(add_host("b"))).result(60)
        assert names(database) == ["a", "b"]
    ending.dispose()


def test_a_database_of_a_newer_version_is_refused_and_left_alone(address: str) -> None:
    made = Database.open(address)
    made.submit(lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))).result()
    made.close()
    with pytest.raises(UsageError, match="got '9999', which a newer one made"):
        Database.open(address)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("mysql://x/y", "must be sqlite:///PATH or postgresql"),
        ("nonsense", "must be sqlite:///PATH or postgresql"),
        ("sqlite:////nowhere/at/all.db", "must be reachable, got sqlite:////nowhere/at/all.db"),
        ("postgresql://u:secret@/x?host=/nowhere", "must be reachable, got postgresql"),
    ],
)
def test_addresses_that_cannot_be_opened(wrong: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Database.open(wrong)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_two_services_may_start_at_once(address: str) -> None:
    code = "import sys; from weft.jobs.store.database import Database; Database.open(sys.argv[1]).close()"
    services = [subprocess.Popen([sys.executable, "-c", code, address]) for _ in range(2)]
    assert [service.wait(60) for service in services] == [0, 0]
