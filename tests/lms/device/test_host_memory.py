"""Host memory in slabs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import BudgetError
from weft.lms.device.host_memory import PAGE_BYTES, Block, Slabs


def slabs(limit: int = 1 << 24, slab: int = 1 << 16) -> Slabs:
    return Slabs(limit, lambda size: torch.empty(size, dtype=torch.uint8), slab)


@given(st.lists(st.tuples(st.integers(1, 100_000), st.booleans()), max_size=40))
def test_blocks_never_overlap_and_all_comes_back(wanted: list[tuple[int, bool]]) -> None:
    store, live = slabs(), list[Block]()
    for size, keep in wanted:
        block = store.take(size)
        assert block.tensor.numel() == size
        for other in live:
            apart = block.start >= other.start + other.room or other.start >= block.start + block.room
            assert block.slab != other.slab or apart
        live.append(block)
        if not keep:
            store.give_back(live.pop(0))
    for block in live:
        store.give_back(block)
    assert store.used == 0
    assert all(len(pieces) == 1 for pieces in store.free)  # whole again
    store.release()
    assert store.held == 0


def test_the_limit_holds_and_is_said() -> None:
    store = slabs(limit=1 << 17)
    store.take(100_000)
    with pytest.raises(BudgetError, match=r"host must hold what is swapped, .* got 128 KiB"):
        store.take(100_000)


@given(st.integers(1, 1 << 22))
def test_a_large_block_takes_little_more_than_it_needs(size: int) -> None:
    store = slabs(slab=PAGE_BYTES)
    store.take(size)
    assert store.held <= max(PAGE_BYTES, 1.125 * size + PAGE_BYTES)


def test_slabs_that_are_free_make_way_for_a_block_that_fits_into_none() -> None:
    store = slabs(limit=1 << 18, slab=1 << 16)
    blocks = [store.take(1 << 16) for _ in range(4)]
    kept = blocks.pop(1)
    for block in blocks:
        store.give_back(block)
    kept.tensor.fill_(7)
    large = store.take(100_000)
    large.tensor.fill_(1)
    assert store.held <= store.limit
    assert int(kept.tensor.max()) == int(kept.tensor.min()) == 7
    with pytest.raises(BudgetError, match="host must hold"):
        store.take(100_000)
    store.give_back(kept)
    store.give_back(large)
    assert store.used == 0


def test_what_cannot_be_had_costs_nothing() -> None:
    made = list[int]()

    def make(size: int) -> torch.Tensor:
        made.append(size)
        return torch.empty(size, dtype=torch.uint8)

    store = Slabs(1 << 20, make, slab=1 << 18)
    blocks = [store.take(1 << 18) for _ in range(4)]
    for block in blocks[1:]:
        store.give_back(block)
    for _ in range(3):
        with pytest.raises(BudgetError):
            store.take(1 << 20)
    assert len(made) == 4
    store.take(1 << 19)
    assert len(made) == 5
    assert len(store.slabs) == 4  # where one was given back another is


def test_what_used_a_block_last_is_known_to_whoever_gets_it_next() -> None:
    store = slabs()
    first, second = store.take(PAGE_BYTES), store.take(PAGE_BYTES)
    first.ticket, second.ticket = "a", "b"
    store.give_back(first)
    store.give_back(second)
    assert set(store.take(2 * PAGE_BYTES).ticket) == {"a", "b"}
