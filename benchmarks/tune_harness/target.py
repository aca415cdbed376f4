"""Time to a target accuracy on digits: ours, Optuna's TPE with its Hyperband pruner, and random search, interleaved.

All search the same space with the same network, one training at a time on one core. The clock is the processor time of
this process, until any report reaches the target.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import weft.tune as tune

EPOCHS = 27
SPACE = {
    "lr": "log:1e-5:1",
    "optimizer": "sgd,adam,rmsprop",
    "width": "int:4:32:log",
    "batch": "ordered:16,32,64,128",
    "dropout": "float:0:0.7",
    "decay": "log:1e-6:1e-1",
}


class TargetReached(Exception):  # noqa: N818 (an end, not an error)
    """The target was reached, and when."""


@cache
def data() -> tuple[torch.Tensor, ...]:
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, random_state=0, stratify=y, test_size=0.3)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) for part in parts[:2])
    return train_x, test_x, torch.tensor(parts[2]), torch.tensor(parts[3])


class DigitsTraining:
    """One network in training, which can be saved and loaded."""

    def __init__(self, params: dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        width = params["width"]
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(1, width, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(width, 2 * width, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Dropout(params["dropout"]),
            torch.nn.Linear(2 * width * 16, 10),
        )
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}
        kind: Any = kinds[params["optimizer"]]
        self.optimizer = kind(self.model.parameters(), lr=params["lr"], weight_decay=params["decay"])
        self.batch = params["batch"]

    def epoch(self) -> float:
        """Train one epoch; return the accuracy on the test rows."""
        train_x, test_x, train_y, test_y = data()
        self.model.train()
        order = torch.randperm(len(train_x))
        for start in range(0, len(order), self.batch):
            rows = order[start : start + self.batch]
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(train_x[rows]), train_y[rows])
            torch.autograd.backward(loss)
            self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            return float((self.model(test_x).argmax(1) == test_y).float().mean())

    def save(self, path: Path) -> None:
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], path)

    def load(self, path: Path) -> None:
        model, optimizer = torch.load(path)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def ours(seed: int, reached: Callable[[float], None], trials: int, schedule: str) -> None:
    def train(trial: Any) -> None:
        saved = trial.checkpoint / "model.pt"
        note = trial.checkpoint / "epoch"
        training = DigitsTraining(trial.params, seed)
        first = 1
        if note.exists():
            training.load(saved)
            first = int(note.read_text()) + 1
        for epoch in range(first, EPOCHS + 1):
            accuracy = training.epoch()
            reached(accuracy)
            trial.report(accuracy, epoch)
            if trial.should_prune():
                training.save(saved)
                note.write_text(str(epoch))
                raise tune.TrialPruned

    study = tune.Study(
        SPACE,
        train,
        maximize="accuracy",
        search="tpe",
        schedule=schedule,
        resource={"name": "epochs", "min": 1, "max": EPOCHS},
        seed=seed,
        checkpoints=True,
    )
    try:
        study.optimize(trials=trials)
    finally:
        study.close()


def optunas(seed: int, reached: Callable[[float], None], trials: int, *, random: bool) -> None:
    def objective(trial: optuna.Trial) -> float:
        params = {
            "lr": trial.suggest_float("lr", 1e-5, 1, log=True),
            "optimizer": trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"]),
            "width": trial.suggest_int("width", 4, 32, log=True),
            "batch": trial.suggest_categorical("batch", [16, 32, 64, 128]),
            "dropout": trial.suggest_float("dropout", 0, 0.7),
            "decay": trial.suggest_float("decay", 1e-6, 1e-1, log=True),
        }
        training = DigitsTraining(params, seed)
        accuracy = 0.0
        for epoch in range(1, EPOCHS + 1):
            accuracy = training.epoch()
            reached(accuracy)
            trial.report(accuracy, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return accuracy

    sampler: Any = (optuna.samplers.RandomSampler if random else optuna.samplers.TPESampler)(seed=seed)
    pruner: Any = optuna.pruners.NopPruner()
    if not random:
        pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3)
    optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner).optimize(
        objective, n_trials=trials
    )


def time_to(target: float, search: Callable[[Callable[[float], None]], None]) -> float | None:
    """Return the processor seconds until a search reports the target; None: it never did."""
    start = time.process_time()

    def reached(accuracy: float) -> None:
        if accuracy >= target:
            raise TargetReached(time.process_time() - start)

    try:
        search(reached)
    except TargetReached as found:
        return float(found.args[0])
    return None


def contenders(seed: int, trials: int) -> Iterator[tuple[str, Callable[[Callable[[float], None]], None]]]:
    yield "weft asha", lambda reached: ours(seed, reached, trials, "asha")
    yield "optuna tpe+hyperband", lambda reached: optunas(seed, reached, trials, random=False)
    yield "random", lambda reached: optunas(seed, reached, trials, random=True)
    yield "weft hyperband", lambda reached: ours(seed, reached, trials, "hyperband")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py target")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--target", type=float, default=0.985)
    parser.add_argument("--trials", type=int, default=400)
    options = parser.parse_args(words)
    torch.set_num_threads(1)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    data()
    DigitsTraining(
        {"width": 4, "dropout": 0.0, "optimizer": "sgd", "lr": 0.1, "decay": 0.0, "batch": 64}, 0
    ).epoch()
    times: dict[str, list[float]] = {}
    for seed in range(options.seeds):
        for name, search in contenders(seed, options.trials):
            found = time_to(options.target, search)
            times.setdefault(name, []).append(float("inf") if found is None else found)
            print(f"seed {seed}: {name} {times[name][-1]:.1f} s", flush=True)
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, value in middle.items():
        print(f"{name}: median {value:.2f} s to {options.target}")
    for rival in ("optuna tpe+hyperband", "random"):
        for mine in ("weft asha", "weft hyperband"):
            print(f"{mine} / {rival}: {middle[mine] / middle[rival]:.3f}")
