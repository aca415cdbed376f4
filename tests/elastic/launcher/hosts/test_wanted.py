"""Which hosts a run should have: what is newly said counts, and what cannot be read changes nothing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from testing.cluster.waiting import wait_until

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.hosts.wanted import HostsWanted, discover
from weft.errors import HostListError
from weft.files import write_whole
from weft.topology.hostlist import parse_hosts


def write(path: Path, text: str, when: int) -> None:
    """With a time of its own: two writes may come within one tick of the clock."""
    path.write_text(text)
    os.utime(path, ns=(when, when))


def names(wanted: HostsWanted) -> list[str]:
    return [entry.name for entry in wanted.hosts]


def test_a_hostfile_is_followed_and_a_broken_one_warned_of_once(tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    write(hostfile, "a\nb\n", 1)
    said: list[str] = []
    wanted = HostsWanted(parse_hosts("a,b"), ElasticConfig(most=2, hostfile=hostfile), warn=said.append)
    assert not wanted.look()
    for when, broken in enumerate(["", "a:many\n", "# nobody\n"], 2):
        write(hostfile, broken, when)
        assert not wanted.look()
        assert not wanted.look()
        assert len(said) == when - 1
        assert said[-1].endswith("; the run keeps a, b")
    hostfile.unlink()
    assert not wanted.look()
    write(hostfile, "b\nc:2\n", 9)
    assert wanted.look()
    assert names(wanted) == ["b", "c"]
    assert not wanted.look()


def test_what_weft_scale_writes_is_taken_over_once(tmp_path: Path) -> None:
    hostfile, scaled = tmp_path / "hosts", tmp_path / "scaled"
    write(hostfile, "a\n", 1)
    wanted = HostsWanted(parse_hosts("a"), ElasticConfig(most=2, hostfile=hostfile), warn=print)
    wanted.scale_file = scaled
    assert not wanted.look()
    write(scaled, "a\nb\n", 2)
    assert wanted.look()
    assert names(wanted) == ["a", "b"]
    write(hostfile, "c\n", 3)  # the newest word counts
    assert wanted.look()
    assert names(wanted) == ["c"]


def test_a_script_is_asked_again_and_again(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.write_text("a\n")
    said: list[str] = []
    elastic = ElasticConfig(most=2, discover=f"cat {found}")
    wanted = HostsWanted(parse_hosts("a"), elastic, warn=said.append)
    scaled = wanted.scale_file = tmp_path / "scaled"
    write_whole(found, "a\nb:2\n")  # or the script would print an empty file now and then
    wait_until(wanted.look, "another answer")
    assert names(wanted) == ["a", "b"]
    scaled.write_text("c\n")
    assert wanted.look()
    assert not wanted.look(), "the script has said nothing new since"
    found.unlink()
    wait_until(lambda: wanted.look() or said, "a warning")
    assert names(wanted) == ["c"]
    assert "a discovery script must exit with 0, got 1" in said[0]
    wanted.close()


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("true", "must print at least one host, got none from 'true'"),
        ("echo lost >&2; exit 3", "must exit with 0, got 3 from 'echo lost >&2; exit 3': lost"),
        ("echo a:b:c", "a:b:c"),
    ],
)
def test_a_script_that_says_nothing_good_is_told_so(command: str, complaint: str) -> None:
    with pytest.raises(HostListError, match=re.escape(complaint)):
        discover(command)
