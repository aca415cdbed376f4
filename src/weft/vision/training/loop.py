"""The training loop: steps on augmented batches, an average of the weights, the best state kept.

It runs alike in one process, in a group of workers, and where workers come and go; see `world.py`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from weft.collectives.torch_private import multiply_each
from weft.vision.config.schema import VisionConfig
from weft.vision.models.small import SmallNet
from weft.vision.training.averaging import AveragedWeights
from weft.vision.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from weft.vision.training.feeding.batches import PictureBatch, ahead, decoding_pool
from weft.vision.training.feeding.sets import TrainingData
from weft.vision.training.optimizers import build_optimizer, freeze, still_norms
from weft.vision.training.schedule import input_size, rate_factor
from weft.vision.training.tasks import TrainingTask
from weft.vision.training.tasks.base import LossModule
from weft.vision.training.world import Array, SoloWorld, TrainingWorld, total_steps

HALF_SCALE = 1024.0  # of a loss in float16: gradients under 6e-8 would be lost
LOG_EVERY_S = 0.5
CHECKPOINT_EVERY_S = 60.0
TINY = 64  # pixels a side of pictures that are made many at once
CHUNK = 16  # batches of them
WHITENED = 5000  # pictures that whitening is fitted to
STOP_FILE = "stop"  # its presence in the model folder ends a training; the best state is kept

Report = Callable[[Mapping[str, Any]], None]


@dataclass
class LoopResult:
    """The outcome of a training loop."""

    model: nn.Module
    best: float | None = None  # score of the best state
    best_loss: float = 0.0  # of the best state on the same pictures, where its task tells one
    best_state: dict[str, Tensor] = field(default_factory=dict)
    steps: int = 0
    epochs: float = 0.0
    training_s: float = 0.0  # without loading, evaluation and export
    stopped: str = ""  # why it ended before its time
    chief: bool = True  # whether this worker was the first of them when the last step was made
    history: list[dict[str, Any]] = field(default_factory=list)


class VisionLoop:
    """One training, from built model to best weights."""

    def __init__(
        self,
        config: VisionConfig,
        data: TrainingData,
        task: TrainingTask,
        world: TrainingWorld,
        folder: Path | None = None,
        report: Report = lambda values: None,
        examples: Callable[[nn.Module, float], None] = lambda model, score: None,
    ) -> None:
        self.config, self.data, self.task, self.world = config, data, task, world
        self._folder, self._report, self._examples = folder, report, examples
        self._dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(config.precision or "")
        self._scale = HALF_SCALE if config.precision == "float16" else 1.0
        self._enough = False  # early stopping has been decided

    def run(self, model: nn.Module) -> LoopResult:
        """Train a model that is on the world's device; return its best state."""
        config, world = self.config, self.world
        if world.device.type == "cuda":
            self._warm_up(model)
        began = time.perf_counter()
        self._start_weights(model)
        freeze(config, model)
        steps = world.prepare(len(self.data.train), config.batch or 1, config.seed)
        total = total_steps(config.schedule.epochs or 0, steps)
        optimizer = build_optimizer(config, model)
        averaged = AveragedWeights(
            model, config.ema or 0.0, 5 if steps * 2 < total and (config.ema or 0) < 0.99 else 1
        )
        module = world.join(LossModule(model, self.task), optimizer=optimizer)
        result = LoopResult(averaged.model)
        state = Checkpoint(model, optimizer, averaged, result)
        first = read_checkpoint(self._folder, state) if isinstance(world, SoloWorld) else 0
        if config.compile:
            module = torch.compile(module)  # type: ignore[assignment]
        elif config.graphs and world.device.type == "cuda" and isinstance(module, LossModule):
            module = self._graphed(module)
        clock = _Clock(world.device, began, result.training_s)
        step = first * steps
        limit_s = 60 * (config.schedule.max_minutes or float("inf"))
        with decoding_pool(config) as pool:
            for epoch in world.epochs(first, -(-total // steps)):
                model.train()
                still_norms(config, model)
                for batch, planned in self._batches(epoch, step, total, pool):
                    progress = max(planned, clock.so_far() / limit_s)
                    if progress >= 1:
                        break
                    for group in optimizer.param_groups:
                        group["lr"] = group["full_lr"] * rate_factor(config.schedule, progress)
                    loss = self._step(module, model, optimizer, batch, epoch, progress)
                    averaged.update()
                    result.chief = world.rank == 0
                    if world.applied:
                        step += 1
                        self._tell(step, total, steps, loss, optimizer, clock)
                result.steps, result.epochs = step, step / steps
                if self._evaluated(epoch, step, total, averaged.model, result, clock) and step < total:
                    break
                if (
                    self._folder is not None
                    and world.rank == 0
                    and step < total
                    and clock.due(CHECKPOINT_EVERY_S)
                ):
                    result.training_s = clock.so_far()
                    write_checkpoint(self._folder, state, epoch + 1)
        clock.stop()
        result.training_s = clock.seconds
        return result

    def _warm_up(self, model: nn.Module) -> None:
        """Load the device's libraries by gradients of a copy that is thrown away: no training, and not timed."""
        twin = LossModule(copy.deepcopy(model), self.task).train()
        for _ in range(2):
            some = np.arange(min(len(self.data.train), self.config.batch or 1))
            batch, _ = self._make_batch(some, self.config.sides, 0, 0, 0.0)
            self._gradients(twin, twin.model, batch, 0, 1.0)
        torch.cuda.synchronize(self.world.device)

    def _graphed(self, module: LossModule) -> nn.Module:
        """Return the loss with its step recorded for batches of the usual size."""
        from weft.vision.training.tasks.graphs import graphed

        some = np.arange(min(len(self.data.train), self.config.batch or 1))
        batch, _ = self._make_batch(some, self.config.sides, 0, 0, 0.0)
        pixels, *targets = self.task.targets(batch, np.random.default_rng(0), mix=False)
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        replayed: nn.Module = graphed(module, (pixels, *targets), self._dtype)
        return replayed

    def _start_weights(self, model: nn.Module) -> None:
        """Fit what is computed from pictures rather than learned."""
        backbone = getattr(model, "backbone", None)
        if isinstance(backbone, SmallNet) and self.config.network.weights is None:
            some = np.arange(min(WHITENED, len(self.data.train)))
            batch = self.data.train.plain_batch(some, self.config, self.world.device)
            scale: Any = model.scale
            backbone.fit_whitening(scale(batch.pixels))

    def _batches(
        self, epoch: int, step: int, total: int, pool: ThreadPoolExecutor
    ) -> Iterator[tuple[PictureBatch, float]]:
        config, world = self.config, self.world

        def makers() -> Iterator[Callable[[], tuple[PictureBatch, float]]]:
            for number, share in enumerate(world.shares(epoch)):
                progress = (step + number) / total
                if progress >= 1:
                    return
                out = input_size(config.schedule, config.sides, progress)
                yield partial(self._make_batch, share, out, epoch, number, progress)

        if self.data.train.resident is not None:
            return (
                self._chunks(epoch, step, total) if max(config.sides) <= TINY else (one() for one in makers())
            )
        return ahead(pool, makers()) if isinstance(world, SoloWorld) else (one() for one in makers())

    def _chunks(self, epoch: int, step: int, total: int) -> Iterator[tuple[PictureBatch, float]]:
        """Yield batches of tiny pictures, many made at once: a device is slow at many small operations."""
        shares = list(islice(self.world.shares(epoch), max(0, total - step)))
        for start in range(0, len(shares), CHUNK):
            some = shares[start : start + CHUNK]
            progress = (step + start) / total
            whole, _ = self._make_batch(np.concatenate(some), self.config.sides, epoch, start, progress)
            at = 0
            for number, share in enumerate(some):
                part = slice(at, at + len(share))
                classes = None if whole.classes is None else whole.classes[part]
                yield (
                    PictureBatch(whole.pixels[part], classes, None, whole.maps[part], share),
                    progress + number / total,
                )
                at += len(share)

    def _make_batch(
        self, share: Array, out: tuple[int, int], epoch: int, number: int, progress: float
    ) -> tuple[PictureBatch, float]:
        """Return a batch and the share of the training that is done before it."""
        generator = np.random.default_rng((self.config.seed, epoch, number, self.world.rank))
        batch = self.data.train.training_batch(share, self.config, out, generator, self.world.device, epoch)
        return batch, progress

    def _step(
        self,
        module: nn.Module,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch: PictureBatch,
        epoch: int,
        progress: float,
    ) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = self._gradients(module, model, batch, epoch, progress)
        optimizer.step()
        return loss

    def _gradients(
        self, module: nn.Module, model: nn.Module, batch: PictureBatch, epoch: int, progress: float
    ) -> Tensor:
        device = self.world.device
        generator = np.random.default_rng((self.config.seed, epoch, int(batch.indices[0])))
        mix = progress < 1 - self.config.augment.stop_before_end
        pixels, *targets = self.task.targets(batch, generator, mix=mix)
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, dtype=self._dtype, enabled=self._dtype is not None):
            loss, _ = module(pixels, *targets)
        (loss * self._scale if self._scale != 1 else loss).backward()
        self._unscale(model)
        detached: Tensor = loss.detach()
        return detached

    def _unscale(self, model: nn.Module) -> None:
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        if self._scale != 1 and gradients:
            multiply_each(gradients, 1 / self._scale)
        if self.config.optimizer.clip and self.world.applied:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.config.optimizer.clip, foreach=True)

    def _tell(
        self, step: int, total: int, steps: int, loss: Tensor, optimizer: torch.optim.Optimizer, clock: _Clock
    ) -> None:
        if self.world.rank or not (clock.due(LOG_EVERY_S, "log") or step in (1, total)):
            return
        seconds = clock.so_far()
        self._report(
            {
                "step": step,
                "total": total,
                "epoch": step / steps,
                "loss": float(loss),
                "lr": optimizer.param_groups[0]["lr"],
                "seconds": seconds,
                "left_s": seconds / step * (total - step),
            }
        )

    def _evaluated(
        self, epoch: int, step: int, total: int, model: nn.Module, result: LoopResult, clock: _Clock
    ) -> bool:
        """Evaluate where it is time to, keep the best state; return whether to end early."""
        every = max(1, round(self.config.schedule.evaluate_every or 1))
        chosen = self.data.choose
        minutes = self.config.schedule.max_minutes
        over = minutes is not None and clock.so_far() >= minutes * 60
        last = step >= total or over
        asked = self._folder is not None and (self._folder / STOP_FILE).exists()
        stop = self.world.agree(asked or over or self._enough)
        if asked:
            result.stopped = "asked to stop"
        if chosen is None or self.world.rank or not (last or stop or (epoch + 1) % every == 0):
            return stop
        clock.stop()
        scored = self.task.evaluate(model, chosen, self.world.device, whole=False)
        row = {
            "step": step,
            "epoch": result.epochs,
            **{f"val_{name}": one for name, one in scored.figures.items()},
        }
        result.history.append(row)
        self._report(row)
        loss = float(scored.figures.get("loss", 0.0))
        better = result.best is None or scored.score > result.best
        # Few pictures are soon all right: of states that score alike, the one that is surer of it is the better one.
        if better or (scored.score == result.best and loss < result.best_loss):
            result.best, result.best_loss = scored.score, loss
            result.best_state = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self._examples(model, scored.score)
            row["best"] = True
            row["better"] = better
        clock.start()
        patience = self.config.schedule.early_stop
        since = _since(result.history, "better")
        if patience and since >= patience and not self._enough:
            result.stopped = f"no better {self.task.score_name} in {since} evaluations"
            self._enough = True  # the others hear of it at the end of the next epoch
            stop = stop or self.world.size == 1
        if (last or stop) and _since(result.history, "best"):
            model.load_state_dict(result.best_state)
        return stop


def _since(history: Sequence[Mapping[str, Any]], word: str) -> int:
    """Return how many evaluations there were after the last one of this kind."""
    places = [place for place, one in enumerate(history) if one.get(word)]
    return len(history) - 1 - (places[-1] if places else -1)


class _Clock:
    """Seconds of training, with the device's work done."""

    def __init__(self, device: torch.device, began: float, before_s: float = 0.0) -> None:
        self._device, self.seconds, self._began = device, before_s, began
        self._due: dict[Any, float] = {}

    def start(self) -> None:
        self._began = time.perf_counter()

    def stop(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds += time.perf_counter() - self._began
        self._began = time.perf_counter()

    def so_far(self) -> float:
        return self.seconds + time.perf_counter() - self._began

    def due(self, every_s: float, name: str = "") -> bool:
        """Tell whether a number of seconds has passed since this was last true."""
        now = time.perf_counter()
        if now - self._due.setdefault((name, every_s), self._began) < every_s:
            return False
        self._due[name, every_s] = now
        return True
