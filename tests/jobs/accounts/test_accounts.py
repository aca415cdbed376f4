from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from weft.errors import UsageError
from weft.jobs.accounts.guesses import GuessLimit
from weft.jobs.accounts.passwords import hash_password, is_password
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.accounts.tokens import (
    find_holder,
    list_tokens,
    make_token,
    remove_expired,
    remove_token,
    use_link,
)
from weft.jobs.accounts.users import AccountConflictError, add_user, change_user, find_user, remove_user
from weft.jobs.store.database import Database
from weft.jobs.store.events import now_ms


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(f"sqlite:///{tmp_path}/weft.db")
    yield opened
    opened.close()


def test_a_password_is_known_by_its_salted_hash_alone() -> None:
    one, other = hash_password("correct horse"), hash_password("correct horse")
    assert one != other
    assert "horse" not in one
    assert len(one) <= 200  # the column
    assert is_password("correct horse", one)
    assert is_password("correct horse", other)
    assert not is_password("correct hors", one)
    assert not is_password("", None)
    assert not is_password("x", "not a hash")


def test_a_sealed_secret_opens_with_its_key_alone(tmp_path: Path) -> None:
    sealer = Sealer(tmp_path / "secret.key")
    sealed = sealer.seal("hf_123")
    assert b"hf_123" not in sealed
    assert S_IMODE((tmp_path / "secret.key").stat().st_mode) == 0o600
    assert Sealer(tmp_path / "secret.key").open(sealed) == "hf_123"
    with pytest.raises(UsageError, match="another key"):
        Sealer(tmp_path / "other.key").open(sealed)
    (tmp_path / "bad.key").write_text("no key")
    with pytest.raises(UsageError, match="must hold the key"):
        Sealer(tmp_path / "bad.key")


def test_tokens_are_found_by_text_until_they_expire_or_are_revoked(database: Database) -> None:
    def work(c):  # type: ignore[no-untyped-def]
        ann = add_user(c, "ann", "member")
        text = make_token(c, ann.id, name="laptop", scopes=("read", "write"))
        late = make_token(c, ann.id, name="late", scopes=("read",), expires_ms=now_ms() - 1)
        return ann, text, late

    ann, text, late = database.submit(work).result()
    holder = database.ask(lambda c: find_holder(c, text, ("api",)))
    assert holder is not None
    assert (holder.account.name, holder.token.scopes) == ("ann", ("read", "write"))
    assert database.ask(lambda c: find_holder(c, text, ("session",))) is None
    assert database.ask(lambda c: find_holder(c, late, ("api",))) is None
    assert database.ask(lambda c: find_holder(c, text + "x", ("api",))) is None
    assert database.submit(remove_expired).result() == 1
    assert [one.name for one in database.ask(lambda c: list_tokens(c, ann.id))] == ["laptop"]
    assert not database.submit(lambda c: remove_token(c, holder.token.id, user_id=ann.id + 1)).result()
    assert database.submit(lambda c: remove_token(c, holder.token.id, user_id=ann.id)).result()
    assert database.ask(lambda c: find_holder(c, text, ("api",))) is None


def test_a_link_logs_in_once(database: Database) -> None:
    ann = database.submit(lambda c: add_user(c, "ann", "member")).result()
    text = database.submit(lambda c: make_token(c, ann.id, kind="link", name="link", scopes=())).result()
    first = database.submit(lambda c: use_link(c, text)).result()
    assert first is not None
    assert first.account.name == "ann"
    assert database.submit(lambda c: use_link(c, text)).result() is None


def test_the_last_administrator_stays(database: Database) -> None:
    root = database.submit(lambda c: add_user(c, "root", "admin")).result()
    with pytest.raises(AccountConflictError, match="last one"):
        database.submit(lambda c: change_user(c, root.id, role="member")).result()
    with pytest.raises(AccountConflictError, match="last one"):
        database.submit(lambda c: remove_user(c, root.id)).result()
    database.submit(lambda c: add_user(c, "other", "admin")).result()
    database.submit(lambda c: remove_user(c, root.id)).result()
    assert database.ask(lambda c: find_user(c, name="root")) is None
    with pytest.raises(AccountConflictError, match="must be new"):
        database.submit(lambda c: add_user(c, "other", "member")).result()


def test_a_disabled_user_and_one_with_another_password_must_log_in_again(database: Database) -> None:
    def work(c):  # type: ignore[no-untyped-def]
        ann = add_user(c, "ann", "member")
        texts = [make_token(c, ann.id, kind=kind, name=kind, scopes=("read",)) for kind in ("api", "session")]
        return ann, *texts

    ann, api, session = database.submit(work).result()
    database.submit(lambda c: change_user(c, ann.id, password_hash="x")).result()
    assert database.ask(lambda c: find_holder(c, session, ("session",))) is None
    assert database.ask(lambda c: find_holder(c, api, ("api",))) is not None
    database.submit(lambda c: change_user(c, ann.id, disabled=True)).result()
    assert database.ask(lambda c: find_holder(c, api, ("api",))) is None


def test_guesses_are_limited_by_address_and_name() -> None:
    now = [0.0]
    limit = GuessLimit(most=3, within_s=60.0, clock=lambda: now[0])
    for _ in range(3):
        assert limit.wait_s("address 1", "name ann") == 0
        limit.failed("address 1", "name ann")
    assert limit.wait_s("address 2", "name ann") == 60
    assert limit.wait_s("address 1", "name bob") == 60
    assert limit.wait_s("address 2", "name bob") == 0
    now[0] = 61.0
    assert limit.wait_s("address 1") == 0
    limit.succeeded("address 1")
    assert limit.wait_s("address 1") == 0
