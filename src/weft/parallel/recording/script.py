"""Records the steps of a whole script: `python -m weft.parallel.recording.script train.py ...`.

Nothing of the script changes. The first module called that trains is the model, and a step ends with the optimizer's.
After a few steps the record is printed, in one line for the launcher to find in the log, and the script ends.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.parallel.recording.layers import layers_of, tensors_in
from weft.parallel.recording.recorder import PassClock, _clock_for, step_from, watched

MARK = "weft-step "  # before the record in the log of the worker
WARM_STEPS, RECORDED_STEPS = 1, 3


class RecordedEnoughError(SystemExit):
    """Ends the script once its steps are recorded."""


class ScriptRecorder:
    """Watches the modules and optimizers of this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.told = False
        self._model: nn.Module | None = None
        self._layers: dict[str, nn.Module] = {}
        self._open = ExitStack()
        self._hooks = ExitStack()
        self._clock: PassClock | None = None
        self._step: list[PassClock] = []
        self._steps: list[tuple[list[PassClock], float]] = []
        self._count, self._began_s, self._samples = 0, 0.0, 1

    def install(self) -> None:
        """Hook into every module and optimizer of the process."""
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._hooks.callback(register_module_forward_pre_hook(self._called).remove)
        self._hooks.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        self._hooks.callback(register_optimizer_step_post_hook(self._after_step).remove)

    def _called(self, module: nn.Module, inputs: Any) -> None:
        if self._model is None and _trains(module):
            self._model = module
            inner = getattr(module, "module", module)  # of DDP
            self._layers = layers_of(inner if isinstance(inner, nn.Module) else module)
            self._open.enter_context(watched(self._layers, lambda: self._clock))
            self._open.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, lambda one: one))
        if module is self._model and torch.is_grad_enabled() and module.training:
            self._clock = PassClock(module, _clock_for(module)[0])
            self._step.append(self._clock)
            self._samples = next((int(one.shape[0]) for one in tensors_in(inputs) if one.dim()), 1)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._clock.pack(tensor) if self._clock is not None else tensor

    def _before_step(self, *_: Any) -> None:
        self._began_s = time.perf_counter()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        passes = [clock for clock in self._step if clock.whole]
        self._step = []
        if self._model is None or not passes:
            return
        self._count += 1
        if self._count > WARM_STEPS:
            self._steps.append((passes, time.perf_counter() - self._began_s))
        if len(self._steps) == RECORDED_STEPS:
            self.tell(optimizer)
            raise RecordedEnoughError(0)

    def tell(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Print the record, and take the hooks off."""
        self._open.close()
        self._hooks.close()
        if self._model is None or not self._steps:
            return
        inner = getattr(self._model, "module", self._model)
        record = step_from(
            inner if isinstance(inner, nn.Module) else self._model,
            self._layers,
            [clock for passes, _ in self._steps for clock in passes],
            optimizer=optimizer,
            passes=len(self._steps[-1][0]),
            name=self._name,
            device=str(next(self._model.parameters()).device),
            samples=self._samples,
            optimizer_s=min(seconds for _, seconds in self._steps),
        )
        print(MARK + json.dumps(asdict(record)), flush=True)
        self.told = True


def _trains(module: nn.Module) -> bool:
    return module.training and any(one.requires_grad for one in module.parameters())


def main() -> None:
    """Run a script with its arguments, and record it."""
    script, *arguments = sys.argv[1:]
    recorder = ScriptRecorder(Path(script).stem)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).absolute().parent))
    recorder.install()
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        if not recorder.told:
            recorder.tell()


if __name__ == "__main__":
    main()
