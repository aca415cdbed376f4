"""Boosting on several workers: each has its share of the rows, and all end with the same model.

weft run -n 2 examples/learn_together.py
"""

import numpy as np

import weft
from weft.learn import GradientBoostingClassifier, together

world = weft.init()
random = np.random.default_rng(world.rank)  # each worker makes, or reads, its own rows
X = random.standard_normal((5000, 6))
y = (X[:, 0] * X[:, 1] + X[:, 2] + random.logistic(size=5000) > 0).astype(int)

with together():
    model = GradientBoostingClassifier(n_estimators=20, max_depth=4, random_state=0).fit(X, y)

best = np.argsort(model.feature_importances_)[::-1][:3]
print(f"rank {world.rank}: accuracy {model.score(X, y):.3f}, features that matter: {sorted(best.tolist())}")
weft.shutdown()
