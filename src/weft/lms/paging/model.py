"""All pages of one model: parameters, gradients and optimizer state, each kind once it is paged."""

from __future__ import annotations

import torch
from torch import nn

from weft.lms.activations.step import RunningStep
from weft.lms.paging.gradients import GradientPages
from weft.lms.paging.optimizer import StatePages
from weft.lms.paging.parameters import ParameterPages
from weft.lms.paging.traffic import PageTraffic
from weft.lms.planning.residence import Residence


class ModelPages:
    """The pages of one model. They go with the model: its budget knows of them weakly."""

    def __init__(self, step: RunningStep, residence: Residence) -> None:
        self.traffic = PageTraffic(step, residence)
        self.parameters: ParameterPages | None = None
        self.gradients: GradientPages | None = None
        self.state: StatePages | None = None

    def page_state(self, optimizer: torch.optim.Optimizer) -> StatePages:
        self.state = StatePages(optimizer, self.traffic)
        return self.state

    def set_residence(self, residence: Residence) -> None:
        self.traffic.usage.residence = residence

    def page_gradients_and_parameters(self, model: nn.Module) -> bool:
        """Page what of them the residence wants paged; return whether parameters became pages just now."""
        residence = self.traffic.usage.residence
        if residence.gradients and self.gradients is None:
            self.gradients = GradientPages(model, self.traffic)
        if residence.parameters and self.parameters is None:
            self.parameters = ParameterPages(model, self.traffic)
            return True
        return False

    def settle(self) -> None:
        """Bring the pages into order before a forward pass, whatever happened since the last one."""
        if self.state is not None and (self.parameters is not None or self.gradients is not None):
            self.state.let_go()
        if self.gradients is not None:
            self.gradients.settle()
        if self.parameters is not None:
            self.parameters.begin()
