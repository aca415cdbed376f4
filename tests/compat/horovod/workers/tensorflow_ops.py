# mypy: ignore-errors
"""`horovod.tensorflow` on several ranks: operations, gradients, tapes, variables, in `tf.function` too."""

import horovod.tensorflow as hvd
import numpy as np
import pytest
import tensorflow as tf

hvd.init()
R, N = hvd.rank(), hvd.size()


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


# -- operations -----------------------------------------------------------------------------------
ones = tf.fill([3, 2], float(R + 1))
total = N * (N + 1) / 2
for wrap in (lambda f: f, tf.function):
    close(wrap(lambda: hvd.allreduce(ones, op=hvd.Sum))(), np.full((3, 2), total))
    close(wrap(lambda: hvd.allreduce(ones))(), np.full((3, 2), total / N))
    close(wrap(lambda: hvd.allreduce(ones, op=hvd.Max, name="most"))(), np.full((3, 2), float(N)))
    close(
        wrap(lambda: hvd.allreduce(ones, op=hvd.Sum, compression=hvd.Compression.fp16))(),
        np.full((3, 2), total),
    )
    close(wrap(lambda: hvd.allgather(tf.fill([R + 1, 2], R)))()[-1], [N - 1, N - 1])
    close(wrap(lambda: hvd.broadcast(ones, root_rank=1))(), np.full((3, 2), 2.0))
    many = wrap(lambda: hvd.grouped_allreduce([ones, tf.fill([5], R)], op=hvd.Sum))()
    close(many[1], np.full(5, sum(range(N))))
    rows, received = wrap(lambda: hvd.alltoall(tf.range(N) + 10 * R, splits=[1] * N))()
    close(rows, np.arange(N) * 10 + R)
    close(received, [1] * N)
    close(wrap(lambda: hvd.reducescatter(tf.ones([N, 2]), op=hvd.Sum))(), np.full((1, 2), float(N)))
    assert int(wrap(hvd.size_op)()) == N
    assert int(wrap(hvd.rank_op)()) == R
half = hvd.allreduce(tf.cast(ones, tf.bfloat16), op=hvd.Sum)
assert half.dtype == tf.bfloat16
close(tf.cast(half, tf.float32), np.full((3, 2), total))
integers = hvd.allreduce(tf.constant([-3]) if R == 0 else tf.constant([0]))
assert int(integers[0]) == int(-3 / N)

# -- gradients of operations ----------------------------------------------------------------------
value = tf.Variable(tf.fill([2, 2], float(R)))
with tf.GradientTape(persistent=True) as tape:
    reduced = tf.reduce_sum(hvd.allreduce(value, op=hvd.Sum, name="v") * float(R + 1))
    gathered = tf.reduce_sum(hvd.allgather(value, name="g") * float(R + 1))
    sent = tf.reduce_sum(hvd.broadcast(value, 0, name="b") * float(R + 1))
close(tape.gradient(reduced, value), np.full((2, 2), total))
close(tape.gradient(gathered, value), np.full((2, 2), total / N))
close(tape.gradient(sent, value), np.full((2, 2), total / N if R == 0 else 0.0))

# -- a mismatch is raised on every rank, and survived ---------------------------------------------
with pytest.raises(Exception, match="Mismatched shapes"):
    hvd.allreduce(tf.ones([2 + R]), name="different")
close(hvd.allreduce(ones, op=hvd.Sum), np.full((3, 2), total))
assert hvd.allgather(ones, None, True).shape == (3 * N, 2)  # name, ignore_name_scope

for kind in (tf.errors.FailedPreconditionError, hvd.HorovodInternalError):
    with pytest.raises(kind, match="Mismatched data types"):
        hvd.allreduce(tf.ones([2], tf.float32 if R == 0 else tf.float64))
for kind in (tf.errors.InvalidArgumentError, ValueError):
    with pytest.raises(kind, match="splits"):
        hvd.alltoall(tf.ones([N]), splits=[9] * N)
with pytest.raises(NotImplementedError):
    hvd.allreduce(tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0])), prescale_factor=2.0)

# -- modules of their own -------------------------------------------------------------------------
from horovod.tensorflow import compression, functions, mpi_ops  # noqa: E402

assert compression.Compression is hvd.Compression
assert functions.broadcast_variables is hvd.broadcast_variables
assert mpi_ops.allreduce is hvd.allreduce

# -- variables, objects, tapes --------------------------------------------------------------------
w, b = tf.Variable(tf.fill([4, 3], float(R))), tf.Variable(tf.fill([3], float(R)))
hvd.broadcast_variables([w, b], root_rank=1)
close(w, np.full((4, 3), 1.0))
assert hvd.broadcast_object({"rank": R}, root_rank=1) == {"rank": 1}
assert [each["rank"] for each in hvd.allgather_object({"rank": R})] == list(range(N))

table = tf.Variable(tf.zeros([6, 2]))
x = tf.fill([2, 4], float(R + 1))


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x @ w + b) + tf.reduce_sum(tf.gather(table, [R, R + 1]))
    return hvd.DistributedGradientTape(tape).gradient(loss, [w, b, table])


for _ in range(3):
    to_w, to_b, to_table = step()
close(to_w, np.full((4, 3), 2 * total / N))
close(to_b, np.full(3, 2.0))
assert isinstance(to_table, tf.IndexedSlices)
expected = np.zeros((6, 2))
for rank in range(N):
    expected[rank : rank + 2] += 1 / N
close(tf.convert_to_tensor(to_table), expected)

# -- what stays local -----------------------------------------------------------------------------
with tf.GradientTape(persistent=True) as plain:
    loss = tf.reduce_sum(w) * float(R + 1) + tf.reduce_sum(b) * float(R + 1)
tape = hvd.DistributedGradientTape(plain)
assert isinstance(tape, tf.GradientTape)
tape.register_local_source(b)
to_w, to_b = tape.gradient(loss, [w, b], use_generic_names=True)
close(to_w, np.full((4, 3), total / N))
close(to_b, np.full(3, (R + 1) / N))
local, everywhere = tape.get_local_and_global_gradients(loss, [w, b])
assert (len(local), len(everywhere)) == (1, 1)
assert local[0][0] is b
unscaled = hvd.DistributedGradientTape(plain, scale_local_gradients=False)
unscaled.register_local_source(b)
close(unscaled.gradient(loss, [b])[0], np.full(3, float(R + 1)))
with hvd.DistributedGradientTape(tf.GradientTape()) as inner:
    loss = tf.reduce_sum(w) * float(R + 1)
close(inner.gradient(loss, w), np.full((4, 3), total / N))
with pytest.raises(ValueError, match="groups"):
    hvd.DistributedGradientTape(plain, groups=0)
with pytest.raises(ValueError, match="layers"):
    hvd.PartialDistributedGradientTape(plain, local_layers=[1])
assert hvd.broadcast_([w], 0)[0] is w

layer = hvd.SyncBatchNormalization(momentum=0.5)
batch = np.random.default_rng(0).normal(size=(4 * N, 3)).astype("float32")
mine = layer(batch[4 * R : 4 * R + 4], training=True)
whole = tf.keras.layers.BatchNormalization(momentum=0.5)(batch, training=True)
np.testing.assert_allclose(mine, whole[4 * R : 4 * R + 4], rtol=1e-4, atol=1e-5)

with pytest.raises(RuntimeError, match="TensorFlow 1"):
    hvd.broadcast_global_variables(0)
with pytest.raises(ValueError, match="Keras"):
    hvd.DistributedOptimizer(object())
hvd.shutdown()
hvd.init()
close(hvd.allreduce(ones, op=hvd.Sum), np.full((3, 2), total))
print(f"rank {R} of {N}: tensorflow is content", flush=True)
