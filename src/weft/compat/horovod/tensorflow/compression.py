"""Compression of TensorFlow's tensors before they are reduced: none, or to half precision."""

from __future__ import annotations

from typing import Any

from weft.compat.horovod.tensorflow.calls import tf


class TensorCompressor:
    """A way to make a tensor smaller, and back; subclasses are used as classes."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor that travels, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return a tensor as it was before."""
        return tensor


class HalfCompressor(TensorCompressor):
    """Floating-point numbers travel in half precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return (tf.cast(tensor, tf.float16), tensor.dtype) if tensor.dtype.is_floating else (tensor, None)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class TensorFlowCompression:
    """The ways there are, by Horovod's names."""

    none = TensorCompressor
    fp16 = HalfCompressor
