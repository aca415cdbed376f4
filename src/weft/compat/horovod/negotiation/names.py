"""The names that a rank has operations in flight under, and the numbers that stand for requests agreed on before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from weft.compat.horovod.negotiation.batches import RankBatches
from weft.compat.horovod.negotiation.messages import AgreedOp, AgreedOps, Execution, OpRequest, ReadyOps

OpKey = tuple[int, str]  # process set and name


class ToldBatch(NamedTuple):
    """A batch as a rank told of it: its number, and its requests with their numbers in the order of submission."""

    batch: int
    numbers: Sequence[int]
    requests: Sequence[OpRequest]


class RankNames:
    """The rank's side of the coordinator's numbers: which request has which, and which were sent by theirs."""

    def __init__(self) -> None:
        self._known: dict[OpKey, tuple[OpRequest, int]] = {}
        self._keys: dict[int, OpKey] = {}
        self._sent: dict[int, OpRequest] = {}  # by number, until it is agreed on
        self._sent_batches: dict[int, ToldBatch] = {}
        self._told: dict[
            str, ToldBatch
        ] = {}  # by the name of their first request, while their numbers are as they were
        self._of_batches: dict[int, list[tuple[Execution, list[OpKey]]]] = {}
        self.batches = RankBatches()

    def _numbers_of(self, requests: Sequence[OpRequest]) -> list[int]:
        """Return the numbers that stand for requests; -1: it has none."""
        known = self._known
        return [
            found[1] if (found := known.get(request.key)) is not None and found[0] == request else -1
            for request in requests
        ]

    def ask(self, requests: Sequence[OpRequest]) -> ReadyOps:
        """Return the message that tells the coordinator of new requests, by their numbers where they have one."""
        before = self._told.get(requests[0].name) if requests else None
        if before is not None and before.requests == requests:  # the same ones, in the same order, as before
            self._sent_batches[before.batch] = before
            return ReadyOps(batch=before.batch)
        numbers = self._numbers_of(requests)
        batch = self.batches.find(numbers)
        if batch is not None:
            before = ToldBatch(batch, numbers, requests)
            self._sent_batches[batch] = self._told[requests[0].name] = before
            return ReadyOps(batch=batch)
        asked = dict(zip(numbers, requests, strict=True))
        asked.pop(-1, None)
        self._sent.update(asked)
        in_full = [request for number, request in zip(numbers, requests, strict=True) if number < 0]
        return ReadyOps(tuple(asked), tuple(in_full))

    def batch(self, number: int) -> Sequence[tuple[Execution, Sequence[OpKey]]]:
        """Return what is carried out for a batch, and the operations of each execution."""
        found = self._of_batches.get(number)
        if found is None:
            keys = self._keys
            executions = self.batches.executions(number)
            found = [(each, [keys[member] for member in each.numbers]) for each in executions]
            self._of_batches[number] = found
        return found

    def batch_agreed(self, number: int) -> None:
        """Note that a batch was agreed on."""
        self._sent_batches.pop(number, None)

    def again(self, numbers: Iterable[int]) -> ReadyOps:
        """Return the message with requests in full, whose numbers the coordinator has forgotten."""
        for batch in list(self._sent_batches):  # where one of its numbers was forgotten, it was spelled out
            sent = self._sent_batches.pop(batch)
            self._sent.update(zip(sent.numbers, sent.requests, strict=True))
        return ReadyOps((), tuple(self._sent.pop(number) for number in numbers if number in self._sent))

    def agreed(self, numbers: Sequence[int]) -> list[OpKey]:
        """Return which operations were agreed on by their numbers."""
        sent, keys = self._sent, self._keys
        for number in numbers:
            sent.pop(number, None)
        return [keys[number] for number in numbers]

    def learn(self, key: OpKey, op: AgreedOp, request: OpRequest) -> None:
        """Take in the number of a request of this rank's that was agreed on."""
        if op.number >= 0:
            self._sent.pop(op.number, None)
            self._told.clear()
            self._known[key] = request, op.number
            self._keys[op.number] = key

    def follow(self, agreed: AgreedOps) -> None:
        """Learn the batch and forget the numbers that a message names, once its executions are understood."""
        self.batches.learn(agreed.batch, agreed.executions)
        if agreed.forgotten:
            self._told.clear()
        for number in agreed.forgotten:
            for batch in self.batches.forget(number):
                self._of_batches.pop(batch, None)
            key = self._keys.pop(number, None)
            if key is not None and self._known.get(key, (None, -1))[1] == number:
                del self._known[key]
