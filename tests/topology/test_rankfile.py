from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topology.machines import machine, machines

from weft.errors import RankfileError, UsageError
from weft.topology.dimensions import infer_dimensions
from weft.topology.host import Host
from weft.topology.rankfile import Rankfile, RankLine, RankOrder, deal, parse_rankfile, rankfile_for, render

FOUR_HOSTS = """\
#host = host1,host2,host3,host4
#aisles = 1
#racks = 1
#nodes = 4
#accelerators = 4
#sockets = 2
#cores = 16

rank 0=host1 slot=0:0-7
rank 4=host1 slot=0:8-15
rank 8=host1 slot=1:0-7
rank 12=host1 slot=1:8-15

rank 1=host2 slot=0:0-7
rank 5=host2 slot=0:8-15
rank 9=host2 slot=1:0-7
rank 13=host2 slot=1:8-15

rank 2=host3 slot=0:0-7
rank 6=host3 slot=0:8-15
rank 10=host3 slot=1:0-7
rank 14=host3 slot=1:8-15

rank 3=host4 slot=0:0-7
rank 7=host4 slot=0:8-15
rank 11=host4 slot=1:0-7
rank 15=host4 slot=1:8-15
"""

orders: st.SearchStrategy[RankOrder] = st.sampled_from(["round-robin", "host"])
worlds = st.lists(st.integers(1, 6), min_size=1, max_size=6)


def test_the_file_of_four_hosts_with_four_accelerators() -> None:
    hosts = [(machine(f"host{number}"), 4) for number in (1, 2, 3, 4)]
    assert render(rankfile_for(hosts, "round-robin")) == FOUR_HOSTS
    assert render(parse_rankfile(FOUR_HOSTS)) == FOUR_HOSTS


def test_declared_dimensions_stand_in_the_header() -> None:
    hosts = [(machine(f"host{number}"), 4) for number in (1, 2, 3, 4)]
    made = rankfile_for(hosts, "host", infer_dimensions([4] * 4, racks=2))
    assert (made.nodes, made.racks, made.aisles) == (2, 2, 1)
    assert [line.rank for line in made.lines] == list(range(16))


def test_the_header_is_silent_where_hosts_differ() -> None:
    made = rankfile_for([(machine("a"), 4), (machine("b", cores=(8,), accelerators=(0,)), 1)], "round-robin")
    assert (made.accelerators, made.sockets, made.cores) == (None, None, None)
    assert "#cores" not in render(made)


def test_dealing() -> None:
    assert deal([("a", 2), ("b", 2)], "round-robin") == ((0, 2), (1, 3))
    assert deal([("a", 2), ("b", 2)], "host") == ((0, 1), (2, 3))
    assert deal([("a", 3), ("b", 1), ("c", 2)], "round-robin") == ((0, 3, 5), (1,), (2, 4))


@given(worlds, orders)
def test_every_rank_is_dealt_once(counts: list[int], order: RankOrder) -> None:
    dealt = deal([(f"h{place}", count) for place, count in enumerate(counts)], order)
    assert [len(ranks) for ranks in dealt] == counts
    assert sorted(chain(*dealt)) == list(range(sum(counts)))
    assert all(list(ranks) == sorted(ranks) for ranks in dealt)


@given(st.integers(1, 8), st.integers(1, 8))
def test_in_an_even_world_rank_r_is_on_host_r_mod_h(hosts: int, workers: int) -> None:
    dealt = deal([(f"h{place}", workers) for place in range(hosts)], "round-robin")
    assert all(rank % hosts == place for place, ranks in enumerate(dealt) for rank in ranks)


@given(st.lists(st.tuples(machines(), st.integers(1, 8)), min_size=1, max_size=4), orders)
def test_what_is_written_is_read(asked: list[tuple[Host, int]], order: RankOrder) -> None:
    named = [
        (Host(name=f"h{place}", cores=host.cores, accelerators=host.accelerators), workers)
        for place, (host, workers) in enumerate(asked)
    ]
    made = rankfile_for(named, order)
    text = render(made)
    assert parse_rankfile(text) == made
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_a_file_written_by_hand() -> None:
    text = """
    # two machines
    rank 1 = b   slot=0:3      # one core
\trank 0=a slots = 1:0-3,4-7
    """
    assert parse_rankfile(text) == Rankfile(
        hosts=("b", "a"),
        lines=(
            RankLine(rank=1, host="b", socket=0, first_core=3, last_core=3),
            RankLine(rank=0, host="a", socket=1, first_core=0, last_core=7),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mine: a rank file must have a line for each rank, got none; add 'rank 0=...'"),
        ("#racks = 1\n", "mine: a rank file must have a line for each rank, got none; add 'rank 0=...'"),
        (
            "\nrank zero=a slot=0:0",
            "mine:2: a line must look like 'rank 0=host1 slot=0:0-7', "
            "got 'rank zero=a slot=0:0'; mend the line",
        ),
        ("rank 0=a", None),
        ("rank 0=a slot=", None),
        (
            "rank 0=a slot=0:0\nrank 0=a slot=0:1",
            "mine:2: each rank must be given once, got rank 0 again (first on line 1); renumber one of them",
        ),
        (
            "rank 0=a slot=0:0\nrank 2=a slot=0:1",
            "mine: ranks must run from 0 to 1 with none missing, got no rank 1; "
            "add its line or renumber the others",
        ),
        (
            "rank 0=a slot=3",
            "mine:1: a slot must be a socket and one stretch of its cores, got 'slot=3'; "
            "write slot=0:0-7, or slot=0:3 for one core",
        ),
        ("rank 0=a slot=0:0,2", None),
        ("rank 0=a slot=0:7-0", None),
        ("rank 0=a slot=0:*", None),
        ("rank 0=a slot=0:0-1;1:0", None),
        ("rank 0=a slot=0:-", None),
        ("rank 0=+n0 slot=0:0", "mine:1: a host must be given by name, got '+n0'; write the host's name"),
        (
            "#racks = two\nrank 0=a slot=0:0",
            "mine:1: #racks must be a whole number of at least 1, got 'two'; mend the header",
        ),
        (
            "#host = a,b\nrank 0=a slot=0:0",
            "mine: each host of the header must have a rank, got none on b; "
            "give it a rank or take it out of '#host ='",
        ),
        (
            "#host = a\nrank 0=a slot=0:0\nrank 1=b slot=0:0",
            "mine: each host must stand in the header, got b only below it; add it to '#host ='",
        ),
    ],
)
def test_a_bad_file_is_told_in_one_line(text: str, message: str | None) -> None:
    with pytest.raises(RankfileError) as caught:
        parse_rankfile(text, source="mine")
    assert "\n" not in str(caught.value)
    if message:
        assert str(caught.value) == message


@given(st.text(alphabet="rank 01=slot:,-#\n", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UsageError):
        assert parse_rankfile(text).lines
