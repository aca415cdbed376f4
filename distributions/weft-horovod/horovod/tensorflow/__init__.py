"""Refuses horovod.tensorflow, and names the way."""

raise ImportError(
    "horovod.tensorflow is not there, as Weft's backend works on torch tensors; "
    "use horovod.torch, or horovod.keras with Keras 3 and KERAS_BACKEND=torch"
)
