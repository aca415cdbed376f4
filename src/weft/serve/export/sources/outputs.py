"""The answer of a module as tensors by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weft.errors import ModelError


def name_outputs(given: Any) -> dict[str, torch.Tensor]:
    """Tensors by name: of a mapping its keys, else `output`, or `output_0` and on; of members inside members `a.b`."""
    if isinstance(given, torch.Tensor):
        return {"output": given}
    found: dict[str, torch.Tensor] = {}
    for name, value in _members(given).items():
        _collect(name, value, found)
    if not found:
        raise ModelError(
            f"a model must answer a tensor, or a tuple or mapping of tensors, got {type(given).__name__}; "
            "wrap it in a module that does"
        )
    return found


def _members(given: Any) -> dict[str, Any]:
    """The members of an answer that are there, by name."""
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items() if value is not None}
    if hasattr(given, "_fields"):
        return dict(zip(given._fields, given, strict=True))
    if isinstance(given, list | tuple):
        return {f"output_{place}": value for place, value in enumerate(given)}
    return {}


def _collect(name: str, value: Any, found: dict[str, torch.Tensor]) -> None:
    """Add the tensors of a member, in the order in which torch flattens it."""
    if isinstance(value, torch.Tensor):
        found[name] = value
        return
    inside = _members(value)
    if not inside:
        cached = "past_key" in name or "cache" in type(value).__name__.lower()
        raise ModelError(
            f"a model must answer tensors, or mappings and tuples of them, got {type(value).__name__} in its member "
            f"{name}; "
            + ("call it with use_cache=False" if cached else "wrap it in a module that leaves it out")
        )
    for place, (key, each) in enumerate(inside.items()):
        plain = isinstance(value, list | tuple) and not hasattr(value, "_fields")
        _collect(f"{name}.{place if plain else key}", each, found)
