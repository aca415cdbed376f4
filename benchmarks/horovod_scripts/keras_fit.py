"""`fit` of a compute-bound model of Keras 3, alone and on two workers; prints one line of JSON at rank 0.

    KERAS_BACKEND=torch OMP_NUM_THREADS=1 weft run -n 2 benchmarks/horovod_scripts/keras_fit.py EPOCHS [MODEL]

MODEL is "convolutions", which compute for long between exchanges of a few gradients, or "dense": layers of 1,024 by
1,024, which exchange 25 MB for every 128 rows. Every worker has as many rows as one process has, so a perfect run of
two takes as long, and does twice as much.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import keras  # type: ignore[import-not-found,import-untyped,unused-ignore]
import numpy as np
import torch
import torch.distributed as dist

import weft
import weft.keras
from weft.keras.backends import values_of

EPOCHS = int(sys.argv[1])
DENSE = sys.argv[2:] == ["dense"]
ROWS, BATCH, WIDTH, LAYERS = (512, 128, 1024, 6) if DENSE else (256, 64, 32, 3)
torch.set_num_threads(1)
weft.init("weft")
random = np.random.default_rng(0)
SHAPE = (WIDTH,) if DENSE else (WIDTH, WIDTH, 3)
x = random.normal(size=(ROWS, *SHAPE)).astype("float32")
y = random.normal(size=(ROWS, 1)).astype("float32")


def make() -> Any:
    keras.utils.set_random_seed(0)
    if DENSE:
        layers = [keras.layers.Dense(WIDTH, activation="tanh") for _ in range(LAYERS)]
    else:
        layers = [keras.layers.Conv2D(WIDTH, 3, padding="same", activation="relu") for _ in range(LAYERS)]
        layers.append(keras.layers.GlobalAveragePooling2D())
    return keras.Sequential([keras.Input(SHAPE), *layers, keras.layers.Dense(1)])


def fit(model: Any, callbacks: list[Any]) -> float:
    begin = time.perf_counter()
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, shuffle=False, callbacks=callbacks)
    return time.perf_counter() - begin


alone = make()
alone.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mse")
ours = make()
ours.compile(optimizer=weft.keras.distribute(keras.optimizers.SGD(1e-3)), loss="mse")
together = weft.keras.together()
singles, doubles = [], []
for number in range(EPOCHS + 1):  # the first ones compile
    dist.barrier()
    single = fit(alone, [])  # on both workers at once: two processes that know nothing of each other
    dist.barrier()
    double = fit(ours, [together])
    told = torch.tensor([single, double])
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    if number:
        singles.append(float(told[0]))
        doubles.append(float(told[1]))
everyone: list[Any] = [None] * weft.size()
dist.all_gather_object(everyone, [value.tobytes() for value in values_of(ours)])
if weft.rank() == 0:
    equal = all(other == everyone[0] for other in everyone)
    speedups = sorted(weft.size() * one / two for one, two in zip(singles, doubles, strict=True))
    print(
        json.dumps(
            {
                "backend": keras.backend.backend(),
                "equal": equal,
                "speedup": speedups[len(speedups) // 2],
                "alone_s": singles,
                "together_s": doubles,
            }
        )
    )
