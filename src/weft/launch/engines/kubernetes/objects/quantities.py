"""Kubernetes' quantities: `500m`, `8`, `32Gi`; pure."""

from __future__ import annotations

from decimal import Decimal

_SCALES = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}


def amount_of(quantity: str | int) -> Decimal:
    """Return the number that a quantity stands for; its form must have been checked."""
    text = str(quantity)
    number = text.rstrip("mkKMGTPEi")
    return Decimal(number) * _SCALES[text[len(number) :]]


def is_extended(resource: str) -> bool:
    """Return whether a resource is one that only some nodes have, such as `nvidia.com/gpu`."""
    return "/" in resource and not resource.startswith("kubernetes.io/")
