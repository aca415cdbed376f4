"""Rows that are named and not given: fits and predictions read data sets as they say, and files in S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from testing.s3_server import s3_server
from tests.learn.frames.test_frames import FEATURES, made, table

from weft.errors import DataError, UsageError
from weft.s3 import S3Bucket, S3Object

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of moto's server
    pytest.mark.usefixtures("own_cache"),
]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def rows() -> pa.Table:
    return pa.Table.from_pandas(table().drop(columns="w"))


def coef(source: Any) -> Any:
    return made("Ridge").fit(source, label="y").coef_


def test_a_filter_of_a_data_set_is_kept(tmp_path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    whole = ds.dataset(tmp_path / "rows.parquet")
    some = whole.filter(ds.field("a") < 0.5)
    wanted = coef(rows.filter(ds.field("a") < 0.5))
    np.testing.assert_allclose(coef(some), wanted, rtol=1e-4)
    assert not np.allclose(coef(whole), wanted, rtol=1e-2)
    model = made("Ridge").fit(whole, label="y")
    assert len(model.predict(some)) == some.count_rows() < len(rows)


def test_columns_in_the_names_of_folders_are_features(tmp_path: Path, rows: pa.Table) -> None:
    parts = rows.append_column("part", pa.array([row % 3 for row in range(len(rows))]))
    pq.write_to_dataset(parts, tmp_path / "rows", partition_cols=["part"])
    model = made("Ridge").fit(ds.dataset(tmp_path / "rows", partitioning="hive"), label="y")
    assert list(model.feature_names_in_) == [*FEATURES, "part"]


def test_data_sets_in_memory_and_joined_ones_are_read(tmp_path: Path, rows: pa.Table) -> None:
    pq.write_table(rows, tmp_path / "rows.parquet")
    joined = ds.dataset([ds.dataset(tmp_path / "rows.parquet"), ds.dataset(rows)])
    np.testing.assert_allclose(coef(ds.dataset(rows)), coef(rows), rtol=1e-4)
    np.testing.assert_allclose(coef(joined), coef(pa.concat_tables([rows, rows])), rtol=1e-4)


def test_a_target_that_a_data_set_lacks_is_told() -> None:
    with pytest.raises(DataError, match="the target must be a column of the data set, got 'y'; it has a"):
        coef(ds.dataset(pa.table({"a": [1.0, 2.0]})))


@pytest.mark.parametrize("kind", ["path", "glob", "data set", "stored"])
def test_predictions_are_read_as_fits_are(tmp_path: Path, rows: pa.Table, kind: str) -> None:
    for part in range(2):
        pq.write_table(rows.slice(30 * part, 30), tmp_path / f"part-{part}.parquet")
    source: Any = str(tmp_path / "part-*.parquet") if kind == "glob" else tmp_path
    model = made("GradientBoostingClassifier").fit(source, label="y")
    if kind == "data set":
        source = ds.dataset(sorted(tmp_path.glob("*.parquet")))
    elif kind == "stored":
        from weft.learn.tables.source import open_source

        source = open_source(tmp_path, "y")
    wanted = model.predict_proba(rows)
    np.testing.assert_allclose(model.predict_proba(source), wanted, rtol=1e-6)
    assert model.predict(source).tolist() == model.predict(rows).tolist()


def test_a_row_to_predict_that_cannot_be_read_is_named(tmp_path: Path, rows: pa.Table) -> None:
    model = made("Ridge").fit(rows, label="y")
    path = tmp_path / "new.csv"
    path.write_text("c,b,a\n1,2,3\n1,?,3\n")
    with pytest.raises(
        DataError, match=r"rows to predict must be whole, got .*new\.csv:3: b must be a number"
    ):
        model.predict(path)
    path.write_text("c,b,a\n1,2,3\n")
    np.testing.assert_allclose(model.predict(path), [model.intercept_ + model.coef_ @ [3, 2, 1]], rtol=1e-5)


def test_files_hold_decimals(tmp_path: Path, rows: pa.Table) -> None:
    money = rows.set_column(0, "a", rows["a"].cast(pa.decimal128(20, 9), safe=False))
    pq.write_table(money, tmp_path / "money.parquet")
    np.testing.assert_allclose(coef(tmp_path / "money.parquet"), coef(rows), rtol=1e-4)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(endpoint: str, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket with the table in two files; boto3 finds it by its own variables."""
    for name, value in {
        "ACCESS_KEY_ID": "key",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    client = boto3.session.Session().client("s3")
    client.create_bucket(Bucket="tables")
    for part in range(2):
        path = tmp_path / "part.parquet"
        pq.write_table(rows.slice(30 * part, 30), path)
        client.upload_file(str(path), "tables", f"orders/part-{part}.parquet")
    client.put_object(Bucket="tables", Key="orders/_SUCCESS", Body=b"")
    return client


def test_files_in_s3_are_fitted_and_predicted(bucket: Any, rows: pa.Table) -> None:
    model = made("Ridge").fit("s3://tables/orders", label="y")
    np.testing.assert_allclose(model.coef_, coef(rows), rtol=1e-4)
    np.testing.assert_allclose(
        model.predict("s3://tables/orders/part-1.parquet"), model.predict(rows)[30:], rtol=1e-4
    )


def test_a_table_of_s3_is_converted_again_where_it_changed(
    bucket: Any, rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    download = S3Bucket.download

    def noted(self: S3Bucket, one: S3Object, path: Path) -> None:
        fetched.append(one.key)
        download(self, one, path)

    monkeypatch.setattr(S3Bucket, "download", noted)
    first = coef("s3://tables/orders")
    assert sorted(fetched) == ["orders/part-0.parquet", "orders/part-1.parquet"]
    np.testing.assert_array_equal(coef("s3://tables/orders"), first)
    assert len(fetched) == 2
    pq.write_table(rows.slice(0, 20), tmp_path / "other.parquet")
    bucket.upload_file(str(tmp_path / "other.parquet"), "tables", "orders/part-1.parquet")
    assert not np.allclose(coef("s3://tables/orders"), first)


def test_what_s3_lacks_is_told(bucket: Any) -> None:
    with pytest.raises(DataError, match=r"s3://tables/nothing must have files that end in \.parquet"):
        coef("s3://tables/nothing")
    with pytest.raises(UsageError, match="s3://elsewhere must be there and readable, got NoSuchBucket"):
        coef("s3://elsewhere")
    with pytest.raises(DataError, match="got the connection 'work' in it; set AWS_PROFILE"):
        coef("s3://work@tables/orders")
