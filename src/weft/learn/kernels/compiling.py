"""Turns Python loops into machine code with Numba, once: the result is kept in Weft's cache for later processes."""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from weft.errors import UsageError
from weft.files import cache_folder
from weft.learn.kernels import ahead

_numba: Any  # its own types would say that a kernel is no function
_event: Any
_locking: Any
try:
    _numba, _event = import_module("numba"), import_module("numba.core.event")
    _locking = import_module("numba.core.compiler_lock")
except ModuleNotFoundError as missing:  # fits on an accelerator do without
    if missing.name != "numba":
        raise
    _numba = _event = _locking = None

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be taken in another order, so that they can be vectorised; NaN and infinity keep their meaning.
_REORDER = {"reassoc", "contract", "nsz", "arcp"}


def kernel(function: F) -> F:
    """A function for one thread, compiled when it is first called, that lets other threads run beside it."""
    return _compiled(function, fastmath=_REORDER)


def scalar_kernel(function: F) -> F:
    """A kernel whose sums keep their order: loads by index stay scalar, which is faster than a gather."""
    return _compiled(function, fastmath={"contract", "nsz", "arcp"})


def inlined(function: F) -> F:
    """A small function that kernels call; it is compiled into each of them, and cannot be called from Python."""
    if _numba is None:
        return function
    decorate: Callable[[F], F] = _numba.njit(
        nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )
    return decorate(function)


def kernel_folder() -> Path:
    """Where compiled kernels are kept: one folder for each state of the sources.

    Numba looks at a kernel's own file to see whether it is stale, but not at the files of what it calls.
    """
    return cache_folder("kernels") / fingerprint()


@cache
def fingerprint() -> str:
    """Return what stands for the state of all kernels' sources, and for the versions of Numba and its compiler."""
    digest = hashlib.sha256(f"{_numba.__version__} {import_module('llvmlite').__version__}".encode())
    for path in sorted(Path(__file__).parents[1].rglob("kernels/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compiled(function: F, fastmath: set[str]) -> F:
    if _numba is None:
        return _absent(function)
    with _cache_here():
        decorate: Callable[[F], F] = _numba.njit(
            cache=True, nogil=True, error_model="numpy", fastmath=fastmath
        )
        compiled = decorate(function)
    _one_process_at_a_time(compiled)
    return compiled


Recorder = Callable[[str, Any, Any], None]


def record_compiled(recorder: Recorder) -> None:
    """Hand over (kernel, signature, compiled code) of all that this process compiles, and use nothing made ahead."""
    _SharedCache.recorder = recorder


def is_worth_it(compiled: Any, *args: Any, saved: float, cost: float) -> bool:
    """Return whether to call a kernel that saves so many seconds: it is compiled, or by now it would be worth that.

    What earlier calls would have saved counts, too: all in all, going without costs no more than compiling does.
    """
    if _SharedCache.recorder is not None or not isinstance(getattr(compiled, "_cache", None), _SharedCache):
        return True
    types = tuple(map(compiled.typeof_pyval, args))
    return types in compiled.overloads or compiled._cache.lost(types, compiled.targetctx, saved) > cost


class _SharedCache:
    """Numba's cache of one kernel; who does not find what it needs there waits for its turn, and looks again.

    What the package brings along, compiled ahead, is taken where this machine has compiled nothing itself.
    """

    recorder: ClassVar[Recorder | None] = None  # of all that this process compiles

    def __init__(self, cache: Any, name: str, lock: Path) -> None:
        self._cache, self._name, self._lock = cache, name, lock
        self.turn = ExitStack()
        self._lost: dict[Any, float] = {}  # by the types of arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, context: Any) -> Any:
        found = self._cache.load_overload(signature, context)
        if found is None and _SharedCache.recorder is None:
            found = ahead.load(self._name, signature, context, fingerprint())
        if found is None:
            with suppress(OSError):  # a folder without locks: each compiles for itself
                self.turn.enter_context(_locked(self._lock))
            found = self._cache.load_overload(signature, context)
        return found

    def lost(self, types: Any, context: Any, more: float) -> float:
        """Return the seconds lost by not calling the kernel, with some more; endless where it can be loaded."""
        if types not in self._lost:
            found = self._cache.load_overload(types, context) or ahead.load(
                self._name, types, context, fingerprint()
            )
            self._lost[types] = math.inf if found else 0.0
        self._lost[types] += more
        return self._lost[types]

    def save_overload(self, signature: Any, compiled: Any) -> None:
        self._cache.save_overload(signature, compiled)
        if _SharedCache.recorder is not None:
            _SharedCache.recorder(self._name, signature, compiled)


def _one_process_at_a_time(compiled: Any) -> None:
    """Let one process compile, and the others that wait for the same find it in the cache.

    Each would need a core for it; and Numba may lose or mix up what two of them add to a kernel's index at once.
    """
    function = compiled.py_func
    name = f"{function.__module__}.{function.__qualname__}"
    lock = Path(compiled.stats.cache_path) / f"{function.__qualname__}.lock"
    cache = compiled._cache = _SharedCache(compiled._cache, name, lock)
    compile_now = compiled.compile

    def compile_in_turn(signature: Any) -> Any:
        # Numba's own lock first, as when a kernel that is being compiled calls this one: else two threads might
        # each hold what the other waits for.
        with _locking.global_compiler_lock, cache.turn:
            return compile_now(signature)

    compiled.compile = compile_in_turn


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open, too
        os.close(handle)


def _absent(function: F) -> F:
    def refuse(*args: Any) -> Any:
        raise UsageError(
            "fits on this machine's cores must have Numba, got none; pip install 'weft[learn]', or use device='cuda'"
        )

    return cast("F", refuse)


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


if _numba is not None:

    class _Announcer(_event.Listener):  # type: ignore[misc]
        """Tells why the first fit takes seconds."""

        told = False

        def on_start(self, event: Any) -> None:
            ours = event.data["dispatcher"].py_func.__module__.startswith("weft.learn")
            if ours and not self.told:
                self.told = True
                print("weft.learn: compiling kernels, once; later processes start warm", file=sys.stderr)

        def on_end(self, event: Any) -> None:
            pass

    _event.register("numba:compile", _Announcer())
