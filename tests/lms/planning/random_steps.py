"""Random steps as recordings: blocks of operations that read each other, some of whose results autograd saves.

They are drawn as operations first, so that what a recipe costs follows from what was saved, as in a real step: a value
that nobody saved is made again for each tensor that is made from it, a random or unknown operation may have no recipe,
a residual sum or a memory is read by blocks far away, and something else may hold a value for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from weft.lms.planning.blocks import ModuleSpan, called_again
from weft.lms.planning.playback import Timeline
from weft.lms.planning.recording import Rates, Recording, SavedSite


@dataclass
class Operation:
    """One operation of the forward pass, and its result."""

    number: int
    block: int
    reads: list[int]  # operations whose results it reads
    bytes: int
    seconds: float
    saved: bool
    known: bool  # it can be repeated
    taped: bool  # only a tape knows how
    site: int = -1


@dataclass(frozen=True)
class OperationsStep:
    """A recorded step of blocks, and the course that it takes with each block checkpointed."""

    recording: Recording
    spans: tuple[ModuleSpan, ...]
    checkpointed: Timeline = field(repr=False)


def operations_at_random(random: Random, rates: Rates) -> OperationsStep:
    """Return a step of one or many blocks, equal or not, of bytes or of gigabytes."""
    blocks = random.choice([1, 2, 3, random.randint(4, 14)])
    alike = random.random() < 0.5
    unit = 10 ** random.uniform(0, 8)
    spread = random.uniform(0, 5)
    first = random.getrandbits(32)
    ops: list[Operation] = []
    starts: list[int] = []
    memory = random.randrange(blocks) if random.random() < 0.2 else -1
    skips = random.random() < 0.2
    everything_known = random.random() < 0.6
    scale_seconds = 10 ** random.uniform(-6, -2)
    for block in range(blocks):
        drawn = Random(first) if alike else Random(first + block)
        kinds = drawn.randint(1, 9)
        starts.append(len(ops))
        begin = len(ops)
        far = []
        if memory >= 0 and block > memory:
            far.append(starts[memory])
        if skips and block > blocks // 2:
            far.append(starts[blocks - 1 - block])
        for place in range(kinds):
            number = len(ops)
            near = list(range(begin, number)) or ([begin - 1] if begin else [])
            reads = {drawn_near(drawn, near)} if near else set()
            if place and drawn.random() < 0.5:
                reads.add(begin)  # a residual sum
            if place == 1:
                reads |= set(far)
            if place == 0 and begin and drawn.random() < 0.3:
                reads.add(starts[block - 1])
            ops.append(
                Operation(
                    number=number,
                    block=block,
                    reads=sorted(reads),
                    bytes=max(1, int(unit * 2 ** drawn.uniform(-spread, spread))),
                    seconds=scale_seconds * 2 ** drawn.uniform(-4, 4) if drawn.random() < 0.9 else 0.0,
                    saved=place == 0 or drawn.random() < 0.7,
                    known=everything_known or drawn.random() < 0.9,
                    taped=drawn.random() < 0.4,
                )
            )
    return recorded(random, ops, rates)


def drawn_near(random: Random, near: list[int]) -> int:
    """Return an operation whose result another one reads: mostly the last one."""
    return near[-1] if random.random() < 0.6 else random.choice(near)


def recorded(random: Random, ops: list[Operation], rates: Rates) -> OperationsStep:
    saved = [op for op in ops if op.saved]
    for place, op in enumerate(saved):
        op.site = place
    events = 2 * len(saved)
    seconds, other = [0.0] * (events + 1), [0] * (events + 1)
    readers = {op.number: [other.number for other in ops if op.number in other.reads] for op in ops}
    event = 0
    at: dict[int, int] = {}  # the event at or after which an operation's work is done
    for op in ops:
        seconds[event] += op.seconds
        at[op.number] = event
        event += op.saved
    for op in ops:
        seconds[events - 1 - op.site if op.saved else events - min(at[op.number], len(saved)) - 1] += (
            2 * op.seconds
        )
    usual = random.choice([0, sum(op.bytes for op in ops) // random.randint(1, 20)])
    for interval in range(len(other)):
        other[interval] = usual + (random.randint(0, usual // 2) if random.random() < 0.3 else 0)
    shared = random.random() < 0.2
    sites = []
    for op in saved:
        use = events - 1 - op.site
        last_reader = max((at[number] for number in readers[op.number]), default=at[op.number])
        uses = {use}
        if shared and random.random() < 0.3:  # another node saved it, too
            uses.add(random.randint(len(saved), use))
        site = SavedSite(
            op=f"op{op.bytes}",
            module=f"block{op.block}",
            bytes=op.bytes,
            pack=op.site,
            uses=tuple(sorted(uses)),
            held=min(last_reader + 1, min(uses) - 1),
        )
        found = repeated(op, ops)
        if found is not None and op.number:
            needs = {ops[need].site for each in found for need in ops[each].reads if ops[need].saved}
            taped = tuple(found) if any(ops[each].taped for each in found) else ()
            site = replace(
                site,
                recipe_s=sum(ops[each].seconds for each in found),
                needs=tuple(sorted(needs)),
                replayed=taped,
            )
        sites.append(site)
    recording = Recording(sites=tuple(sites), seconds=tuple(seconds), other=tuple(other), rest=tuple(other))
    spans = tuple(spans_of(saved))
    return OperationsStep(recording, spans, called_again(recording, spans, rates))


def repeated(op: Operation, ops: list[Operation]) -> list[int] | None:
    """Return the operations that make a saved result again from others that are saved; None where one is not known."""
    found, walk = set[int](), [op.number]
    while walk:
        number = walk.pop()
        if number in found:
            continue
        if not ops[number].known:
            return None
        found.add(number)
        walk += [need for need in ops[number].reads if not ops[need].saved]
    return sorted(found)


def spans_of(saved: list[Operation]) -> list[ModuleSpan]:
    """Return the block modules as the recorder would note them."""
    found = []
    for block in sorted({op.block for op in saved}):
        places = [op.site for op in saved if op.block == block]
        given = frozenset(places[:1])
        found.append(
            ModuleSpan(module=block, kind="Block", depth=1, first=places[0], last=places[-1], given=given)
        )
    return found
