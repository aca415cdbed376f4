from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import HostListError, UsageError
from weft.topology.hostlist import HostEntry, expand_hosts, parse_hosts, read_hostfile


@pytest.fixture
def hostfile(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def test_a_list_with_users_counts_and_addresses() -> None:
    assert parse_hosts("a, b:4,user@c,10.0.0.7:2,[fe80::1]:2,fe80::2,user@[::1]") == (
        HostEntry("a"),
        HostEntry("b", 4),
        HostEntry("user@c"),
        HostEntry("10.0.0.7", 2),
        HostEntry("fe80::1", 2),
        HostEntry("fe80::2"),
        HostEntry("user@::1"),
    )


def test_ranges_carry_their_count() -> None:
    assert parse_hosts("node[09-10,7]:2,login") == (
        HostEntry("node09", 2),
        HostEntry("node10", 2),
        HostEntry("node7", 2),
        HostEntry("login"),
    )


def test_ranges_multiply() -> None:
    assert expand_hosts("r[1-2]n[1-2].lan,x") == ("r1n1.lan", "r1n2.lan", "r2n1.lan", "r2n2.lan", "x")


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 4))
def test_a_range_names_each_number_once(first: int, more: int, width: int) -> None:
    names = expand_hosts(f"n[{first:0{width}}-{first + more}]")
    assert [int(name[1:]) for name in names] == list(range(first, first + more + 1))
    assert all(len(name) > width for name in names)


@given(
    st.lists(st.tuples(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.integers(1, 64) | st.none()))
)
def test_what_is_written_is_read(hosts: list[tuple[str, int | None]]) -> None:
    wanted = tuple(HostEntry(name, workers) for name, workers in dict(hosts).items())
    if wanted:
        text = ",".join(host.name + (f":{host.workers}" if host.workers else "") for host in wanted)
        assert parse_hosts(text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a host list must name at least one host, got ''; write host1,host2"),
        ("a,,b", "each entry must name a host, got an empty one in 'a,,b'; remove the comma"),
        ("a,b,", "each entry must name a host, got an empty one in 'a,b,'; remove the comma"),
        (
            "host1,host1",
            "each host must be named once, got host1 twice in 'host1,host1'; write host1:2 for two workers",
        ),
        (
            "a:4,me@A:4",
            "each host must be named once, got me@A twice in 'a:4,me@A:4'; write a:8 for 8 workers",
        ),
        (
            "a:0",
            "the workers of a host must be a whole number of at least 1, got '0' in 'a:0'; "
            "mend the number, or leave it out",
        ),
        (
            "fe80::1%$(x)",
            "the scope of an address must be the name of a network card, got '$(x)' in 'fe80::1%$(x)'; "
            "write fe80::1%eth0",
        ),
        ("fe80::1%", None),
        ("fe80::1%-oProxyCommand=x", None),
        ("fe80::1%eth0 x", None),
        ("[fe80::1%a;b]:2", None),
        ("fe80::1%a-name-of-16-lett", None),
        ("a:5-9,b", None),
        ("a:-1", None),
        ("a:", None),
        ("a:x", None),
        ("a:b:c", "an address must be well formed, got 'a:b:c'; write [fe80::1]:2"),
        (
            "-oProxyCommand=x",
            "a host must be a name, an address or a range, got '-oProxyCommand=x' in '-oProxyCommand=x'; "
            "write host1, user@host1, 10.0.0.1, [fe80::1] or node[01-04]",
        ),
        ("me@-x", None),
        ("a b", None),
        ("@a", None),
        ("a@b@c", None),
        ("node[1-", None),
        ("[1-2]x y", None),
        ("node[4-1]", "a range must look like node[01-04,7], got 'node[4-1]'; mend the brackets"),
        ("node[]", None),
        ("node[a-b]", None),
        ("n[0-999999]", "a range must name at most 65536 hosts, got 'n[0-999999]'; mend the brackets"),
        ("n[0-999]m[0-999]", None),
    ],
)
def test_a_bad_list_is_told_in_one_line(text: str, message: str | None) -> None:
    with pytest.raises(HostListError) as caught:
        parse_hosts(text)
    assert "\n" not in str(caught.value)
    if message:
        assert str(caught.value) == message


@given(st.text(alphabet="ab1:,@[]-. ", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        hosts = parse_hosts(text)
    except UsageError:
        return
    assert hosts
    assert all(not host.name.startswith("-") and " " not in host.name for host in hosts)


def test_hostfiles_of_open_mpi_horovod_and_mpich(hostfile: Path) -> None:
    hostfile.write_text(
        "# the lab\n\na\nb slots=4\n  c slots = 2 max_slots=8  # shared\n"
        "d:3\nme@e\nnode[1-2] slots=2\nfe80::1 slots=2\n"
    )
    assert read_hostfile(hostfile) == (
        HostEntry("a"),
        HostEntry("b", 4),
        HostEntry("c", 2),
        HostEntry("d", 3),
        HostEntry("me@e"),
        HostEntry("node1", 2),
        HostEntry("node2", 2),
        HostEntry("fe80::1", 2),
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "a\nb slots=0",
            2,
            "the workers of a host must be a whole number of at least 1, got '0' in 'b slots=0'",
        ),
        ("a\n\na", 3, "each host must be named once, got a twice; write a slots=2 for two workers"),
        ("a port=22", 1, "a line must look like 'host' or 'host slots=4', got 'a port=22'; mend the line"),
        ("a,b", 1, "a host must be a name, an address or a range, got 'a,b'"),
    ],
)
def test_errors_of_a_hostfile_name_the_line(hostfile: Path, text: str, line: int, message: str) -> None:
    hostfile.write_text(text)
    with pytest.raises(HostListError) as caught:
        read_hostfile(hostfile)
    assert str(caught.value).startswith(f"{hostfile}:{line}: {message}")


def test_an_empty_hostfile(hostfile: Path) -> None:
    hostfile.write_text("# nobody\n")
    with pytest.raises(HostListError, match="must name at least one host, got none"):
        read_hostfile(hostfile)


def test_a_hostfile_that_cannot_be_read(hostfile: Path, tmp_path: Path) -> None:
    with pytest.raises(HostListError, match=r"got .*hosts \(No such file or directory\); check the path"):
        read_hostfile(hostfile)
    with pytest.raises(HostListError, match="Is a directory"):
        read_hostfile(tmp_path)
    hostfile.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HostListError, match="not a text file"):
        read_hostfile(hostfile)


def test_a_line_tells_which_part_of_a_shared_host_is_the_runs(hostfile: Path) -> None:
    hostfile.write_text("a slots=2 cpus=8-9,0-1 gpus=3,1\nb gpus = none\nc:3 cpus=4\n")
    entries = read_hostfile(hostfile)
    assert entries == (
        HostEntry("a", 2, (8, 9, 0, 1), (3, 1)),
        HostEntry("b", gpus=()),
        HostEntry("c", 3, (4,)),
    )
    hostfile.write_text("".join(entry.to_line() + "\n" for entry in entries))
    assert read_hostfile(hostfile) == entries


@pytest.mark.parametrize("text", ["cpus=3-1", "cpus=a", "gpus=0,0", "gpus=", "cpus=none"])
def test_a_part_that_is_no_list_is_refused(hostfile: Path, text: str) -> None:
    hostfile.write_text(f"a slots=2 {text}\n")
    with pytest.raises(HostListError, match=r"must be a list such as 0-3,8|a line must look like"):
        read_hostfile(hostfile)
