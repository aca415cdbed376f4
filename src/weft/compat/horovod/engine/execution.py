"""Carrying out what was agreed on: data is fused, scaled and moved by the transport of its process set."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from weft.collectives.groups.contiguous import plain
from weft.collectives.torch_private import copy_each
from weft.compat.horovod.engine.adasum import adasum
from weft.compat.horovod.engine.operations import HorovodOp
from weft.compat.horovod.engine.scaling import ScaleFactor
from weft.compat.horovod.engine.transport import DataTransport, bytes_of
from weft.compat.horovod.negotiation.messages import AgreedOp, OpKind, OpRequest, ReduceKind

SMALL_BYTES = 64 << 10  # tensors below this are scaled together, in the fusion buffer
TINY_BYTES = 2 << 10  # tensors below this, on the average, are quicker to pack than to reduce one by one
KEPT_LAYOUTS = 16  # of fusion buffers


@dataclass(frozen=True, slots=True)
class AgreedWork:
    """An execution as this rank sees it: its own operations, or None for those of others if it has joined."""

    kind: int
    set_id: int
    ops: Sequence[HorovodOp | None]
    agreed: Sequence[AgreedOp]  # what is new about each of them


class FusionBuffers:
    """Memory in which tensors lie side by side, kept from one reduction to the next, and its division into parts."""

    def __init__(self) -> None:
        self._memory: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self._layouts: dict[tuple[object, ...], tuple[Tensor, list[Tensor]]] = {}

    def parts(
        self, counts: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> tuple[Tensor, list[Tensor]]:
        """Return a stretch of memory for a number of elements, and its parts."""
        key = counts, dtype, device
        found = self._layouts.get(key)
        if found is None:
            total = sum(counts)
            memory = self._memory.get((dtype, device))
            if memory is None or memory.numel() < total:
                memory = self._memory[dtype, device] = torch.empty(total, dtype=dtype, device=device)
                self._layouts.clear()
            if len(self._layouts) >= KEPT_LAYOUTS:
                self._layouts.clear()
            whole = memory[:total]
            found = self._layouts[key] = whole, list(torch.split(whole, list(counts)))
        return found


class Execute:
    """Carries out agreed work on the transports of this process's sets."""

    def __init__(
        self, transports: Mapping[int, DataTransport], ranks_of: Callable[[int], Sequence[int]]
    ) -> None:
        self._transports, self._ranks_of = transports, ranks_of
        self._buffers = FusionBuffers()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._packed: set[int] = set()  # transports, by identity, that want tensors side by side

    def run(self, work: AgreedWork) -> None:
        """Carry out work that moves data, and put results where operations expect them."""
        transport = self._transports[work.set_id]
        # The mode of the thread that waits, and works meanwhile, has nothing to do with what it works on.
        with torch.inference_mode(False), torch.no_grad():
            first = next((op for op in work.ops if op is not None), None)
            if first is None or first.request.device == "cpu":  # and so are all that are fused with it
                self._carry_out(work, transport)
                return
            for op in work.ops:
                for event in op.events if op is not None else ():
                    event.synchronize()
            with self._aside(work):
                self._carry_out(work, transport)

    def _carry_out(self, work: AgreedWork, transport: DataTransport) -> None:
        match work.kind:
            case OpKind.ALLREDUCE:
                self._allreduce(work, transport)
            case OpKind.BROADCAST:
                self._broadcast(work, transport)
            case OpKind.ALLGATHER:
                self._allgather(work, transport)
            case OpKind.ALLTOALL:
                self._alltoall(work, transport)
            case OpKind.REDUCESCATTER:
                self._reducescatter(work, transport)

    @contextmanager
    def _aside(self, work: AgreedWork) -> Iterator[None]:
        """Use a stream of our own on an accelerator, and wait for it before anyone is told."""
        devices = {
            tensor.device for op in work.ops if op is not None for tensor in op.inputs if not tensor.is_cpu
        }
        if not devices:
            yield
            return
        (device,) = devices
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._streams[device]):
            yield
        self._streams[device].synchronize()

    # -- reductions -----------------------------------------------------------------------------------

    def _allreduce(self, work: AgreedWork, transport: DataTransport) -> None:
        request = _request(work.agreed[0], work.ops[0])
        before = ScaleFactor(request.prescale)
        after = ScaleFactor(request.postscale, transport.size if request.op == ReduceKind.AVERAGE else 1)
        inputs, outputs = _tensors(work)
        if request.op == ReduceKind.ADASUM:
            for values, out in zip(inputs, outputs, strict=True):
                self._adasum(values, out, transport, before, after)
        elif len(inputs) == 1:
            _one(inputs[0], outputs[0], transport, request.op, before, after)
        elif len(set(request.dtypes)) == 1:  # and so is the type of all that are fused with it
            self._fused(inputs, outputs, transport, request.op, before, after)
        else:
            for dtype in dict.fromkeys(values.dtype for values in inputs):
                sources = [values for values in inputs if values.dtype == dtype]
                targets = [out for out in outputs if out.dtype == dtype]
                self._fused(sources, targets, transport, request.op, before, after)

    def _fused(
        self,
        inputs: list[Tensor],
        outputs: list[Tensor],
        transport: DataTransport,
        op: int,
        before: ScaleFactor,
        after: ScaleFactor,
    ) -> None:
        """Reduce tensors of one type as one. What is small is scaled together, what is large on its way."""
        in_place = inputs is outputs or all(map(operator.is_, inputs, outputs))
        flat_out = [out if out.dim() == 1 else out.view(-1) for out in outputs]
        flat_in = flat_out
        if not in_place:
            flat_in = [values if values.dim() == 1 else values.view(-1) for values in inputs]
        counts = tuple([values.numel() for values in flat_in])
        tiny = sum(counts) * inputs[0].element_size() < TINY_BYTES * len(counts)
        if before.is_one and not tiny and inputs[0].is_cpu and self._directly(transport):
            if not in_place:
                copy_each(flat_out, flat_in)
            if transport.allreduce_many(flat_out, op, after.apply_to):
                return
            self._packed.add(id(transport))
            flat_in = flat_out
        self._in_buffer(counts, flat_in, flat_out, transport, op, before, after)

    def _directly(self, transport: DataTransport) -> bool:
        """Return whether a transport may take tensors as they are: it was not seen to refuse."""
        return id(transport) not in self._packed

    def _in_buffer(
        self,
        counts: tuple[int, ...],
        flat_in: list[Tensor],
        flat_out: list[Tensor],
        transport: DataTransport,
        op: int,
        before: ScaleFactor,
        after: ScaleFactor,
    ) -> None:
        """Reduce tensors side by side in a buffer."""
        whole, parts = self._buffers.parts(counts, flat_in[0].dtype, flat_in[0].device)
        small = whole.nbytes < SMALL_BYTES * len(flat_in)
        if before.is_one or small:
            torch.cat(flat_in, out=whole)
            before.apply_(whole)
        else:
            for part, values in zip(parts, flat_in, strict=True):
                before.apply_into(part, values)
        transport.allreduce(whole, op)
        if after.is_one or small:
            after.apply_(whole)
            copy_each(flat_out, parts)
        else:
            for part, out in zip(parts, flat_out, strict=True):
                after.apply_into(out, part)

    def _adasum(
        self,
        values: Tensor,
        out: Tensor,
        transport: DataTransport,
        before: ScaleFactor,
        after: ScaleFactor,
    ) -> None:
        mine = values.clone()
        before.apply_(mine)
        everyone = [torch.empty_like(mine) for _ in range(transport.size)]
        transport.allgather(everyone, mine)
        half = mine.dtype in (torch.float16, torch.bfloat16)
        combined = adasum([each.float() for each in everyone] if half else everyone).to(out.dtype)
        after.apply_into(out, combined)

    def _reducescatter(self, work: AgreedWork, transport: DataTransport) -> None:
        for op in work.ops:
            assert op is not None
            request = op.request
            before = ScaleFactor(request.prescale)
            after = ScaleFactor(request.postscale, transport.size if request.op == ReduceKind.AVERAGE else 1)
            made = []
            for values in op.inputs:
                rows = rows_of(values.shape[0], transport.size)
                out = values.new_empty((rows[transport.index], *values.shape[1:]))
                if not before.is_one:
                    values = values.clone()
                    before.apply_(values)
                transport.reducescatter(out, list(torch.split(values, rows)), request.op)
                after.apply_(out)
                made.append(out)
            op.outputs = made

    # -- copies ---------------------------------------------------------------------------------------

    def _broadcast(self, work: AgreedWork, transport: DataTransport) -> None:
        root = self._ranks_of(work.set_id).index(_request(work.agreed[0], work.ops[0]).root)
        inputs, outputs = _tensors(work)
        for values, out in zip(inputs, outputs, strict=True):
            if values.data_ptr() != out.data_ptr() and transport.index == root:
                out.copy_(values)
        flat = [bytes_of(out) for out in outputs]
        if len(flat) == 1:
            transport.broadcast(flat[0], root)
        else:
            counts = tuple(values.numel() for values in flat)
            whole, parts = self._buffers.parts(counts, torch.uint8, flat[0].device)
            if transport.index == root:
                copy_each(parts, flat)
            transport.broadcast(whole, root)
            if transport.index != root:
                copy_each(flat, parts)

    def _allgather(self, work: AgreedWork, transport: DataTransport) -> None:
        for agreed, op in zip(work.agreed, work.ops, strict=True):
            assert op is not None
            made = []
            for values, rows in zip(op.inputs, agreed.sizes, strict=True):
                out = values.new_empty((sum(rows), *values.shape[1:]))
                if out.numel():
                    transport.allgather(torch.split(out, list(rows)), values)
                made.append(out)
            op.outputs, op.extra = made, agreed.sizes

    def _alltoall(self, work: AgreedWork, transport: DataTransport) -> None:
        for agreed, op in zip(work.agreed, work.ops, strict=True):
            assert op is not None
            (values,) = op.inputs
            sent = list(agreed.sizes[transport.index])
            received = [splits[transport.index] for splits in agreed.sizes]
            out = values.new_empty((sum(received), *values.shape[1:]))
            transport.alltoall(out, values, received, sent)
            op.outputs = [out]
            op.extra = torch.tensor(received, dtype=torch.int32)


def rows_of(rows: int, size: int) -> list[int]:
    """Return the rows of a reducescatter that each member gets: the first ones get one more if they do not divide."""
    each, more = divmod(rows, size)
    return [each + (index < more) for index in range(size)]


def _one(
    values: Tensor, out: Tensor, transport: DataTransport, op: int, before: ScaleFactor, after: ScaleFactor
) -> None:
    """Reduce one tensor where its result belongs."""
    if values.data_ptr() != out.data_ptr() or not values.numel():
        before.apply_into(out, values)
    else:
        before.apply_(out)
    transport.allreduce(out.view(-1), op)
    after.apply_(out)


def _request(agreed: AgreedOp, op: HorovodOp | None) -> OpRequest:
    request = op.request if op is not None else agreed.request
    assert request is not None
    return request


def _tensors(work: AgreedWork) -> tuple[list[Tensor], list[Tensor]]:
    """Return what is read and what is written; zeros for the operations of others, if this rank has joined."""
    in_place = [op.inputs for op in work.ops if op is not None and op.inputs is op.outputs]
    if len(in_place) == len(work.ops):
        tensors = _writable(list(chain.from_iterable(in_place)))
        return tensors, tensors
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for place, op in enumerate(work.ops):
        if op is None:
            zeros = list(_zeros(_request(work.agreed[place], op)))
            inputs += zeros
            outputs += zeros
        else:
            inputs += op.inputs
            if op.outputs is None:
                op.outputs = [torch.empty_like(each) for each in op.inputs]
            outputs += op.outputs
    return inputs, _writable(outputs)


def _writable(tensors: list[Tensor]) -> list[Tensor]:
    """Return tensors that may be written outside of inference mode: those of that mode under other names."""
    if any(map(Tensor.is_inference, tensors)):
        return [plain(tensor) for tensor in tensors]
    return tensors


def _zeros(request: OpRequest) -> Iterator[Tensor]:
    for dtype, shape in zip(request.dtypes, request.shapes, strict=True):
        yield torch.zeros(math.prod(shape), dtype=getattr(torch, dtype), device=request.device)
