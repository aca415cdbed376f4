"""LambdaRank: derivatives of pairs of rows of one query, by what their exchange would do to the ranking's NDCG."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.learn.kernels.compiling import scalar_kernel

Array = Any  # inside compiled code the types are Numba's


@scalar_kernel
def lambdas(
    raw: Array, gains: Array, starts: Array, order: Array, best: Array, most: int, first: Array, second: Array
) -> float:
    """Fill in both derivatives, and return the sum over queries of 1 - NDCG.

    Rows of query q are order[starts[q]:starts[q + 1]]; gains[row] = 2 ** y - 1, and best[q] is the DCG of the query in
    the right order, 0 where all rows are alike. Only pairs with a row among the `most` first are looked at.
    """
    lost = 0.0
    first[:] = 0.0
    second[:] = 0.0
    for q in range(best.shape[0]):
        rows = order[starts[q] : starts[q + 1]]
        if best[q] <= 0.0:
            continue
        ranked = rows[np.argsort(-raw[rows], kind="mergesort")]
        count = len(ranked)
        found = 0.0
        for i in range(min(count, most)):
            found += gains[ranked[i]] / math.log2(i + 2.0)
        lost += 1.0 - found / best[q]
        for i in range(min(count, most)):
            near = ranked[i]
            discount = 1.0 / math.log2(i + 2.0)
            for j in range(i + 1, count):
                far = ranked[j]
                if gains[near] == gains[far]:
                    continue
                other = 1.0 / math.log2(j + 2.0) if j < most else 0.0
                change = abs(gains[near] - gains[far]) * (discount - other) / best[q]
                up, down = (near, far) if gains[near] > gains[far] else (far, near)
                wrong = 1.0 / (1.0 + math.exp(min(max(raw[up] - raw[down], -50.0), 50.0)))
                push, bend = wrong * change, wrong * (1.0 - wrong) * change
                first[up] -= push
                first[down] += push
                second[up] += bend
                second[down] += bend
    return lost
