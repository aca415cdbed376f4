"""What is put on a model that is under a budget: it belongs to that very model."""

from __future__ import annotations

from typing import Any

from weft.errors import UsageError


class Bound:
    """A hook that is nothing in a copy of its model, and cannot be written to a file."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return nothing

    def __reduce_ex__(self, _: Any) -> Any:
        raise UsageError(
            "a model under a budget must be saved as model.state_dict(), got the model itself; save that"
        )


def nothing(*_: object) -> None:
    """What a hook becomes in a copy of a model."""
