"""A moving average of weights: what is evaluated, kept and exported."""

from __future__ import annotations

import copy

import torch
from torch import nn

from weft.collectives.torch_private import move_each_towards


class AveragedWeights:
    """A copy of a model whose weights follow the model's, more slowly as training goes on."""

    def __init__(self, model: nn.Module, decay: float, every: int = 1) -> None:
        self.model = copy.deepcopy(model).eval()
        self.model.requires_grad_(False)
        self._decay, self.steps = decay, 0
        ours, theirs = self.model.state_dict(), model.state_dict()
        self._floats = [(ours[name], theirs[name]) for name in ours if ours[name].is_floating_point()]
        self._others = [(ours[name], theirs[name]) for name in ours if not ours[name].is_floating_point()]
        self._every = every

    @torch.no_grad()
    def update(self) -> None:
        """Follow the model by one step; the first steps are followed closely."""
        self.steps += 1
        if self.steps % self._every:
            return
        decay = min(self._decay**self._every, (1 + self.steps) / (10 + self.steps)) if self._decay else 0.0
        move_each_towards([one for one, _ in self._floats], [other for _, other in self._floats], 1 - decay)
        for one, other in self._others:
            one.copy_(other)
