"""Where pieces go in the slabs: what is being read is never written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.collectives.modes.shared_memory.shm import SLOTS, Turns

SLAB_BYTES = 1 << 16
sizes = st.lists(st.integers(1, SLAB_BYTES // 2), min_size=2, max_size=100)


@given(sizes, st.data())
def test_a_piece_lies_in_the_slab_and_beside_the_one_before(pieces: list[int], data: st.DataObject) -> None:
    turns = Turns(SLAB_BYTES, 8 * SLAB_BYTES)
    before = (0, 0)
    for nbytes in pieces:
        wide = data.draw(st.booleans())
        begin = turns.next(nbytes, wide=wide)
        end = begin + nbytes
        assert begin % (SLAB_BYTES // SLOTS) == 0
        assert end <= (8 * SLAB_BYTES if wide else SLAB_BYTES)
        assert end <= before[0] or begin >= before[1]
        before = (begin, end)


def test_small_pieces_go_all_the_way_round() -> None:
    turns = Turns(SLAB_BYTES)
    places = [turns.next(8) for _ in range(2 * SLOTS)]
    assert len(set(places)) == SLOTS
    assert places[:SLOTS] == places[SLOTS:]
