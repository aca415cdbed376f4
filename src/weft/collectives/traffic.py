"""What does not profit from the machine's shape, left to Gloo as bytes: gather, scatter, all-to-all, point to point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.collectives.call import Call
from weft.collectives.group import Group
from weft.collectives.staging import Ready, as_bytes, flat_copy_if_needed, flat_on_cpu, joined, put_parts
from weft.collectives.work import Letter, Work
from weft.errors import CollectiveError, PeerError


class Traffic(Group):
    """Through a Gloo group of the same members."""

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        gives = [part for into in outputs for part in into]
        for into, values in zip(outputs, inputs, strict=False):
            self._check_parts("gather", into, values, ours=into)

        def run() -> None:
            for index, values in enumerate(inputs):
                into = outputs[index] if outputs else []
                landing = [torch.empty(part.nbytes, dtype=torch.uint8) for part in into]
                mine = as_bytes(flat_copy_if_needed(values))
                if mine.numel():
                    self._gloo.gather([landing] if into else [], [mine], opts).wait()
                    put_parts(torch.cat(landing) if landing else mine[:0], into)

        return self._submit(Call("gather", inputs, f"to {opts.rootRank}"), run, opts, gives)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        for output, parts in zip(outputs, inputs, strict=False):
            self._check_parts("scatter", parts, output, ours=parts)

        def run() -> None:
            for index, output in enumerate(outputs):
                parts = [as_bytes(flat_copy_if_needed(part)) for part in inputs[index]] if inputs else []
                landing = torch.empty(output.nbytes, dtype=torch.uint8)
                if landing.numel():
                    self._gloo.scatter([landing], [parts] if parts else [], opts).wait()
                    put_parts(landing, [output])

        return self._submit(Call("scatter", outputs, f"from {opts.rootRank}"), run, opts, outputs)

    def _all_to_all(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        landing = torch.empty(sum(output.nbytes for output in outputs), dtype=torch.uint8)
        sizes_out, sizes_in = ([tensor.nbytes for tensor in side] for side in (outputs, inputs))
        self._gloo.alltoall_base(landing, joined(inputs), sizes_out, sizes_in).wait()
        put_parts(landing, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        for side in (outputs, inputs):
            self._check_parts("all_to_all", side, inputs[0], ours=[])
        call = Call("all_to_all", inputs, sizes_agree=False)
        return self._submit(call, lambda: self._all_to_all(outputs, inputs), opts, outputs)

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
                self._all_to_all(self._split(out, output_splits), self._split(values, input_splits))

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
        bytes_out = [as_bytes(flat_copy_if_needed(tensor)) for tensor in tensors]
        return self._letter(call, peer, lambda: self._gloo.send(bytes_out, peer, tag))

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Letter:
        call = Call("recv", tensors, f"from {self._members[peer]}")
        return self._receive(call, peer, lambda landing: self._gloo.recv(landing, peer, tag))

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Letter:
        call = Call("recv", tensors, "from anyone")
        return self._receive(call, None, lambda landing: self._gloo.recv_anysource(landing, tag))

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
            if peer is None:
                return CollectiveError(f"{call} failed: {error}")
            return PeerError(f"{self._members[peer]} was lost during {call}: {error}")

        if self._broken is not None:
            raise CollectiveError(f"the group must be whole for {call}, got one that broke: {self._broken}")
        try:
            return Letter(start(), arrive, explain)
        except RuntimeError as error:
            raise explain(error) from error
