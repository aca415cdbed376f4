"""A table to a model that explains itself and travels: coefficients with their errors, and the model as ONNX.

python examples/learn_explained.py model.onnx
"""

import sys
from pathlib import Path

import numpy as np

from weft.learn import LogisticRegression, coefficients, to_onnx

random = np.random.default_rng(0)
X = random.standard_normal((2000, 3))
y = np.where(2 * X[:, 0] - X[:, 1] + random.logistic(size=2000) > 0, "late", "in time")

model = LogisticRegression().fit(X, y)
print(coefficients(model, X, y))

path = Path(sys.argv[1] if len(sys.argv) > 1 else "model.onnx")
path.write_bytes(to_onnx(model, dtype="float64").SerializeToString())
print(f"{path.name}: {path.stat().st_size} bytes; accuracy {model.score(X, y):.3f}")
