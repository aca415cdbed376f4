"""`weft auto` beside tuned LightGBM, FLAML and AutoGluon: the same tables, the same seconds, one after the other.

    python benchmarks/auto.py                          all tables, 20 seconds each
    python benchmarks/auto.py --seconds 600            as long as the goal asks
    python benchmarks/auto.py --only text digits       some tables
    python benchmarks/auto.py --systems weft lightgbm  some systems
    python benchmarks/auto.py --json                   the losses as data
    python benchmarks/auto.py --latency                one raw row in the graph and from a server, over its models alone

A quarter of each table (of one in order, the last) is kept from all of them and judges: log-loss of classes, RMSE of
numbers. LightGBM is tuned by Optuna's TPE with five folds and early stopping until its time is over, and fitted again
to all its rows; it gets categories as such, dates as numbers and TF-IDF of the 100 commonest words. Systems take
turns on each table, so that they meet the same neighbours.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from benchmarks import claims  # noqa: E402
from sklearn import datasets  # noqa: E402
from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit, train_test_split  # noqa: E402

Frame = Any
CORES = len(os.sched_getaffinity(0))
Array = np.ndarray[Any, Any]
WORDS = [
    "good",
    "bad",
    "fine",
    "awful",
    "great",
    "poor",
    "nice",
    "slow",
    "quick",
    "parcel",
    "broken",
    "late",
    "early",
    "kind",
    "rude",
    "cheap",
    "dear",
]


def bundled(load: Callable[..., Any]) -> Frame:
    found = load(as_frame=True)
    return found.data.assign(y=found.target)


def mixed(rows: int = 4000, seed: int = 0) -> Frame:
    """Numbers with holes, categories, dates; two classes."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": random.normal(40, 12, rows),
            "income": random.lognormal(10, 1, rows),
            "city": random.choice(list("abcdefghij"), rows),
            "when": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(random.integers(0, 900 * 86400, rows), unit="s"),
        }
    )
    z = 0.07 * (frame.age - 40) + 1.2 * frame.city.isin(["a", "d"]) + 0.9 * (frame.when.dt.month > 6)
    z += 0.8 * (frame.when.dt.dayofweek > 4) - 0.5 * np.log(frame.income / 2e4)
    frame["y"] = (z + random.logistic(size=rows) > 0.5).astype(int)
    frame.loc[random.random(rows) < 0.15, "age"] = np.nan
    return frame


def text(rows: int = 3000, seed: int = 1) -> Frame:
    """A few sentences and a number; two classes."""
    random = np.random.default_rng(seed)
    weight = dict(zip(WORDS, random.normal(0, 1, len(WORDS)), strict=True))
    chosen = [random.choice(WORDS, random.integers(5, 15)) for _ in range(rows)]
    z = np.array([sum(weight[word] for word in words) / 2 for words in chosen])
    stars = random.integers(1, 6, rows)
    y = (z + 0.4 * (stars - 3) + random.logistic(size=rows) > 0).astype(int)
    return pd.DataFrame({"note": [" ".join(words) for words in chosen], "stars": stars, "y": y})


def many_categories(rows: int = 6000, seed: int = 2) -> Frame:
    """Two columns of 600 categories with effects of their own; a number."""
    random = np.random.default_rng(seed)
    shop, item = random.integers(0, 600, rows), random.integers(0, 600, rows)
    effect = random.normal(0, 1.2, (2, 600))
    x = random.normal(size=rows)
    y = effect[0, shop] + effect[1, item] + x + random.normal(0, 0.7, rows)
    return pd.DataFrame({"shop": [f"s{i}" for i in shop], "item": [f"i{i}" for i in item], "x": x, "y": y})


def friedman(rows: int = 4000, seed: int = 3) -> Frame:
    x, y = datasets.make_friedman1(rows, 12, noise=1.0, random_state=seed)
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(12)]).assign(y=y)


def imbalanced(rows: int = 8000, seed: int = 4) -> Frame:
    x, y = datasets.make_classification(
        rows, 20, n_informative=8, weights=[0.96], class_sep=0.8, random_state=seed
    )
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(20)]).assign(y=y)


def ten(rows: int = 3000, seed: int = 5) -> Frame:
    """Ten classes of two clusters each, among columns that tell nothing."""
    x, y = datasets.make_classification(
        rows, 25, n_informative=12, n_redundant=4, n_classes=10, n_clusters_per_class=2, random_state=seed
    )
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(25)]).assign(y=y)


def tails(rows: int = 5000, seed: int = 6) -> Frame:
    """Claims: a few amounts are a hundred times the others; numbers with holes and a category."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(random.normal(size=(rows, 8)), columns=[f"x{i}" for i in range(8)])
    frame["kind"] = random.choice(list("abcde"), rows)
    scale = 0.6 * frame.x0 + 0.4 * frame.x1 * frame.x2 + 0.8 * frame.kind.isin(["a", "c"])
    frame["y"] = np.exp(scale) * random.gamma(2.0, 1.0, rows)
    frame.loc[random.random(rows) < 0.2, "x1"] = np.nan
    return frame


def trend(rows: int = 4000, seed: int = 7) -> Frame:
    """Sales by the hour, in order: they grow, with weeks, days and a price; later rows judge."""
    random = np.random.default_rng(seed)
    when = pd.date_range("2022-01-01", periods=rows, freq="5h")
    price = 10 + random.normal(0, 1, rows)
    y = 50 + 0.01 * np.arange(rows) + 8 * (when.dayofweek > 4) + 5 * np.sin(when.hour / 24 * 2 * np.pi)
    y = y - 3 * (price - 10) + random.normal(0, 3, rows)
    return pd.DataFrame({"when": when, "price": price, "shop": random.choice(list("uvw"), rows), "y": y})


TIMED = {"trend": "when"}  # the column by which later rows judge
TABLES: dict[str, Callable[[], Frame]] = {
    "cancer": lambda: bundled(datasets.load_breast_cancer),
    "diabetes": lambda: bundled(datasets.load_diabetes),
    "digits": lambda: bundled(datasets.load_digits),
    "mixed": mixed,
    "text": text,
    "categories": many_categories,
    "friedman": friedman,
    "imbalanced": imbalanced,
    "wine": lambda: bundled(datasets.load_wine),
    "ten": ten,
    "tails": tails,
    "trend": trend,
}


def is_classes(y: Array) -> bool:
    return len(np.unique(y)) <= 20


def loss(y: Array, predicted: Array) -> float:
    from weft.auto.validation import loss_of

    if is_classes(y):
        return loss_of("log_loss", y.astype(int), predicted)
    return loss_of("rmse", y, predicted.reshape(-1, 1))


def time_of(frame: Frame) -> str | None:
    """Return the column that orders the rows of a table, if one does."""
    return next(
        (name for name in TIMED.values() if name in frame and frame[name].is_monotonic_increasing), None
    )


def by_weft(train: Frame, test: Frame, seconds: float, models: tuple[str, ...] = ()) -> Array:
    import weft.auto

    task = "classes" if is_classes(train.y.to_numpy()) else "numbers"
    model = weft.auto.fit(train, "y", minutes=seconds / 60, task=task, models=models, time=time_of(train))
    return model.predict_proba(test) if task == "classes" else model.predict(test)


def by_weft_alone(train: Frame, test: Frame, seconds: float) -> Array:
    return by_weft(train, test, seconds, ("linear", "forest", "boosting"))


def by_flaml(train: Frame, test: Frame, seconds: float) -> Array:
    classes = is_classes(train.y.to_numpy())
    automl: Any = import_module("flaml").AutoML()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # CatBoost leaves files where it runs
        automl.fit(
            train.drop(columns="y"),
            train.y,
            task="classification" if classes else "regression",
            metric="log_loss" if classes else "rmse",
            time_budget=seconds,
            verbose=0,
            seed=0,
            **({"split_type": "time"} if time_of(train) else {}),
        )
    rows = test.drop(columns="y")
    return np.asarray(automl.predict_proba(rows) if classes else automl.predict(rows))


def by_autogluon(train: Frame, test: Frame, seconds: float) -> Array:
    from autogluon.tabular import TabularPredictor

    classes = is_classes(train.y.to_numpy())
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor(
            "y",
            problem_type=None if not classes else "binary" if train.y.nunique() == 2 else "multiclass",
            eval_metric="log_loss" if classes else "root_mean_squared_error",
            path=folder,
            verbosity=0,
        ).fit(train, time_limit=seconds, presets="best_quality", num_cpus=CORES)
        rows = test.drop(columns="y")
        found = predictor.predict_proba(rows) if classes else predictor.predict(rows)
    return np.asarray(found)


def plain(train: Frame, test: Frame) -> tuple[Frame, Frame]:
    """Columns as LightGBM takes them: categories as such, dates as numbers, words as TF-IDF."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    sides = [train.drop(columns="y").copy(), test.drop(columns="y").copy()]
    for name in list(sides[0]):
        column = sides[0][name]
        if column.dtype.kind == "M":
            for side in sides:
                side[name] = side[name].astype("int64") / 1e9
        elif column.dtype.kind not in "fiub":
            if column.str.contains(" ").mean() > 0.5:
                words = TfidfVectorizer(max_features=100).fit(column)
                for side in sides:
                    found = words.transform(side.pop(name)).toarray()
                    side[[f"{name}_{i}" for i in range(found.shape[1])]] = found
            else:
                known = sorted(column.unique())
                for side in sides:
                    side[name] = pd.Categorical(side[name], categories=known)
    return sides[0], sides[1]


def by_lightgbm(train: Frame, test: Frame, seconds: float) -> Array:
    import lightgbm
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    began = time.monotonic()
    y = train.y.to_numpy()
    classes = is_classes(y)
    rows, tested = plain(train, test)
    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    parts: Any = (StratifiedKFold if classes else KFold)(5, shuffle=True, random_state=0)
    folds: list[Any] = list((TimeSeriesSplit(5) if time_of(train) else parts).split(rows, y))

    def objective(trial: Any) -> float:
        params = {
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 160, log=True),
            "min_child_samples": trial.suggest_int("min_child_samples", 2, 100, log=True),
            "reg_lambda": trial.suggest_float("reg_lambda", 1e-3, 30, log=True),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.3, 1.0),
        }
        losses, rounds = [], []
        for inside, outside in folds:
            if time.monotonic() - began > 0.9 * seconds and trial.number:
                raise optuna.TrialPruned
            model = kind(n_estimators=1500, subsample_freq=1, verbose=-1, random_state=0, **params)
            model.fit(
                rows.iloc[inside],
                y[inside],
                eval_set=[(rows.iloc[outside], y[outside])],
                callbacks=[lightgbm.early_stopping(30, verbose=False)],
            )
            judged = rows.iloc[outside]
            losses.append(loss(y[outside], model.predict_proba(judged) if classes else model.predict(judged)))
            rounds.append(model.best_iteration_ or 1500)
        trial.set_user_attr("rounds", int(np.mean(rounds) * 1.05))
        return float(np.mean(losses))

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, timeout=0.9 * seconds)
    best = study.best_trial
    model = kind(
        n_estimators=best.user_attrs["rounds"], subsample_freq=1, verbose=-1, random_state=0, **best.params
    )
    model.fit(rows, y)
    return np.asarray(model.predict_proba(tested) if classes else model.predict(tested))


SYSTEMS: dict[str, Callable[[Frame, Frame, float], Array]] = {
    "weft": by_weft,
    "alone": by_weft_alone,
    "lightgbm": by_lightgbm,
    "flaml": by_flaml,
    "autogluon": by_autogluon,
}


def measured(names: list[str], systems: list[str], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the losses of every system on each table, with the seconds that each took."""
    for place, name in enumerate(names):
        frame = TABLES[name]()
        y = frame.y if is_classes(frame.y.to_numpy()) else None
        if name in TIMED:
            train, test = train_test_split(frame, test_size=0.25, shuffle=False)
        else:
            train, test = train_test_split(frame, test_size=0.25, random_state=0, stratify=y)
        found: dict[str, Any] = {"table": name, "rows": len(train)}
        turns = systems[place % len(systems) :] + systems[: place % len(systems)]
        for system in turns:
            began = time.monotonic()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                predicted = SYSTEMS[system](
                    train.reset_index(drop=True), test.reset_index(drop=True), seconds
                )
            found[system] = loss(test.y.to_numpy(), predicted)
            found[f"{system}_s"] = round(time.monotonic() - began, 1)
        yield found


def summary(rows: list[dict[str, Any]], systems: list[str]) -> dict[str, Any]:
    """Return mean ranks (1 is the best), and the worst ratio of our loss to LightGBM's."""
    ranks = {
        system: float(np.mean([1 + sum(row[other] < row[system] for other in systems) for row in rows]))
        for system in systems
    }
    told: dict[str, Any] = {"mean_rank": ranks}
    if "weft" in systems and "lightgbm" in systems:
        ratios = {row["table"]: row["weft"] / row["lightgbm"] for row in rows}
        told |= {
            "worst_ratio_to_lightgbm": max(ratios.values()),
            "worst_table": max(ratios, key=ratios.__getitem__),
        }
    return told


@dataclass(frozen=True)
class Latency:
    """Milliseconds of one raw row: of the graph's models alone, of the whole graph, and of a server's answer."""

    models_cpu: float
    pipeline_cpu: float
    models: float  # by the clock, as the next
    served: float


def latency_ms(repeats: int = 300) -> Latency:
    """Return CPU time, and the medians of the clock where the graph's models and the server take turns."""
    import onnxruntime

    import weft.auto
    from weft.auto.onnx import feed_of
    from weft.learn import to_onnx

    frame = mixed(1500).assign(note=text(1500).note)
    model = weft.auto.fit(
        frame, "y", minutes=5, trials=3, models=["linear", "boosting", "forest"], task="classes"
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    row = model.read(frame.dropna()[:1])
    feed = feed_of(row, model.kinds)
    graph = weft.auto.to_onnx(model).SerializeToString()
    pipeline = [(onnxruntime.InferenceSession(graph, options), feed)]
    models = []
    for member in model.members:
        own = to_onnx(member.model.estimator, dtype=np.float64).SerializeToString()
        features = member.view.transform(row)
        dense = np.asarray(features.toarray() if hasattr(features, "toarray") else features)
        models.append((onnxruntime.InferenceSession(own, options), {"X": dense}))
    with tempfile.TemporaryDirectory() as folder, served_row(Path(folder), graph, feed, model.kinds) as ask:
        spent = [
            [ran(lambda: answer(models)), ran(lambda: answer(pipeline)), ran(ask)] for _ in range(repeats)
        ]
    clock, cpu = np.median(np.array(spent), axis=0).T, np.mean(np.array(spent), axis=0).T
    return Latency(1e3 * cpu[1][0], 1e3 * cpu[1][1], 1e3 * clock[0][0], 1e3 * clock[0][2])


def answer(sessions: list[tuple[Any, dict[str, Array]]]) -> None:
    for session, feed in sessions:
        session.run(None, feed)


def ran(work: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds that work took, and those of this process's cores."""
    began, spent = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - spent


@contextmanager
def served_row(
    folder: Path, graph: bytes, feed: dict[str, Array], kinds: dict[str, str]
) -> Iterator[Callable[[], None]]:
    """Serve a graph, and yield what asks it for one row over a connection that stays open."""
    import http.client

    from testing.serving.server import serving

    (folder / "model.onnx").write_bytes(graph)
    inputs = [
        {
            "name": name,
            "datatype": "FP64" if kinds[name] == "number" else "BYTES",
            "shape": [1, 1],
            "data": feed[name].ravel().tolist(),
        }
        for name in kinds
    ]
    body = json.dumps({"inputs": inputs})
    with serving(folder, str(folder / "model.onnx"), grpc=False) as server:
        connection = http.client.HTTPConnection(server.address)

        def ask() -> None:
            connection.request("POST", "/v2/models/model/infer", body, {"Content-Type": "application/json"})
            answered = connection.getresponse()
            content = answered.read()
            assert answered.status == 200, content

        ask()
        yield ask
        connection.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", nargs="*", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--systems", nargs="*", choices=list(SYSTEMS), default=["weft", "lightgbm", "flaml"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    if given.latency:
        found = latency_ms()
        print(found)
        figures = {
            "latency": found.pipeline_cpu - found.models_cpu,
            "served-latency": found.served - found.models,
        }
        print(claims.report("auto", figures))
        return
    rows = []
    for row in measured(given.only, given.systems, given.seconds):
        rows.append(row)
        if not given.json:
            shown = "  ".join(f"{s} {row[s]:.5f} ({row[f'{s}_s']} s)" for s in given.systems)
            print(f"{row['table']:12} {shown}", flush=True)
    told = summary(rows, given.systems)
    if given.json:
        print(json.dumps({"tables": rows, **told}))
        return
    print(told)
    ranks = told["mean_rank"]
    if {"weft", "lightgbm", "flaml"} <= set(ranks):
        best = min(rank for system, rank in ranks.items() if system not in ("weft", "alone"))
        figures = {"mean-rank": ranks["weft"] / best, "never-worse": told["worst_ratio_to_lightgbm"]}
        print(claims.report("auto", figures))


if __name__ == "__main__":
    main()
