"""ZeRO-1 whose state is kept and loaded as that of any optimizer, by `torch.distributed.checkpoint` for one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer


class ShardedStateOptimizer(ZeroRedundancyOptimizer):
    """An optimizer that holds the state of some parameters on each rank, and gives that of all."""

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.register_step_post_hook(lambda *_: self._show_state())

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all ranks; a collective call."""
        parts: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(parts, self.optim.state_dict(), group=self.process_group)
        self._all_state_dicts = parts
        try:
            return super().state_dict()
        finally:
            self._all_state_dicts = []

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of all ranks; its parameters may have names in place of numbers, as in checkpoints."""
        groups = state_dict["param_groups"]
        numbers = {
            name: number for number, name in enumerate(one for part in groups for one in part["params"])
        }
        super().load_state_dict(
            {
                "state": {numbers[name]: dict(state) for name, state in state_dict["state"].items()},
                "param_groups": [
                    {**part, "params": [numbers[name] for name in part["params"]]} for part in groups
                ],
            }
        )
        self._show_state()

    def _show_state(self) -> None:
        """Show a state for every parameter, of which some are empty here.

        torch takes an optimizer without any for one that has not stepped, and steps; all ranks must answer alike.
        """
        every = [one for group in self.param_groups for one in group["params"]]
        self.state = defaultdict(dict, {one: self.optim.state.get(one, {}) for one in every})
