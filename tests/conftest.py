"""Fixtures for everyone, and a guard: a test leaves no process, thread, variable or hook of torch behind."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings
from testing.forking.server import ForkServer
from testing.shell import Shell

pytest_plugins = [
    "testing.cluster.fixtures",
    "testing.failures",
    "testing.garbage",
    "testing.order",
    "testing.slowest",
]

# On a busy machine any example may take long.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A child that lost its parent becomes ours, so that a launcher cannot lose its workers unseen.
PR_SET_CHILD_SUBREAPER = 36
if hasattr(ctypes.CDLL(None), "prctl"):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

# What a shell starts in the background ignores Ctrl-C, and so would each program that a test starts and interrupts.
with suppress(ValueError):  # of any other thread but the main one
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

# Python starts these once per process, when first needed, and ends them itself.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
ENDING_S = 5.0  # what is just ending may take so long on busy cores


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A folder in which a test writes scripts and calls `weft`; what was started there ends with the test."""
    built = Shell(tmp_path)
    yield built
    built.close()


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    """A server of which `weft` and Python programs are forks, with torch loaded; it is made when first asked for."""
    with ForkServer() as server:
        yield server


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """What a test draws does not hang on the tests before it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaks; what fixtures of a wider scope own was there before it."""
    children, threads, variables = _children(), set(threading.enumerate()), _variables()
    yield
    leaked = [f"process {process}" for process in _leaked(_children() - children)]
    new = [thread for thread in threading.enumerate() if thread not in threads and not thread.daemon]
    leaked += [f"thread {thread}" for thread in new if not _ended(thread)]
    leaked += [f"variable {name}" for name, _ in _variables() ^ variables]
    leaked += _hooks_of_torch()
    if leaked:
        pytest.fail("left behind: " + "; ".join(sorted(set(leaked))), pytrace=False)


def _children() -> set[int]:
    # Reading the kernel's own list takes microseconds, walking /proc would take milliseconds.
    pids: set[int] = set()
    for children in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):  # the thread has just ended
            pids.update(map(int, children.read_text().split()))
    return pids


def _leaked(pids: set[int]) -> list[psutil.Process]:
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    processes = [process for process in processes if not _helper(process)]
    _, alive = psutil.wait_procs(processes, timeout=ENDING_S)
    for process in alive:
        process.kill()  # or it would trouble the tests to come
    psutil.wait_procs(alive, timeout=ENDING_S)
    return alive


def _helper(process: psutil.Process) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return False
    return any(helper in command for helper in HELPERS)


def _ended(thread: threading.Thread) -> bool:
    thread.join(ENDING_S)
    return not thread.is_alive()


def _variables() -> set[tuple[str, str]]:
    # pytest keeps one, torch says where its cache is, and scikit-learn (OpenMP's) and OpenCV set theirs when they are
    # first imported: in a test that is run alone, by a service's thread, say.
    changing = ("PYTEST_CURRENT_TEST", "KMP_", "TORCHINDUCTOR_CACHE_DIR", "LD_LIBRARY_PATH")
    return {(name, value) for name, value in os.environ.items() if not name.startswith(changing)}


def _hooks_of_torch() -> list[str]:
    """What one test would do to the tensors of all later ones in its process."""
    if "torch" not in sys.modules:
        return []
    import torch

    left = []
    while torch._C._len_torch_dispatch_stack():
        left.append(f"dispatch mode {torch._C._pop_torch_dispatch_stack(None)}")
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        left.append(f"hooks {torch._C._autograd._top_saved_tensors_default_hooks(True)}")
        torch._C._autograd._pop_saved_tensors_default_hooks()
    if not torch.is_grad_enabled():
        left.append("gradients switched off")
        torch.set_grad_enabled(True)
    if torch.get_default_dtype() is not torch.float32:
        left.append(f"default dtype {torch.get_default_dtype()}")
        torch.set_default_dtype(torch.float32)
    return left
