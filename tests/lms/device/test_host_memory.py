"""Host memory in slabs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import BudgetError
from weft.lms.device.host_memory import PAGE_BYTES, Block, CopyCounter, CopyTicket, Slabs


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


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(("out", "back")), st.booleans()), max_size=60))
def test_a_block_waits_for_the_last_copy_of_each_queue_and_no_other(
    uses: list[tuple[int, str, bool]],
) -> None:
    # However often memory was cut and joined: a wait for every copy ever made took longer than the step.
    store, copies = slabs(slab=1 << 17), CopyCounter()  # one slab of 32 pages is enough
    by_page: dict[int, dict[str, CopyTicket]] = {}  # the last copy of each queue, by page
    live = list[Block]()
    for pages, queue, keeps in uses:
        if len(live) == 4:
            store.give_back(live.pop(0))
        block = store.take(pages * PAGE_BYTES)
        touched = range(block.start // PAGE_BYTES, (block.start + block.room) // PAGE_BYTES)
        assert len({ticket.queue for ticket in block.last}) == len(block.last)
        for page in touched:
            for earlier in by_page.get(page, {}).values():
                assert any(
                    ticket.queue == earlier.queue and ticket.number >= earlier.number for ticket in block.last
                )
        block.last = (copies.ticket(queue, None),)
        by_page |= {page: {queue: block.last[0]} for page in touched}
        live.append(block)
        if not keeps:
            store.give_back(live.pop())


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
    store, copies = slabs(), CopyCounter()
    blocks = [store.take(PAGE_BYTES) for _ in range(3)]
    out, back, later = copies.ticket("out", "a"), copies.ticket("back", "b"), copies.ticket("out", "c")
    for block, ticket in zip(blocks, (out, back, later), strict=True):
        block.last = (ticket,)
        store.give_back(block)
    assert set(map(id, store.take(3 * PAGE_BYTES).last)) == {id(back), id(later)}
