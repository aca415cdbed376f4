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
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from weft.parallel.recording.layers import layers_of, tensors_in
from weft.parallel.recording.recorder import PassClock, _clock_for, optimizer_bytes, step_from, watched

MARK = "weft-step "  # before the record in the log of the worker
WARM_STEPS, RECORDED_STEPS = 1, 3


@dataclass
class ScriptStep:
    """One step of a script, as far as it has come."""

    passes: list[PassClock]
    optimizer_s: float  # of all optimizers that step one after the other
    other_s: float  # beside the passes and the optimizers, since the step before
    ended_at: float


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
        self._steps: list[ScriptStep] = []
        self._optimizers: dict[int, torch.optim.Optimizer] = {}
        self._began_s, self._samples = 0.0, 1

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
        if module is self._model and torch.is_grad_enabled() and module.training and not self._goes_on():
            self._clock = PassClock(module, _clock_for(module)[0])
            self._step.append(self._clock)
            self._samples = next((int(one.shape[0]) for one in tensors_in(inputs) if one.dim()), 1)

    def _goes_on(self) -> bool:
        """Return whether the pass before has not come to its backward part: some losses take several forward parts."""
        return bool(self._step) and not self._step[-1].whole

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._clock.pack(tensor) if self._clock is not None else tensor

    def _before_step(self, *_: Any) -> None:
        self._began_s = time.perf_counter()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        now = time.perf_counter()
        passes = [clock for clock in self._step if clock.whole]
        self._step = []
        if self._model is None:
            return
        if passes:
            before = self._steps[-1].ended_at if self._steps else self._began_s
            other_s = self._began_s - before - sum(clock.seconds for clock in passes)
            self._steps.append(ScriptStep(passes, 0.0, max(0.0, other_s), now))
        if self._steps:  # without passes: another optimizer of the same step
            self._optimizers[id(optimizer)] = optimizer
            self._steps[-1].optimizer_s += now - self._began_s
            self._steps[-1].ended_at = now
        if len(self._steps) == WARM_STEPS + RECORDED_STEPS:
            self.tell()
            raise RecordedEnoughError(0)

    def tell(self) -> None:
        """Print the record, and take the hooks off."""
        self._open.close()
        self._hooks.close()
        steps = self._steps[WARM_STEPS:]
        if self._model is None or not steps:
            return
        found = getattr(self._model, "module", self._model)
        model = found if isinstance(found, nn.Module) else self._model
        record = step_from(
            model,
            self._layers,
            [clock for step in steps for clock in step.passes],
            state_bytes=sum(optimizer_bytes(model, one) for one in self._optimizers.values()),
            passes=len(steps[-1].passes),
            name=self._name,
            device=str(next(model.parameters()).device),
            samples=self._samples,
            optimizer_s=median(step.optimizer_s for step in steps),
            other_s=median(step.other_s for step in steps),
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
