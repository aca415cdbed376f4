"""One operation as its caller wrote it: what errors say of it, and what ranks compare when they are to agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from weft.collectives.members import GroupMember
from weft.errors import MismatchError

SIGNATURE_BYTES = 256


class Call(NamedTuple):
    """A name, the tensors, and the operator or root if it has one."""

    name: str
    tensors: Sequence[Tensor] = ()
    detail: str = ""
    sizes_agree: bool = True  # on all ranks; not where each may bring as much as it likes

    def __str__(self) -> str:
        shown = [_describe(tensor) for tensor in self.tensors[:4]] + ["..."] * (len(self.tensors) > 4)
        return f"{self.name}({', '.join([*shown, self.detail] if self.detail else shown)})"

    def signature(self, number: int) -> Tensor:
        """Return bytes that are equal on ranks that make the same call; flat, and of the same size for all calls."""
        if self.sizes_agree:
            what = str(self)
        else:
            what = f"{self.name}({', '.join(sorted({str(tensor.dtype)[6:] for tensor in self.tensors}))})"
        total = f" of {sum(tensor.numel() for tensor in self.tensors)} elements" if self.sizes_agree else ""
        text = f"{what}{total} as call {number}".encode()[:SIGNATURE_BYTES].ljust(SIGNATURE_BYTES)
        return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def compare(signatures: Tensor, members: Sequence[GroupMember]) -> None:
    """Raise, naming both sides, unless all ranks sent the same."""
    calls = [
        bytes(row.tolist()).decode(errors="replace").rstrip() for row in signatures.view(len(members), -1)
    ]
    if len(set(calls)) == 1:
        return
    sides = [
        f"{text} on {', '.join(str(member) for member, said in zip(members, calls, strict=True) if said == text)}"
        for text in dict.fromkeys(calls)
    ]
    raise MismatchError(f"all ranks must make the same calls in the same order, got {'; '.join(sides)}")


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
