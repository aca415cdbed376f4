"""Small functions that scripts import."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

from weft.compat.horovod import basics
from weft.compat.horovod.engine.adasum import is_power_of_two
from weft.compat.horovod.torch.submission import reduce_kind


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether operations of a framework can be used: torch, tensorflow or keras, where it is installed."""
    return ext_base_name in ("torch", "tensorflow", "keras") and find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: str) -> None:
    """Raise ImportError unless operations of a framework can be used."""
    framework = ext_name.rpartition(".")[2].lower()
    if not extension_available(framework):
        raise ImportError(
            f"horovod.{framework} needs {framework}, which is not installed; pip install {framework}"
        )


def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
    """Return whether torch has an accelerator."""
    import torch

    return torch.cuda.is_available()


def mpi_built(verbose: bool = False) -> bool:
    """Return whether MPI moves the data: it does not."""
    return basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Return whether there is a transport without MPI: there is one, Weft's."""
    return basics.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """Return NCCL's version as one number, 22703 say, or 0."""
    return basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Return whether IBM's DDL moves the data: it does not."""
    return basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Return whether oneCCL moves the data: it does not."""
    return basics.ccl_built()


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], int]:
    """Return a function of `op` and `average` that gives the reduction meant; the kinds are always Horovod's."""
    return lambda op, average: reduce_kind(op, average, depth=3)


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether there are 1, 2, 4, ... ranks, as Adasum must have."""
    return is_power_of_two(num_rank)


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Set environment variables for as long as a block takes; those that are None are left alone."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_iterable(x: Any) -> bool:
    """Return whether something can be gone through."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def split_list(values: list[Any], parts: int) -> list[list[Any]]:
    """Return a list in so many parts, of which the first ones have one more if they do not divide."""
    each, more = divmod(len(values), parts)
    starts = [index * each + min(index, more) for index in range(parts + 1)]
    return [values[first:last] for first, last in pairwise(starts)]


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Return whether a version is at least another one, of three numbers."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings, got {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"the least version must be major.minor.patch, got {target!r}")
    numbers = re.match(r"\d+(\.\d+)*", ver)
    if numbers is None:
        raise ValueError(f"a version must begin with a number, got {ver!r}")
    found = [int(number) for number in numbers[0].split(".")]
    return found + [0] * (3 - len(found)) >= [int(number) for number in target.split(".")]
