"""Which service is meant, with which token; and that nobody else can read what is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from weft.errors import UsageError
from weft.jobs.client.address import (
    KeptLogin,
    ServiceMissingError,
    credentials_path,
    find_service,
    keep_login,
    local_service,
    plain_url,
    read_logins,
)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment whose folders are a test's own."""
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}


def write_service(home: dict[str, str], pid: int, url: str = "http://127.0.0.1:9999") -> None:
    folder = Path(home["XDG_DATA_HOME"]) / "weft"
    folder.mkdir(parents=True)
    (folder / "service.json").write_text(json.dumps({"pid": pid, "url": url, "token": "local"}))


def test_nothing_known_says_weft_up(home: dict[str, str]) -> None:
    with pytest.raises(ServiceMissingError, match="got none; start one with `weft up`"):
        find_service(environment=home)


def test_the_service_of_this_machine_is_found(home: dict[str, str]) -> None:
    write_service(home, os.getpid())
    found = find_service(environment=home)
    assert (found.url, found.token) == ("http://127.0.0.1:9999", "local")
    assert find_service("127.0.0.1:9999/", environment=home).token == "local"


def test_a_service_that_has_ended_is_not_there(home: dict[str, str]) -> None:
    write_service(home, pid=2**22 + 1)  # above the largest pid of Linux
    assert local_service(Path(home["XDG_DATA_HOME"]) / "weft") is None
    with pytest.raises(ServiceMissingError):
        find_service(environment=home)


def test_the_last_login_is_the_default(home: dict[str, str]) -> None:
    path = credentials_path(home)
    keep_login(path, "https://a:8765", KeptLogin("ta", "ann"))
    keep_login(path, "https://b:8765", KeptLogin("tb", "ann"))
    assert find_service(environment=home).url == "https://b:8765"
    assert find_service("https://a:8765/", environment=home).token == "ta"
    assert find_service("https://c", environment=home).token is None
    keep_login(path, "https://b:8765", None)
    with pytest.raises(ServiceMissingError):
        find_service(environment=home)
    assert find_service("https://a:8765", environment=home).token == "ta"


def test_a_token_of_the_environment_is_not_sent_elsewhere(home: dict[str, str]) -> None:
    named = {**home, "WEFT_URL": "https://a:8765", "WEFT_TOKEN": "t"}
    assert find_service(environment=named).token == "t"
    assert find_service("https://a:8765/", environment=named).token == "t"
    assert find_service("https://evil:8765", environment=named).token is None
    assert find_service("https://evil:8765", "mine", environment=named).token == "mine"


def test_logins_are_readable_by_their_owner_alone(home: dict[str, str]) -> None:
    path = credentials_path(home)
    keep_login(path, "https://a", KeptLogin("t"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(UsageError, match="readable by you alone, got mode 644; write chmod 600"):
        read_logins(path)


@pytest.mark.parametrize("data", ["", "[]", '{"services": 3}', "\x00"])
def test_damaged_logins_are_told(home: dict[str, str], data: str) -> None:
    path = credentials_path(home)
    keep_login(path, "https://a", KeptLogin("t"))
    path.write_text(data)
    with pytest.raises(UsageError, match="must hold logins"):
        read_logins(path)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("gpu1:8765", "http://gpu1:8765"),
        ("https://GPU1/weft/", "https://gpu1/weft"),
        ("http://[::1]:80/", "http://[::1]:80"),
    ],
)
def test_urls_are_kept_in_one_form(given: str, plain: str) -> None:
    assert plain_url(given) == plain


@pytest.mark.parametrize(
    "given", ["", "http://", "ftp://a", "http://a:x", "http://u:p@a", "http://[::", "http://a\n"]
)
def test_urls_that_are_none_are_refused(given: str) -> None:
    with pytest.raises(UsageError, match="must look like http://host:8765"):
        plain_url(given)
