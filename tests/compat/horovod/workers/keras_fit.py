# mypy: ignore-errors
"""Keras 3 on any backend: `horovod.keras`, then `weft.keras`, against one process with the whole batch."""

import sys
from pathlib import Path

import horovod.keras as hvd
import keras
import numpy as np

import weft
import weft.keras
from weft.keras import training

folder = Path(sys.argv[1])
hvd.init()
R, N = hvd.rank(), hvd.size()
ROWS, BATCH = 48 * N, 12
random = np.random.default_rng(0)
x = random.normal(size=(ROWS, 6)).astype("float32")
y = (x @ random.normal(size=(6, 1))).astype("float32")
# Rank r's b-th batch and the others' make the b-th batch of one process.
order = np.arange(ROWS).reshape(-1, N, BATCH)
mine = order[:, R].reshape(-1)


def make(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]
    )


def fit(model, optimizer, rows, batch, callbacks=(), epochs=2):
    model.compile(optimizer=optimizer, loss="mse", metrics=["mae"])
    return model.fit(
        x[rows], y[rows], batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=[*callbacks]
    )


def same_everywhere(model):
    everyone = hvd.allgather_object(model.get_weights())
    assert all(np.array_equal(a, b) for other in everyone for a, b in zip(everyone[0], other, strict=True))


def alike(model, expected):
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


reference = make(1)
fit(reference, keras.optimizers.Adam(0.01), order.reshape(-1), BATCH * N)

# -- horovod.keras --------------------------------------------------------------------------------
model = make(1)
optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
assert isinstance(optimizer, keras.optimizers.Adam)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
]
history = fit(model, optimizer, mine, BATCH, callbacks)
same_everywhere(model)
alike(model, reference)
assert len(set(hvd.allgather_object(history.history["loss"][-1]))) == 1

other = make(R)  # ranks begin with different weights, and have those of rank 0 after the first batch
warm = hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=1)
history = fit(
    other,
    hvd.DistributedOptimizer(keras.optimizers.SGD(0.02)),
    mine,
    BATCH,
    [hvd.callbacks.BroadcastGlobalVariablesCallback(0), warm],
)
same_everywhere(other)
assert abs(history.history["lr"][-1] - 0.02) < 1e-6

path = folder / f"model-{R}.keras"
model.save(path)
plain = keras.models.load_model(path)  # by anyone
assert isinstance(plain.optimizer, keras.optimizers.Adam)
again = hvd.load_model(path)
again.fit(x[mine], y[mine], batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
same_everywhere(again)

if keras.backend.backend() == "tensorflow":
    import horovod.tensorflow.keras as names

    assert names.DistributedOptimizer is hvd.DistributedOptimizer
    assert names.callbacks.MetricAverageCallback is hvd.callbacks.MetricAverageCallback
summed = make(1)
fit(summed, hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), backward_passes_per_step=2), mine, BATCH)
same_everywhere(summed)
partial = make(1)
local = partial.layers[-1]
own = hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.01), local_layers=[local])
fit(partial, own, mine, BATCH, epochs=1)
everyone = hvd.allgather_object(partial.get_weights())
assert np.array_equal(everyone[0][0], everyone[1][0])  # of the first layer, and not of the last
assert not np.array_equal(everyone[0][-1], everyone[1][-1])
registered = make(1)
own = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
for variable in registered.layers[-1].trainable_variables:
    own.register_local_var(variable)
fit(registered, own, mine, BATCH, epochs=1)
for a, b in zip(registered.get_weights(), partial.get_weights(), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
still = make(R)
last = still.layers[-1]
last.trainable = False
before = [w.copy() for w in last.get_weights()]
sender = hvd.callbacks.BroadcastGlobalVariablesCallback(N - 1, local_variables=list(last.variables))
fit(still, hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), mine, BATCH, [sender], epochs=1)
for a, b in zip(last.get_weights(), before, strict=True):
    np.testing.assert_array_equal(a, b)
everyone = hvd.allgather_object(still.get_weights())
assert np.array_equal(everyone[0][0], everyone[1][0])
for wrong in ({"local_layers": [3]}, {"groups": 0}):
    try:
        hvd.DistributedOptimizer(keras.optimizers.SGD(), **wrong)
        raise AssertionError(f"{wrong} must be refused")
    except ValueError:
        pass
assert hvd.allreduce(float(R), op=hvd.Sum) == sum(range(N))
assert hvd.allgather(np.ones((R + 1, 2))).shape == (N * (N + 1) // 2, 2)
try:
    hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Adasum)
    raise AssertionError("Adasum must be refused")
except ValueError:
    pass

assert (hvd.cuda_built(), hvd.rocm_built(), hvd.ddl_built(), hvd.ccl_built())[1:] == (False, False, False)
best = hvd.callbacks.BestModelCheckpoint("loss", filepath=str(folder / "best.keras"))
model.fit(x[mine], y[mine], batch_size=BATCH, epochs=1, shuffle=False, verbose=0, callbacks=[best])
assert (folder / "best.keras").exists() or R > 0

# -- elastic --------------------------------------------------------------------------------------
elastic = make(1)
elastic.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
state = hvd.elastic.KerasState(elastic, batch=0, epoch=0)


@hvd.elastic.run
def train(state):
    elastic.fit(
        x[mine],
        y[mine],
        batch_size=BATCH,
        epochs=2 - state.epoch,
        verbose=0,
        callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
        ],
    )


train(state)
assert (state.epoch, state.batch) == (2, 0)
before = [w.copy() for w in elastic.get_weights()]
elastic.set_weights([w * 0 for w in before])
state.restore()
for a, b in zip(elastic.get_weights(), before, strict=True):
    np.testing.assert_array_equal(a, b)

apart, adam = (
    make(R),
    keras.optimizers.Adam(0.01),
)  # of a model that is trained by hand, with no optimizer of its own
apart_state = hvd.elastic.KerasState(apart, adam, batch=R)
apart_state.sync()
same_everywhere(apart)
assert apart_state.batch == 0
moments = [variable for variable in adam.variables if variable.shape == apart.trainable_variables[0].shape]
assert moments
moments[0].assign(moments[0] + 1.0)
apart_state.restore()
assert float(keras.ops.convert_to_numpy(moments[0].value).sum()) == 0.0

# -- weft.keras -----------------------------------------------------------------------------------
weft.init("weft" if N > 1 else None)
ours = make(R)
start = make(0)
expected = make(0)
fit(expected, keras.optimizers.Adam(0.01), order.reshape(-1), BATCH * N)
travelled, begin = [], training._start_average
training._start_average = lambda flat: (travelled.append(flat.numel()), begin(flat))[1]
history = fit(ours, weft.keras.distribute(keras.optimizers.Adam(0.01)), mine, BATCH, [weft.keras.together()])
# Two epochs of four batches, of which the first makes the buckets: one of 6 x 8 + 8 + 8 + 1 gradients.
assert travelled == ([65] * 7 if keras.backend.backend() == "torch" and N > 1 else [])
same_everywhere(ours)
alike(ours, expected)
assert len(set(hvd.allgather_object(history.history["loss"][-1]))) == 1
assert len(weft.keras.shard(x)) == ROWS // N
assert len(weft.keras.first_only([warm])) == (R == 0)
print(f"rank {R} of {N}: keras is content", flush=True)
