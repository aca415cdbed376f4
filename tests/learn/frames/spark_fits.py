"""Fits on a real local Spark, of two slots: prints what came of them as JSON. spark_fits.py"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from tests.learn.frames.spark_fits_table import table

from weft.learn import GradientBoostingClassifier, LogisticRegression, Ridge
from weft.learn.frames.spark_files import groups_of
from weft.learn.frames.spark_task import SparkRows


def session() -> Any:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def fitted(model: Any, *args: Any, **named: Any) -> Any:
    return model.fit(*args, **named)  # types of estimators do not know the names of columns


def said(model: Any, frame: Any, label: str) -> str:
    try:
        model.fit(frame, label=label)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    here, spark = table(), session()
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.createDataFrame(here)
    model = fitted(LogisticRegression(tol=1e-10), frame, label="y", sample_weight="w")
    # One partition, which is dealt out: barrier tasks refuse a coalesced frame.
    one = fitted(LogisticRegression(tol=1e-10), frame.coalesce(1), "y", "w")
    scored = model.predict_proba(model.predict(frame.select("y", "d", "`b.c`", "a"))).toPandas()
    vectors = (
        VectorAssembler(inputCols=["a", "d"], outputCol="features").transform(frame).select("features", "w")
    )
    ridge = fitted(Ridge(tol=1e-10), vectors, label="w")
    trees = fitted(GradientBoostingClassifier(n_estimators=3, random_state=0), frame.drop("w"), label="y")
    path = Path.cwd() / "a table.parquet"  # with a space, which Spark writes as %20
    here[["a", "d", "y", "w"]].to_parquet(path, row_group_size=500)
    of_file = spark.read.parquet(str(path))
    files = {
        "a file": of_file,
        "its columns": of_file.select("y", "w", "a", "d"),
        "some rows": of_file.where("a > 0"),
        "another column": of_file.withColumn("d", of_file["d"] + 1),
        "made here": frame.drop("`b.c`"),
    }
    reads = SparkRows(("a", "d"), "y", "w", "double")
    bad = frame.selectExpr("if(a > 3, null, a) as a", "y")
    print(
        json.dumps(
            {
                "partitions": frame.rdd.getNumPartitions(),
                "coef": model.coef_.tolist(),
                "names": model.feature_names_in_.tolist(),
                "classes": model.classes_.tolist(),
                "n_jobs": model.n_jobs,
                "dealt": one.coef_.tolist(),
                "predicted": scored["prediction"].tolist(),
                "probable": np.stack(scored["probability"]).tolist(),
                "of vectors": [ridge.coef_.tolist(), vectors.count(), len(ridge.predict(vectors).toPandas())],
                "trees": trees.predict(frame).toPandas()["prediction"].tolist(),
                "read by": {name: min(2, len(groups_of(one, reads))) for name, one in files.items()},
                "of files": {
                    name: fitted(LogisticRegression(tol=1e-10), files[name], "y", "w").coef_.tolist()
                    for name in ("a file", "some rows")
                },
                "missing": said(LogisticRegression(), bad, "y"),
                "parameter": said(LogisticRegression(C=-1), frame.drop("w"), "y"),
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main()
