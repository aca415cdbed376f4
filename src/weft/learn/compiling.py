"""Turns Python loops into machine code with Numba, once: the result is kept in Weft's cache for later processes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import event

from weft.files import cache_folder

F = TypeVar("F", bound=Callable[..., Any])

_numba: Any = numba  # its own types would say that a kernel is no function

# Sums may be taken in another order, so that they can be vectorised; NaN and infinity keep their meaning.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: F) -> F:
    """A function for one thread, compiled when it is first called, that lets other threads run beside it."""
    return _compiled(function, fastmath=_REORDER)


def scalar_kernel(function: F) -> F:
    """A kernel whose sums keep their order: loads by index stay scalar, which is faster than a gather."""
    return _compiled(function, fastmath={"contract", "nsz", "arcp"})


def inlined(function: F) -> F:
    """A small function that kernels call; it is compiled into each of them."""
    decorate: Callable[[F], F] = _numba.njit(nogil=True, error_model="numpy")
    return decorate(function)


def kernel_folder() -> Path:
    """Where compiled kernels are kept: one folder for each state of the sources.

    Numba looks at a kernel's own file to see whether it is stale, but not at the files of what it calls.
    """
    return cache_folder("kernels") / _fingerprint()


@cache
def _fingerprint() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*kernels.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compiled(function: F, fastmath: set[str]) -> F:
    with _cache_here():
        decorate: Callable[[F], F] = _numba.njit(
            cache=True, nogil=True, error_model="numpy", fastmath=fastmath
        )
        return decorate(function)


@contextmanager
def _cache_here() -> Iterator[None]:
    """Numba fixes a function's cache when it is decorated; others' functions keep their own place."""
    before = _numba.config.CACHE_DIR
    if not os.environ.get("NUMBA_CACHE_DIR"):
        _numba.config.CACHE_DIR = str(kernel_folder())
    try:
        yield
    finally:
        _numba.config.CACHE_DIR = before


class _Announcer(event.Listener):
    """Tells why the first fit takes seconds."""

    told = False

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith("weft.learn")
        if ours and not self.told:
            self.told = True
            print("weft.learn: compiling kernels, once; later processes start warm", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        pass


_numba.core.event.register("numba:compile", _Announcer())
