"""A logistic fit of a Spark data frame beside MLlib's, on a local Spark of this machine's cores: seconds by the clock.

    python benchmarks/learn_spark.py                       10,000,000 rows of 20 columns
    python benchmarks/learn_spark.py --rows 1000000        fewer

Needs pyspark and Java. Rows are float32 in a Parquet file that Spark reads; in turns each system fits them without an
intercept until its objective, computed here in float64, is within `--gap` of the least that anyone found. MLlib's
frame has its columns assembled into vectors and is cached, as its users do; the caching is in its time, as reading is
in ours. Our workers read such files themselves; "by Spark" is the same fit of a frame with a filter, which Spark reads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROOT / "src"), str(_ROOT)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from benchmarks import claims  # noqa: E402
from pyspark.ml.classification import LogisticRegression as MllibLogistic  # noqa: E402
from pyspark.ml.feature import VectorAssembler  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from weft.learn import LogisticRegression  # noqa: E402

Array = np.ndarray[Any, Any]

GROUP = 500_000  # rows of a group of the file, and of a block here
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)  # of MLlib, the loosest that gets there is measured


@dataclass(frozen=True)
class SparkFit:
    """What one fit found, and the seconds it took."""

    coef: Array
    seconds: float


def write_rows(path: Path, rows: int, columns: int) -> None:
    """Write correlated columns and a label as one Parquet file."""
    random = np.random.default_rng(0)
    coef = random.standard_normal(columns) / np.sqrt(columns)
    names = [*(f"x{j}" for j in range(columns)), "y"]
    schema = pa.schema([*((name, pa.float32()) for name in names[:-1]), ("y", pa.int32())])
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        for start in range(0, rows, GROUP):
            X = random.standard_normal((min(GROUP, rows - start), columns), dtype=np.float32)
            X += random.standard_normal((len(X), 1), dtype=np.float32)
            y = (X @ coef + random.logistic(size=len(X)) > 0).astype(np.int32)
            writer.write_table(pa.table([*X.T, y], schema=schema), row_group_size=GROUP)


def objective(path: Path, coef: Array) -> float:
    """Return the sum of the losses and half the squares of the coefficients."""
    total = float(coef @ coef) / 2
    for batch in pq.ParquetFile(path).iter_batches(GROUP):
        X = np.stack([batch.column(j).to_numpy() for j in range(len(coef))], axis=1)
        sign = np.where(batch.column(len(coef)).to_numpy() > 0, -1, 1)
        total += float(np.logaddexp(0, sign * (X @ coef)).sum())
    return total


def ours(frame: Any, gap: float) -> SparkFit:
    model: Any = LogisticRegression(tol=gap, fit_intercept=False)
    began = time.perf_counter()
    model.fit(frame, label="y")
    return SparkFit(np.ravel(model.coef_).astype(np.float64), time.perf_counter() - began)


def mllib(frame: Any, rows: int, tol: float) -> SparkFit:
    """Fit MLlib's model: its objective is the mean loss, and its penalty is ours divided by the rows."""
    features = [name for name in frame.columns if name != "y"]
    began = time.perf_counter()
    vectors = (
        VectorAssembler(inputCols=features, outputCol="features").transform(frame).select("features", "y")
    )
    vectors.cache()
    found = MllibLogistic(
        labelCol="y", regParam=1 / rows, fitIntercept=False, standardization=False, tol=tol, maxIter=200
    ).fit(vectors)
    seconds = time.perf_counter() - began
    vectors.unpersist(blocking=True)
    return SparkFit(found.coefficients.toArray(), seconds)


def session(cores: int, memory: str) -> Any:
    """Return a Spark on this machine's cores, whose temporary files end with it."""
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", memory)
    made = builder.config("spark.sql.files.maxPartitionBytes", "1g").getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def measure(
    frame: Any, path: Path, rows: int, gap: float, repeats: int, tolerances: tuple[float, ...]
) -> float:
    """Print both systems' seconds and gaps; return how many times faster ours is."""
    ours(frame.limit(10_000), gap)  # Spark's workers and our kernels are loaded
    fits: dict[str, Callable[[], SparkFit]] = {"weft": lambda: ours(frame, gap)}
    first = fits["weft"]()
    least, tol = objective(path, first.coef), 0.0
    for tol in tolerances:
        rival = mllib(frame, rows, tol)
        value = objective(path, rival.coef)
        print(f"MLlib at tol {tol:g}: {rival.seconds:.1f} s, gap {value / least - 1:.1e} to ours", flush=True)
        least = min(least, value)
        if value <= least * (1 + gap):
            break
    fits["by Spark"] = lambda: ours(frame.where("y < 2"), gap)
    fits["MLlib"] = lambda: mllib(frame, rows, tol)
    best: dict[str, float] = {}
    for _ in range(repeats):
        for name, fit in fits.items():
            one = fit()
            off = objective(path, one.coef) / least - 1
            print(f"{name:8}{one.seconds:8.1f} s, gap {off:.1e}", flush=True)
            best[name] = min(best.get(name, one.seconds), one.seconds)
    print(f"where Spark reads the rows, weft is {best['MLlib'] / best['by Spark']:.1f} times faster")
    return best["MLlib"] / best["weft"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="6g", help="of Spark's Java process")
    parser.add_argument("--gap", type=float, default=1e-5)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--tol", type=float, help="of MLlib, where it is known")
    options = parser.parse_args()
    tolerances = (options.tol,) if options.tol else TOLERANCES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path, options.rows, options.columns)
        spark = session(options.cores, options.memory)
        frame = spark.read.parquet(str(path))
        ratio = measure(frame, path, options.rows, options.gap, options.repeats, tolerances)
        spark.stop()
    print(f"{options.rows:,} rows: weft is {ratio:.1f} times faster")
    print("\n" + claims.report("learn", {"spark": ratio} if options.rows == 10_000_000 else {}), end="")


if __name__ == "__main__":
    main()
