"""Does an all_reduce again by the plain way, on all ranks together, and finds the dimension that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor

from weft.collectives.groups.call import Call
from weft.collectives.groups.contiguous import as_bytes
from weft.collectives.hierarchy import CHUNK_BYTES
from weft.collectives.members import GroupMember
from weft.collectives.modes.mode import even_bounds
from weft.collectives.reduction import Reduction
from weft.collectives.watching.mode import WatchedMode, mode_name
from weft.collectives.watching.spans import DIMENSIONS
from weft.collectives.watching.verify import HALO, Lightness, VerifyFinding, compare
from weft.errors import MismatchError, VerifyError

PIECE_BYTES = 4 << 20  # gathered from every rank at once
TRIALS = 3  # of each dimension, to find the one that is wrong


class Verifier:
    """Verifies results of one group; all its ranks call it together, for the same calls."""

    def __init__(
        self,
        gloo: Any,
        members: Sequence[GroupMember],
        modes: Sequence[WatchedMode],
        wire: str,
    ) -> None:
        self._gloo, self._members, self._modes = gloo, members, modes
        self._lightness = Lightness(wire=wire, hosts=len({member.host for member in members}))

    def check(self, call: Call, given: Tensor, result: Tensor, reduction: Reduction) -> float:
        """Return the largest relative error; raises on every rank if it is more than rounding explains on any."""
        self._check_sizes(call, given)
        everyone = range(len(self._members))
        finding = self._compare(given, result, everyone, reduction)
        findings = self._all_findings(finding)
        if any(other.wrong for other in findings):
            raise VerifyError(self._accusation(call, findings, given, reduction))
        return max(other.worst for other in findings)

    def _check_sizes(self, call: Call, given: Tensor) -> None:
        sizes = self._gather(torch.tensor([given.numel(), given.element_size()]))
        if any(not torch.equal(size, sizes[0]) for size in sizes):
            text = ", ".join(
                f"{int(size[0])} elements of {int(size[1])} bytes on {member}"
                for size, member in zip(sizes, self._members, strict=True)
            )
            raise MismatchError(f"{call} must have the same shape and type on all ranks, got {text}")

    def _compare(
        self, given: Tensor, result: Tensor, ranks: Sequence[int], reduction: Reduction
    ) -> VerifyFinding:
        """Compare a result with the inputs of some ranks; all ranks gather, whatever theirs is compared with."""
        lightness, finding = self._lightness.of(given, reduction), VerifyFinding()
        for first, last, begin, end in _pieces(given):
            inputs = self._gather(given[begin:end])
            part = compare(
                result[begin:end],
                [inputs[rank] for rank in ranks],
                reduction,
                world=len(self._members),
                lightness=lightness,
                inner=slice(first - begin, last - begin),
            )
            finding = finding.and_then(part, begin)
        return finding

    def _gather(self, values: Tensor) -> list[Tensor]:
        mine = as_bytes(values.contiguous())
        everyone = [torch.empty_like(mine) for _ in self._members]
        if mine.numel():
            self._gloo.allgather([everyone], [mine]).wait()
        return [other.view(values.dtype) for other in everyone]

    def _all_findings(self, finding: VerifyFinding) -> list[VerifyFinding]:
        gathered = self._gather(torch.tensor(astuple(finding), dtype=torch.float64))
        rows = [row.tolist() for row in gathered]
        return [VerifyFinding(wrong=int(row[0]), index=int(row[1]), **_named(row[2:])) for row in rows]

    # -- whose fault --------------------------------------------------------------------------------

    def _accusation(
        self, call: Call, findings: Sequence[VerifyFinding], given: Tensor, reduction: Reduction
    ) -> str:
        wrong = [
            (finding, member)
            for finding, member in zip(findings, self._members, strict=True)
            if finding.wrong
        ]
        first = wrong[0][0]
        who = ", ".join(str(member) for _, member in wrong)
        place = _place(first.index, call.tensors[0]) if len(call.tensors) == 1 else f"{first.index}"
        return (
            f"{call} must be within {first.allowed:.2g} of a plain reduction, got {first.got:.9g} instead of "
            f"{first.expected:.9g} at element {place} (and {first.wrong - 1} more wrong) on {who}; "
            f"{self._culprit(given, reduction)}"
        )

    def _culprit(self, given: Tensor, reduction: Reduction) -> str:
        """Try each dimension alone, innermost first; a collective call."""
        plain = Reduction("SUM" if reduction.name in ("AVG", "PREMUL_SUM") else reduction.name)
        for _ in range(TRIALS):
            for name in DIMENSIONS:
                finding, mode = self._try(name, given, plain)
                findings = self._all_findings(finding)
                wrong = [member for other, member in zip(findings, self._members, strict=True) if other.wrong]
                if wrong:
                    hosts = ", ".join(dict.fromkeys(member.name for member in wrong))
                    used = f" (mode {mode})" if mode else ""
                    return f"the dimension at fault is: {name}{used}, at {hosts}; try another --mode for it"
        used = ", ".join(dict.fromkeys(mode.dimension for mode in self._modes))
        return (
            f"each dimension ({used}) was right when tried alone, so it comes and goes: memory that is used by two "
            "at once, or a machine that is not sound; run it again, and try other modes with --mode"
        )

    def _try(self, dimension: str, given: Tensor, reduction: Reduction) -> tuple[VerifyFinding, str]:
        """Reduce our input with the peers of a dimension alone; those who have none only help others to compare."""
        finding, name = VerifyFinding(), ""
        results = []
        for mode in self._modes:
            if mode.dimension == dimension:
                result = given.clone()
                _repeat(mode, result, reduction)
                results.append((result, mode.ranks))
                name = mode_name(mode.mode, result)
        for turn in range(max(int(count) for count in self._gather(torch.tensor([len(results)])))):
            result, ranks = results[turn] if turn < len(results) else (given, (0,))
            found = self._compare(given, result, ranks, reduction)
            finding = finding.and_then(found, 0) if turn < len(results) else finding
        return finding, name


def _repeat(watched: WatchedMode, values: Tensor, reduction: Reduction) -> None:
    """Reduce among the peers of one mode in the way it was just used."""
    mode, count = watched.mode, values.numel()
    if "start_all_reduce" in watched.used:
        chunks = torch.split(values, max(1, CHUNK_BYTES // values.element_size()))
        for pending in [mode.start_all_reduce(chunk, reduction) for chunk in chunks]:
            pending.wait()
    elif "reduce_scatter" in watched.used and "broadcast" in watched.used:
        mode.reduce_scatter(values, [(0, count)] + [(count, count)] * (mode.size - 1), reduction)
        mode.broadcast(values, 0)
    elif "reduce_scatter" in watched.used:
        bounds = even_bounds(count, mode.size)
        mode.reduce_scatter(values, bounds, reduction)
        mode.all_gather(values, bounds)
    else:
        mode.all_reduce(values, reduction)


def _pieces(values: Tensor) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of the elements, each also with its neighbours."""
    count, step = values.numel(), max(1, PIECE_BYTES // values.element_size())
    for first in range(0, count, step):
        last = min(count, first + step)
        yield first, last, max(0, first - HALO), min(count, last + HALO)


def _named(row: Sequence[float]) -> dict[str, float]:
    return dict(zip(("got", "expected", "allowed", "worst"), row, strict=True))


def _place(index: int, tensor: Tensor) -> str:
    """Return where a flat index lies in a tensor."""
    if tensor.dim() < 2:
        return f"{index}"
    where = torch.unravel_index(torch.tensor(index), tensor.shape)
    return str([int(position) for position in where])
