"""The table of the fits on Spark."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEATURES = ["a", "b.c", "d"]


def table(rows: int = 1200) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((rows, 3)), columns=FEATURES)
    classes = np.where(frame["a"] + frame["b.c"] > random.standard_normal(rows), "yes", "no")
    return frame.assign(y=classes, w=1.0 + (frame["d"] > 0))
