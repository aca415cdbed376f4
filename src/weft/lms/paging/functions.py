"""Functions of torch sorted by what they do to a tensor's bytes: those that read none, and those that write unseen.

A page asks here (`Page`, `_Away`): a function that reads no byte needs no copy to the device, and after one that may
write without the version counter the host's copy counts as old.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

_tensor: Any = torch.Tensor

# Attributes and methods that read no byte. Names that a version of torch does not have are left out.
_ATTRIBUTES = (
    "_backward_hooks", "_base", "_grad", "_post_accumulate_grad_hooks", "_version", "device", "dtype", "grad",
    "grad_fn",
    "is_cpu", "is_cuda", "is_leaf", "is_meta", "is_mkldnn", "is_mps", "is_nested", "is_quantized", "is_sparse",
    "is_sparse_csr", "itemsize", "layout", "name", "names", "nbytes", "ndim", "output_nr", "requires_grad",
    "retains_grad", "shape",
)  # fmt: skip
_METHODS = (
    "__hash__", "__len__", "_is_view", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
    "is_floating_point", "is_shared", "ndimension", "nelement", "numel", "register_hook",
    "register_post_accumulate_grad_hook", "requires_grad_", "retain_grad", "size", "storage_offset", "stride",
)  # fmt: skip


def _getters(names: Iterable[str]) -> Iterator[Any]:
    """Yield the functions that torch passes to `__torch_function__` when an attribute is read."""
    for name in names:
        found: Any = getattr(_tensor, name, None)
        if hasattr(found, "__get__") and not callable(found):
            yield found.__get__


READS_NO_BYTE = {
    *_getters(_ATTRIBUTES),
    *(getattr(_tensor, name) for name in _METHODS if hasattr(_tensor, name)),
    torch.is_complex, torch.is_floating_point, torch.numel, torch.autograd.grad, torch.autograd.backward,
    torch.empty_like, torch.zeros_like, torch.ones_like, torch.full_like, torch.rand_like, torch.randn_like,
    *(_tensor.grad.__set__, _tensor.grad.__delete__, _tensor.requires_grad.__set__),
    _tensor.data.__set__,
}  # fmt: skip
# Functions that hand out the bytes: writes through what they return do not change the version counter.
_HANDS_OUT_BYTES = {
    _tensor.data.__get__,
    *(
        getattr(_tensor, name)
        for name in ("__array__", "__dlpack__", "data_ptr", "numpy", "set_", "storage", "untyped_storage")
        if hasattr(_tensor, name)
    ),
}


def writes_unseen(func: Any) -> bool:
    """Return whether a function may change bytes without changing the version counter.

    Functions in place count too: fused optimizers, and the one that unscales gradients, do not change the counter.
    """
    name: str = getattr(func, "__name__", "")
    return func in _HANDS_OUT_BYTES or (name.endswith("_") and not name.endswith("__"))
