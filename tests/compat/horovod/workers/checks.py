# mypy: ignore-errors
"""What scripts of checks share: the list of their checks, and how values and errors are compared."""

import horovod.torch as hvd
import torch

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def raises(kind, call, text=""):
    try:
        call()
    except kind as error:
        if text in str(error):
            return error
        raise AssertionError(f"{error!r} must say {text!r}") from error
    raise AssertionError(f"{kind.__name__} must be raised")


def same(tensor, expected, **close):
    torch.testing.assert_close(tensor, torch.as_tensor(expected, dtype=tensor.dtype), **close)


def mine(*shape, dtype=torch.float32):
    """Values by which a rank can be told from the others."""
    return torch.full(shape, hvd.rank() + 1).to(dtype)
