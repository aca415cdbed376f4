"""Groups of parameters whose gradients are reduced together: checks of what a user gives, and the parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def unnamed(index: int) -> str:
    """Return the name of a parameter without one: another than any unnamed operation has, which are counted, too."""
    return f"allreduce.noname.{index}"


def parameter_names(param_groups: Sequence[dict[str, Any]], named_parameters: Any) -> dict[Tensor, str]:
    """Return the name of each parameter of an optimizer, and refuse names that are wrong, repeated or missing."""
    every = [p for group in param_groups for p in group["params"]]
    if named_parameters is None:
        return {p: unnamed(index) for index, p in enumerate(every)}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) for pair in named):
        raise ValueError(
            "named_parameters must be pairs of a name and a tensor, got something else; use model.named_parameters()"
        )
    names = [name for name, _ in named]
    repeated = (
        sorted({str(name) for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    )
    if repeated:
        raise ValueError(f"named_parameters must have each name once, got more of {', '.join(repeated)}")
    known = {id(p) for _, p in named}
    missing = sum(id(p) not in known for p in every)
    if missing:
        raise ValueError(
            f"named_parameters must name all parameters of the optimizer, got none for {missing} of them; give all of "
            "model.named_parameters()"
        )
    return {p: name for name, p in named}


def reduction_groups(given: Any, parameters: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the groups that a user asks for: so many parts of all parameters, or these lists."""
    if given is None:
        return []
    if isinstance(given, int) and not isinstance(given, bool):
        if given <= 0:
            raise ValueError(f"groups must be an int above 0 or lists of tensors, got {given}; leave it out")
        size = -(-len(parameters) // given) if parameters else 1
        return [list(parameters[first : first + size]) for first in range(0, len(parameters), size)]
    if not isinstance(given, list) or not all(
        isinstance(group, (list, tuple)) and all(isinstance(p, torch.Tensor) for p in group)
        for group in given
    ):
        raise ValueError("groups must be an int above 0 or lists of tensors, got something else")
    seen: set[int] = set()
    for group in given:
        for p in group:
            if id(p) in seen:
                raise ValueError("a tensor must be in one group at most, got one that is in two")
            seen.add(id(p))
    wanted = {id(p) for p in parameters}
    return [[p for p in group if id(p) in wanted] for group in given]
