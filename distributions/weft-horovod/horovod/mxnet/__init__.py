"""Refuses horovod.mxnet, and names the way."""

raise ImportError("horovod.mxnet is not there, as MXNet has been retired; use horovod.torch or horovod.keras")
