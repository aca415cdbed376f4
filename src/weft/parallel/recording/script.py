"""Records the steps of a whole script: `python -m weft.parallel.recording.script train.py ...`.

Nothing of the script changes. The modules that it calls and that train are the model, and a step ends with a step of
each of its optimizers. After a few steps the record is printed, in one line for the launcher to find in the log, and
the script ends.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, median_low
from typing import Any

import torch
from torch import nn

from weft.launch.environment import worker_variables
from weft.parallel.recording.layers import layers_of, tensors_in, unwrapped
from weft.parallel.recording.optimizers import optimizer_seconds
from weft.parallel.recording.recorder import PassClock, _clock_for, optimizer_bytes, step_from, watched
from weft.topology.dimensions import Dimensions

MARK = "weft-step "  # before the record in the log of the worker
WARM_STEPS, RECORDED_STEPS = 1, 3


@dataclass
class ScriptStep:
    """One step of a script, as far as it has come: a step of each of its optimizers, and the passes before them."""

    passes: list[PassClock]
    optimizer_s: float  # of all optimizers
    other_s: float  # beside the passes and the optimizers, since the step before
    ended_at: float
    optimizers: set[int]


class RecordedEnoughError(SystemExit):
    """Ends the script once its steps are recorded."""


class ScriptRecorder:
    """Watches the modules and optimizers of this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.told = False
        self._models: list[nn.Module] = []  # that the script calls itself
        self._layers: dict[str, nn.Module] = {}
        self._known: set[int] = set()  # the models and all modules in them
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
        if not torch.is_grad_enabled():
            return
        if id(module) not in self._known and _trains(module):
            self._add(module)
        if module.training and not self._goes_on() and any(module is each for each in self._models):
            self._clock = PassClock(self._whole(), _clock_for(module)[0])
            self._step.append(self._clock)
            self._samples = next((int(one.shape[0]) for one in tensors_in(inputs) if one.dim()), 1)

    def _add(self, model: nn.Module) -> None:
        """Watch one more model: some scripts call an encoder and a decoder, or two nets that train each other."""
        if not self._models:
            self._open.enter_context(torch.autograd.graph.saved_tensors_hooks(self._pack, lambda one: one))
        prefix = f"{len(self._models)}." if self._models else ""
        watched_before = {id(layer) for layer in self._layers.values()}
        found = {
            f"{prefix}{name}": layer
            for name, layer in layers_of(unwrapped(model)).items()
            if id(layer) not in watched_before
        }
        self._open.enter_context(watched(found, lambda: self._clock))
        self._layers |= found
        self._models.append(model)
        self._known.update(id(each) for each in model.modules())

    def _whole(self) -> nn.Module:
        """Return all models as one."""
        return unwrapped(self._models[0]) if len(self._models) == 1 else nn.ModuleList(self._models)

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
        if not self._models or not (passes or self._steps):
            return
        # Some optimizers call for passes themselves.
        within_s = sum(clock.seconds for clock in passes if clock.began_at >= self._began_s)
        before_s = sum(clock.seconds for clock in passes) - within_s
        if not self._steps or (passes and id(optimizer) in self._steps[-1].optimizers):
            ended_at = self._steps[-1].ended_at if self._steps else self._began_s
            self._steps.append(ScriptStep([], 0.0, 0.0, ended_at, set()))
        step = self._steps[-1]
        step.passes += passes
        step.other_s += max(0.0, self._began_s - step.ended_at - before_s)
        step.optimizer_s += max(0.0, now - self._began_s - within_s)
        step.ended_at = now
        step.optimizers.add(id(optimizer))
        self._optimizers[id(optimizer)] = optimizer
        if self._enough():
            self.tell()
            raise RecordedEnoughError(0)

    def _enough(self) -> bool:
        more = len(self._steps) - WARM_STEPS - RECORDED_STEPS
        return more > 0 or (more == 0 and len(self._steps[-1].optimizers) == len(self._optimizers))

    def tell(self) -> None:
        """Print the record, and take the hooks off."""
        self._open.close()
        self._hooks.close()
        steps = self._steps[WARM_STEPS : WARM_STEPS + RECORDED_STEPS]
        if not self._models or not steps:
            return
        model = self._whole()
        record = step_from(
            model,
            self._layers,
            [step.passes for step in steps],
            state_bytes=sum(optimizer_bytes(model, one) for one in self._optimizers.values()),
            passes=median_low(len(step.passes) for step in steps),
            name=self._name,
            device=str(next(model.parameters()).device),
            samples=self._samples,
            optimizer_s=median(step.optimizer_s for step in steps),
            optimizer_fixed_s=sum(
                optimizer_seconds(one, _clock_for(model)[1])[1] for one in self._optimizers.values()
            ),
            other_s=median(step.other_s for step in steps),
        )
        print(MARK + json.dumps(asdict(record)), flush=True)
        self.told = True


def _trains(module: nn.Module) -> bool:
    return module.training and any(one.requires_grad for one in module.parameters())


def alone(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a worker in a world of its own; its cores, threads and device stay as they are."""
    place = worker_variables(
        rank=0,
        world=1,
        local_rank=0,
        local_world=1,
        host=environ.get("WEFT_HOST", "localhost"),
        host_index=0,
        host_count=1,
        placement=None,
    )
    one = Dimensions(accelerators=1, hosts_per_rack=1, racks=1, aisles=1, per_host=(1,))
    return {**environ, **dict(place), "WEFT_DIMENSIONS": str(one)}


def main() -> None:
    """Run a script with its arguments, and record it."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # the others only have their share of the host
        if os.environ["RANK"] == "0":
            program = [sys.executable, "-m", "weft.parallel.recording.script", *sys.argv[1:]]
            os.execve(sys.executable, program, alone(os.environ))
        return
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
