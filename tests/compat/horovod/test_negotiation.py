"""The negotiation: any order of arrivals gives one order of execution on all ranks."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.compat.horovod.negotiation.coordinator import Coordinator
from weft.compat.horovod.negotiation.messages import (
    GLOBAL_SET,
    AgreedBatch,
    AgreedOps,
    OpKind,
    OpRequest,
    ReadyOps,
    ReduceKind,
    SendAgain,
)
from weft.compat.horovod.negotiation.names import OpKey, RankNames

BIG = 128 << 20


def allreduce(name: str, *, set_id: int = GLOBAL_SET, rows: int = 4, **more: object) -> OpRequest:
    return OpRequest(
        OpKind.ALLREDUCE,
        set_id,
        f"allreduce.{name}",
        ("float32",),
        ((rows,),),
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Rank:
    """A rank that submits what it is told to, and writes down what it carries out."""

    number: int
    names: RankNames = field(default_factory=RankNames)
    in_flight: dict[OpKey, OpRequest] = field(default_factory=dict)
    executed: list[list[str]] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    sent_in_full: int = 0
    heard_batches: int = 0
    values: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def submit(self, *requests: OpRequest) -> ReadyOps:
        for request in requests:
            assert (request.set_id, request.name) not in self.in_flight
            self.in_flight[request.set_id, request.name] = request
        ready = self.names.ask(requests)
        self.sent_in_full += len(ready.requests)
        return ready

    def hear(self, message: object) -> ReadyOps | None:
        if isinstance(message, SendAgain):
            return self.names.again(message.numbers)
        if isinstance(message, AgreedBatch):
            self.heard_batches += 1
            self.names.batch_agreed(message.number)
            for _, keys in self.names.batch(message.number):
                for key in keys:
                    del self.in_flight[key]
                self.executed.append([f"{key[0]}:{key[1]}" for key in keys])
            return None
        assert isinstance(message, AgreedOps)
        for execution in message.executions:
            batch = []
            for key in self.names.agreed(execution.numbers):
                del self.in_flight[key]
                batch.append(f"{key[0]}:{key[1]}")
            for op in execution.ops:
                key = execution.set_id, op.name
                request = self.in_flight.pop(key, None) or op.request
                if request is not None:
                    self.names.learn(key, op, request)
                batch.append(f"{key[0]}:{key[1]}")
                self.values[key[1]], self.sizes[key[1]] = op.value, op.sizes
                if op.error:
                    self.errors[key[1]] = op.error
            self.executed.append(batch)
        self.names.follow(message)
        return None


class World:
    """Ranks and a coordinator, with messages that arrive in an order of the test's choice."""

    def __init__(self, size: int, **options: int) -> None:
        self.coordinator = Coordinator(size, **options)
        self.ranks = [Rank(number) for number in range(size)]

    def tell(self, rank: int, *requests: OpRequest, now: float = 0.0) -> None:
        self.coordinator.receive(rank, self.ranks[rank].submit(*requests), now)
        self.settle()

    def settle(self) -> None:
        while letters := self.coordinator.decide():
            for rank, message in letters:
                again = self.ranks[rank].hear(message)
                if again is not None:
                    self.coordinator.receive(rank, again)

    def everyone(self, *requests: OpRequest) -> None:
        for rank in range(len(self.ranks)):
            self.tell(rank, *requests)


@settings(max_examples=150)
@given(
    size=st.integers(1, 5),
    steps=st.integers(1, 8),
    names=st.integers(1, 12),
    capacity=st.sampled_from([0, 1, 3, 1024]),
    fusion=st.sampled_from([0, 64, BIG]),
    with_set=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_any_order_of_arrivals_gives_one_order_of_execution(
    size: int, steps: int, names: int, capacity: int, fusion: int, with_set: bool, seed: int
) -> None:
    """Names recur in every step, in another order on every rank, in parts of any size; some are in a smaller set.

    In later steps some ranks submit everything at once, as a batch, while others may not.
    """
    draw = random.Random(seed)
    world = World(size, capacity=capacity, fusion_bytes=fusion)
    halves = tuple(range((size + 1) // 2))
    world.everyone(OpRequest(OpKind.ADD_SET, GLOBAL_SET, "add_process_set.noname.1", splits=halves))
    assert {rank.values["add_process_set.noname.1"] for rank in world.ranks} == {1}
    for rank in world.ranks:
        rank.executed.clear()
    for step in range(steps):
        together = [draw.random() < 0.8 for _ in range(size)] if step > 1 else [step < 4] * size
        todo = {}
        for number in range(size):
            mine = [allreduce(str(name), rows=name + 1) for name in range(names)]
            small = [allreduce(str(name), set_id=1) for name in range(3)]
            mine += small if number in halves and with_set else []
            draw.shuffle(mine)
            todo[number] = mine
        while todo:
            number = draw.choice(list(todo))
            count = len(todo[number]) if together[number] else draw.randint(1, len(todo[number]))
            batch, todo[number] = todo[number][:count], todo[number][count:]
            if not todo[number]:
                del todo[number]
            world.coordinator.receive(number, world.ranks[number].submit(*batch))
            if draw.random() < 0.7:
                world.settle()
        world.settle()
    for rank in world.ranks:
        assert not rank.in_flight
        assert not rank.errors
        flat = [name for batch in rank.executed for name in batch]
        assert len(flat) == steps * (names + 3 * (rank.number in halves and with_set))
    first = [batch for batch in world.ranks[0].executed if batch[0].startswith("0:")]
    for rank in world.ranks:
        assert [batch for batch in rank.executed if batch[0].startswith("0:")] == first
        if rank.number in halves:
            assert rank.executed == world.ranks[0].executed
    assert world.coordinator.idle


def step_of(count: int) -> list[OpRequest]:
    return [allreduce(str(name)) for name in range(count)]


def test_a_step_that_recurs_travels_as_one_number() -> None:
    world = World(3)
    for _ in range(3):  # in full, by numbers, and by numbers again: these have a number now
        world.everyone(*step_of(10))
    assert [rank.heard_batches for rank in world.ranks] == [0, 0, 0]
    for rank, order in enumerate(([3, 1, 0, 2], [0, 1, 2, 3], [1, 3, 2, 0])):
        world.coordinator.receive(rank, world.ranks[rank].submit(*(step_of(10)[i] for i in order)))
    world.settle()  # other names than before: they are spelled out
    assert [rank.heard_batches for rank in world.ranks] == [0, 0, 0]
    for rank in range(3):
        ready = world.ranks[rank].submit(*step_of(10)[::-1])
        assert ready.batch >= 0
        assert not ready.numbers
        world.coordinator.receive(rank, ready)
    world.settle()
    assert [rank.heard_batches for rank in world.ranks] == [1, 1, 1]
    assert len({str(rank.executed) for rank in world.ranks}) == 1


@pytest.mark.parametrize("late", ["numbers", "mismatch", "join", "stall", "other batch"])
def test_a_batch_is_spelled_out_where_others_do_not_say_it(late: str) -> None:
    world = World(2)
    for _ in range(3):
        world.everyone(*step_of(4))
    for _ in range(3):
        world.everyone(*step_of(2))
    world.tell(0, *step_of(4), now=10.0)
    match late:
        case "numbers":
            world.tell(1, *step_of(4)[:3])
            world.tell(1, *step_of(4)[3:])
        case "mismatch":
            world.tell(1, allreduce("0", rows=9), *step_of(4)[1:])
            assert all("Mismatched shapes" in rank.errors["allreduce.0"] for rank in world.ranks)
        case "join":
            world.tell(1, OpRequest(OpKind.JOIN, GLOBAL_SET, "join"))
            world.tell(0, OpRequest(OpKind.JOIN, GLOBAL_SET, "join"))
        case "stall":
            assert world.coordinator.oldest() == 10.0
            assert world.coordinator.missing(80.0, 60.0) == {1: [f"allreduce.{name}" for name in range(4)]}
            world.tell(1, *step_of(4))
        case "other batch":
            world.tell(1, *step_of(2))
            world.tell(1, *step_of(4)[2:])
    assert not world.ranks[0].in_flight or late == "join"
    assert world.ranks[0].executed == world.ranks[1].executed
    assert world.coordinator.idle


def test_names_that_were_agreed_on_travel_as_numbers() -> None:
    world = World(2)
    for step in range(3):
        for rank in (0, 1):
            world.tell(rank, *(allreduce(str(name)) for name in range(10)))
        assert world.ranks[1].sent_in_full == 10, f"step {step}"


def test_a_full_cache_forgets_what_was_used_longest_ago_and_asks_again() -> None:
    world = World(2, capacity=2)
    for name in ("a", "b", "c"):
        world.everyone(allreduce(name))
    before = world.ranks[1].sent_in_full
    world.everyone(allreduce("b"), allreduce("c"))
    assert world.ranks[1].sent_in_full == before
    world.everyone(allreduce("a"))
    assert world.ranks[1].sent_in_full == before + 1
    # A number that is on its way while it is forgotten.
    ready = world.ranks[0].submit(allreduce("c"))
    assert ready.numbers
    world.coordinator.receive(1, world.ranks[1].submit(allreduce("d"), allreduce("e")))
    world.coordinator.receive(0, world.ranks[0].submit(allreduce("d"), allreduce("e")))
    for rank, message in world.coordinator.decide():
        world.ranks[rank].hear(message)
    world.coordinator.receive(0, ready)
    world.settle()
    world.tell(1, allreduce("c"))
    assert world.ranks[0].executed[-1] == world.ranks[1].executed[-1] == ["0:allreduce.c"]


def test_alike_operations_are_fused_up_to_the_threshold() -> None:
    world = World(2, fusion_bytes=40)
    small = [allreduce(str(name), rows=4) for name in range(3)]  # 16 bytes each
    other = allreduce("other", rows=4, op=ReduceKind.MAX)
    world.everyone(small[0], other, small[1], small[2], allreduce("large", rows=100))
    assert world.ranks[0].executed == [
        ["0:allreduce.0", "0:allreduce.1"],
        ["0:allreduce.other"],
        ["0:allreduce.2"],
        ["0:allreduce.large"],
    ]


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ({"rows": 3}, {"rows": 4}, "shapes"),
        ({"op": ReduceKind.SUM}, {"op": ReduceKind.MIN}, "reduce operations"),
        ({"prescale": 1.0}, {"prescale": 2.0}, "prescale"),
        ({"postscale": 1.0}, {"postscale": 0.5}, "postscale"),
        ({"device": "cpu"}, {"device": "cuda"}, "devices"),
    ],
)
def test_a_mismatch_is_told_to_all_and_survived(
    one: dict[str, object], other: dict[str, object], word: str
) -> None:
    world = World(3)
    world.everyone(allreduce("x", **one))  # type: ignore[arg-type]  # known to all before one of them changes its mind
    world.tell(0, allreduce("x", **one))  # type: ignore[arg-type]
    world.tell(1, allreduce("x", **other))  # type: ignore[arg-type]
    assert not world.ranks[0].errors
    world.tell(2, allreduce("x", **one))  # type: ignore[arg-type]
    for rank in world.ranks:
        assert rank.errors["allreduce.x"].startswith(f"Mismatched {word}")
        assert "on rank 0" in rank.errors["allreduce.x"]
        assert "on rank 1" in rank.errors["allreduce.x"]
        rank.errors.clear()
    world.everyone(allreduce("x", **other))  # type: ignore[arg-type]
    assert not any(rank.errors for rank in world.ranks)


def test_joined_ranks_take_part_in_sums_and_in_nothing_else() -> None:
    world = World(3)
    world.tell(0, allreduce("x"))
    world.tell(1, allreduce("x"))
    world.tell(2, OpRequest(OpKind.JOIN, GLOBAL_SET, "join"))
    assert world.ranks[2].executed == [["0:allreduce.x"]]
    gather = OpRequest(OpKind.ALLGATHER, GLOBAL_SET, "allgather.x", ("int64",), ((2,),))
    for request in (gather, allreduce("m", op=ReduceKind.MIN)):
        world.tell(0, request)
        world.tell(1, request)
        assert "not supported with Join" in world.ranks[0].errors[request.name]
    world.tell(1, OpRequest(OpKind.JOIN, GLOBAL_SET, "join"))
    world.tell(0, allreduce("alone"))
    world.tell(0, OpRequest(OpKind.JOIN, GLOBAL_SET, "join"))
    assert [rank.values["join"] for rank in world.ranks] == [0, 0, 0]
    world.everyone(allreduce("x"))  # and all are back
    assert world.ranks[2].executed[-1] == ["0:allreduce.x"]


def test_sizes_of_a_gathering_travel_with_the_requests() -> None:
    world = World(2)
    for rank in (0, 1):
        shapes = ((rank + 1, 3), (5 * rank,))
        request = OpRequest(OpKind.ALLGATHER, GLOBAL_SET, "allgather.g", ("int64", "float32"), shapes)
        world.tell(rank, request)
    assert world.ranks[0].sizes["allgather.g"] == ((1, 2), (0, 5))


def test_a_barrier_passes_operations_that_are_pending() -> None:
    world = World(2)
    world.tell(0, allreduce("x"))
    barrier = OpRequest(OpKind.BARRIER, GLOBAL_SET, "barrier.noname.1")
    world.everyone(barrier)
    assert world.ranks[1].executed == [["0:barrier.noname.1"]]
    world.tell(1, allreduce("x"))
    assert world.ranks[1].executed[-1] == ["0:allreduce.x"]


def test_who_is_missing_is_told_by_rank_once() -> None:
    world = World(3)
    world.tell(0, allreduce("x"), allreduce("y"), now=10.0)
    world.tell(1, allreduce("x"), now=11.0)
    assert not world.coordinator.missing(60.0, 60.0)
    missing = world.coordinator.missing(70.0, 60.0)
    assert missing == {1: ["allreduce.y"], 2: ["allreduce.x", "allreduce.y"]}
    assert not world.coordinator.missing(200.0, 60.0)
    assert world.coordinator.missing(200.0, 60.0, again=True) == missing


def test_requests_of_a_set_that_is_removed_are_left_alone() -> None:
    world = World(2)
    world.everyone(OpRequest(OpKind.ADD_SET, GLOBAL_SET, "add_process_set.noname.1", splits=(0,)))
    ready: dict[int, list[OpRequest]] = defaultdict(list)
    ready[0] = [allreduce("x", set_id=1)]
    for rank in (0, 1):
        remove = OpRequest(OpKind.REMOVE_SET, GLOBAL_SET, "remove_process_set.noname.1", root=1)
        world.coordinator.receive(rank, world.ranks[rank].submit(*ready[rank], remove))
    world.settle()
    flat = [name for batch in world.ranks[0].executed for name in batch]
    assert flat[1:] == ["1:allreduce.x", "0:remove_process_set.noname.1"]
