"""Keras 3 on several workers: `weft.init()`, then `distribute(optimizer)` and `Together()`; `model.fit` as it is.

    weft.init()
    model.compile(optimizer=weft.keras.distribute(keras.optimizers.Adam()), loss=...)
    model.fit(*weft.keras.shard(x, y), callbacks=[weft.keras.together()])

On Keras's backends torch, tensorflow and jax.
"""

from weft.keras.training import distribute, first_only, shard, together

__all__ = ["distribute", "first_only", "shard", "together"]
