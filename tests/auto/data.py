"""Tables that tests of weft.auto are run on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.auto.families.spaces import FAMILIES

WORDS = ["good", "bad", "fine", "awful", "great", "poor", "nice", "The", "slow", "quick", "parcel", "Éclair"]
CITIES = ["Ulm", "Bonn", "Köln", "Kiel"]


def mixed_columns(rows: int = 300, *, classes: bool = True, seed: int = 0) -> dict[str, Any]:
    """Return columns of every role; the target hangs on age, city, note and the month."""
    random = np.random.default_rng(seed)
    age = random.normal(40, 10, rows).round(1)
    city = random.choice(CITIES, rows)
    when = np.datetime64("2020-01-01", "s") + random.integers(0, 900 * 86400, rows)
    note = [" ".join(random.choice(WORDS, random.integers(4, 9))) for _ in range(rows)]
    late = (when.astype("datetime64[M]").astype(int) % 12) > 5
    bad = np.array(["bad" in one for one in note])
    z = 0.12 * (age - 40) + 1.5 * (city == "Ulm") - 2.0 * bad + 1.0 * late
    age[random.random(rows) < 0.1] = np.nan
    y: Any = (
        np.where(z + random.logistic(size=rows) > 0, "yes", "no") if classes else z + random.normal(size=rows)
    )
    return {
        "id": np.arange(rows),
        "age": age,
        "income": random.lognormal(10, 1, rows),
        "city": city,
        "zip": [f"z{i}" for i in random.integers(0, 300, rows)],
        "when": when,
        "note": note,
        "empty": [None] * rows,
        "y": y,
    }


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    import pyarrow as pa
    import pyarrow.csv

    table = pa.table(
        {name: pa.array(np.asarray(v).tolist() if name != "when" else v) for name, v in columns.items()}
    )
    pa.csv.write_csv(table, path)
    return path


def import_family(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip a test where the package of a family is not installed; CatBoost leaves a variable, which is taken back."""
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "")
    if FAMILIES[name].package:
        package = FAMILIES[name].package
        pytest.importorskip(
            package, reason=f"needs pip install {package}; CatBoost is no part of the dev extra"
        )
