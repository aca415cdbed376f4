"""Operations left to Gloo, as bytes, since the machine's shape does not help: gather, scatter, all-to-all, send, recv.

More bytes than Gloo expects end its process, and fewer go unnoticed. So ranks tell each other their sizes first; and a
message between two of them has its size in its tag, where one of another size is another message.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from weft.collectives.groups.call import Call
from weft.collectives.groups.contiguous import (
    Ready,
    as_bytes,
    flat_copy_if_needed,
    flat_on_cpu,
    joined,
    put_parts,
)
from weft.collectives.groups.group import Group
from weft.collectives.groups.work import Letter, Work
from weft.errors import CollectiveError, MismatchError, PeerError


class _Compared:
    """A message that is compared before anyone waits for it."""

    def __init__(self, inner: Any, compare: Callable[[], None]) -> None:
        self._inner, self._compare = inner, compare

    def wait(self, *timeout: Any) -> Any:
        self._compare()
        return self._inner.wait(*timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class GlooTraffic(Group):
    """Operations without a mode of ours, carried out by a Gloo group of the same members."""

    @cached_property
    def _letters(self) -> Counter[tuple[int, int, int]]:
        """With WEFT_DEBUG: how many messages there were so far, by sender, receiver and tag."""
        return Counter()

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        gives = [part for into in outputs for part in into]
        for into, values in zip(outputs, inputs, strict=False):
            self._check_parts("gather", into, values, ours=into)

        def run() -> None:
            self._agree_on_sizes(call, [values.nbytes for values in inputs])
            for index, values in enumerate(inputs):
                into = outputs[index] if outputs else []
                landing = [torch.empty(part.nbytes, dtype=torch.uint8) for part in into]
                mine = as_bytes(flat_copy_if_needed(values))
                if mine.numel():
                    self._gloo.gather([landing] if into else [], [mine], opts).wait()
                    put_parts(torch.cat(landing) if landing else mine[:0], into)

        call = Call("gather", inputs, f"to {opts.rootRank}")
        return self._submit(call, run, opts, gives)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        for output, parts in zip(outputs, inputs, strict=False):
            self._check_parts("scatter", parts, output, ours=parts)

        def run() -> None:
            self._agree_on_sizes(call, [output.nbytes for output in outputs])
            for index, output in enumerate(outputs):
                parts = [as_bytes(flat_copy_if_needed(part)) for part in inputs[index]] if inputs else []
                landing = torch.empty(output.nbytes, dtype=torch.uint8)
                if landing.numel():
                    self._gloo.scatter([landing], [parts] if parts else [], opts).wait()
                    put_parts(landing, [output])

        call = Call("scatter", outputs, f"from {opts.rootRank}")
        return self._submit(call, run, opts, outputs)

    def _agree_on_sizes(self, call: Call, sizes: Sequence[int]) -> None:
        """Raise on every rank unless all bring as many tensors of the same bytes."""
        sizes_by_rank = self._tell_sizes([len(sizes), sum(sizes)])
        if any(other != sizes_by_rank[0] for other in sizes_by_rank):
            sides = ", ".join(
                f"{total} bytes on {member}"
                for (_, total), member in zip(sizes_by_rank, self._members, strict=True)
            )
            raise MismatchError(
                f"{call} must have the same size on all ranks, got {sides}; use --debug for more"
            )

    def _tell_sizes(self, sizes: Sequence[int]) -> list[list[int]]:
        """Return the sizes of all ranks' tensors, by rank; all bring as many."""
        mine = torch.tensor(sizes, dtype=torch.int64)
        everyone = torch.empty(self._size * mine.nbytes, dtype=torch.uint8)
        self._gather_bytes(as_bytes(mine), everyone, [mine.nbytes] * self._size)
        rows: list[list[int]] = everyone.view(torch.int64).view(self._size, -1).tolist()
        return rows

    def _all_to_all(self, call: Call, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        landing = torch.empty(sum(output.nbytes for output in outputs), dtype=torch.uint8)
        sizes_out, sizes_in = ([tensor.nbytes for tensor in side] for side in (outputs, inputs))
        sizes_by_rank = self._tell_sizes([*sizes_out, *sizes_in])
        for receiver, sender in product(range(self._size), repeat=2):
            expected, brought = sizes_by_rank[receiver][sender], sizes_by_rank[sender][self._size + receiver]
            if expected != brought:
                raise MismatchError(
                    f"{call} must be given as much as is taken, got {brought} bytes for {self._members[receiver]} "
                    f"from {self._members[sender]}, which expects {expected}; give the other the same splits"
                )
        self._gloo.alltoall_base(landing, joined(inputs), sizes_out, sizes_in).wait()
        put_parts(landing, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        for side in (outputs, inputs):
            self._check_parts("all_to_all", side, inputs[0], ours=[])
        call = Call("all_to_all", inputs, sizes_agree=False)
        return self._submit(call, lambda: self._all_to_all(call, outputs, inputs), opts, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        values: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> Work:
        for tensor, splits in ((output, output_splits), (values, input_splits)):
            rows = len(tensor) if tensor.dim() else 0
            if splits and (len(splits) != self._size or sum(splits) != rows):
                raise ValueError(f"{self._size} splits must make {rows} rows, got {splits}")
            if not splits and rows % self._size:
                raise ValueError(f"{rows} rows must divide by {self._size} ranks; give the splits")

        def run() -> None:
            with flat_on_cpu(output) as flat:
                out = flat.view(output.shape)
                self._all_to_all(call, self._split(out, output_splits), self._split(values, input_splits))

        call = Call("all_to_all", [values], sizes_agree=False)
        return self._submit(call, run, opts, [output])

    def _split(self, tensor: Tensor, splits: list[int]) -> Sequence[Tensor]:
        return torch.split(tensor.detach(), splits or [len(tensor) // self._size] * self._size)

    alltoall_base = all_to_all_single

    # -- point to point -------------------------------------------------------------------------------

    # Not in the queue: two ranks may send to each other before either receives.

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Letter:
        call = Call("send", tensors, f"to {self._members[peer]}")
        Ready(tensors).wait()
        if self.settings.debug:
            self._store.set(self._next_letter(self._rank, peer, tag), str(call))
        bytes_out = [as_bytes(flat_copy_if_needed(tensor)) for tensor in tensors]
        return self._letter(
            call, peer, lambda: self._gloo.send(bytes_out, peer, _tag_with_size(tag, bytes_out))
        )

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Letter:
        call = Call("recv", tensors, f"from {self._members[peer]}")
        key = self._next_letter(peer, self._rank, tag) if self.settings.debug else ""

        def start(landing: list[Tensor]) -> Any:
            letter = self._gloo.recv(landing, peer, _tag_with_size(tag, landing))
            return _Compared(letter, lambda: self._compare_letter(call, key, peer)) if key else letter

        return self._receive(call, peer, start)

    def _next_letter(self, sender: int, receiver: int, tag: int) -> str:
        """With WEFT_DEBUG: under which key in the store a sender says what it sends."""
        self._letters[sender, receiver, tag] += 1
        return f"letter/{sender}/{receiver}/{tag}/{self._letters[sender, receiver, tag]}"

    def _compare_letter(self, call: Call, key: str, peer: int) -> None:
        """With WEFT_DEBUG: make sure that what is sent is what is received."""
        sent = self._store.get(key).decode()
        self._store.delete_key(key)
        if sent.partition("(")[2].rpartition(", ")[0] != str(call).partition("(")[2].rpartition(", ")[0]:
            error = MismatchError(
                f"both sides of a message must have the same shape and type, got {sent} on {self._members[peer]}; "
                f"{call} on {self._members[self._rank]}"
            )
            self._break(error)
            raise error

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Letter:
        call = Call("recv", tensors, "from anyone")
        return self._receive(
            call, None, lambda landing: self._gloo.recv_anysource(landing, _tag_with_size(tag, landing))
        )

    def _receive(self, call: Call, peer: int | None, start: Callable[[list[Tensor]], Any]) -> Letter:
        """Land in the tensor itself where it is flat memory, beside it elsewhere."""
        landing = [as_bytes(flat_copy_if_needed(tensor)) for tensor in call.tensors]

        def arrive() -> None:
            for values, tensor in zip(landing, call.tensors, strict=True):
                if values.data_ptr() != tensor.data_ptr():
                    put_parts(values, [tensor])

        return self._letter(call, peer, lambda: start(landing), arrive)

    def _letter(
        self,
        call: Call,
        peer: int | None,
        start: Callable[[], Any],
        arrive: Callable[[], None] = lambda: None,
    ) -> Letter:
        def explain(error: Exception) -> CollectiveError:
            if isinstance(error, CollectiveError):
                return error
            late = "Timed out" in str(error)  # Gloo's words
            if peer is None:
                return CollectiveError(f"{call} {'timed out' if late else 'failed'}: {error}")
            if late:
                return PeerError(
                    f"{self._members[peer]} must have the other side of {call} in time, with the same shape, type and "
                    f"tag, got none (timed out): {error}"
                )
            return PeerError(f"{self._members[peer]} was lost during {call}: {error}")

        if self._broken is not None:
            raise CollectiveError(f"the group must be whole for {call}, got one that broke: {self._broken}")
        try:
            return Letter(start(), arrive, explain)
        except RuntimeError as error:
            raise explain(error) from error


def _tag_with_size(tag: int, tensors: Sequence[Tensor]) -> int:
    """Tag and size as one number; for two different pairs it is the same once in 2 ** 31 times."""
    return zlib.crc32(f"{tag} {[tensor.nbytes for tensor in tensors]}".encode()) & 0x7FFFFFFF
