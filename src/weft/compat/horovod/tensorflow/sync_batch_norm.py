"""Batch normalisation over the batches of all ranks, as a layer of Keras on TensorFlow."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.engine.world import world
from weft.compat.horovod.tensorflow import ops
from weft.compat.horovod.tensorflow.calls import tf
from weft.compat.horovod.torch.ops import Sum
from weft.keras.backends import keras_on

_BatchNormalization: Any = keras_on("tensorflow").layers.BatchNormalization


class SyncBatchNormalization(_BatchNormalization):  # type: ignore[misc]
    """`keras.layers.BatchNormalization` whose mean and variance are those of all ranks' batches together."""

    def _moments(self, inputs: Any, mask: Any) -> Any:
        if not world.initialized or world.place.size == 1:
            return super()._moments(inputs, mask)
        axes = [axis for axis in range(len(inputs.shape)) if axis != self.axis % len(inputs.shape)]
        values = tf.cast(inputs, tf.float32)
        count = tf.cast(tf.size(values), tf.float32) / tf.cast(tf.shape(values)[self.axis], tf.float32)
        # One message: sums, sums of squares, and the number of elements of each channel.
        own = tf.concat(
            [tf.reduce_sum(values, axes), tf.reduce_sum(values * values, axes), tf.reshape(count, [1])], 0
        )
        sums = ops.allreduce(own, op=Sum, name=f"sync_batch_norm.{self.name}")
        channels = (int(sums.shape[0]) - 1) // 2
        mean = sums[:channels] / sums[-1]
        variance = tf.maximum(sums[channels : 2 * channels] / sums[-1] - mean * mean, 0.0)
        return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
