"""How a rank waits: it spins with a core of its own, and sleeps soon where others want the core."""

from __future__ import annotations

from weft.collectives.modes.shared_memory.waiting import (
    LONGEST_REST_S,
    LOOKS_A_YIELD,
    MANY_LOOKS,
    SHORTEST_REST_S,
    SLOW_YIELD_S,
    Spinner,
)


class Core:
    """A core whose clock moves when it is given up: by as much as others want of it."""

    def __init__(self, *, core_for_each: bool = True) -> None:
        self.now, self.others_take_s, self.yields = 100.0, 0.0, 0
        self.spinner = Spinner(core_for_each=core_for_each, clock=lambda: self.now, give_way=self.give_way)
        self.counters = memoryview(bytearray(8)).cast("Q")

    def give_way(self) -> None:
        self.yields += 1
        self.now += self.others_take_s

    def saw(self) -> bool:
        self.yields = 0
        return self.spinner.saw(self.counters, 0, 1)


def test_a_peer_that_is_there_is_seen_without_a_yield() -> None:
    core = Core()
    core.counters[0] = 1
    assert core.saw()
    assert core.yields == 0


def test_alone_on_its_core_a_rank_spins_for_as_long_as_it_may() -> None:
    core = Core()
    assert not core.saw()
    assert core.yields == MANY_LOOKS // LOOKS_A_YIELD


def test_a_rank_gives_up_after_one_slow_yield_and_does_not_yield_for_a_while() -> None:
    core = Core()
    core.others_take_s = 0.003
    assert not core.saw()
    assert core.yields == 1
    assert not core.saw()
    assert core.yields == 0
    core.counters[0] = 1
    assert core.saw()  # it looks all the same
    core.counters[0] = 0
    core.now += SHORTEST_REST_S
    assert not core.saw()
    assert core.yields == 1


def test_rests_grow_while_the_core_is_wanted_and_end_with_it() -> None:
    core = Core()
    core.others_take_s = 2 * SLOW_YIELD_S
    tries = 0
    began = core.now
    while core.now < began + 20 * LONGEST_REST_S:
        core.saw()
        tries += core.yields
        core.now += 0.001
    assert 20 <= tries <= 35  # a yield every three seconds, once it is known
    core.others_take_s = 0.0
    core.now += LONGEST_REST_S
    core.saw()
    assert core.yields == MANY_LOOKS // LOOKS_A_YIELD
    core.others_take_s = 2 * SLOW_YIELD_S
    core.saw()  # one busy moment
    core.others_take_s, core.now = 0.0, core.now + 2 * SHORTEST_REST_S
    core.saw()
    assert core.yields == MANY_LOOKS // LOOKS_A_YIELD


def test_ranks_that_share_cores_yield_once_a_wait_however_long_it_takes() -> None:
    core = Core(core_for_each=False)
    core.others_take_s = 0.003
    for _ in range(3):
        assert not core.saw()
        assert core.yields == 1
