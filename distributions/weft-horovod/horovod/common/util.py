"""Small functions that scripts import."""

from collections.abc import Iterable
from importlib.util import find_spec
from itertools import pairwise
from typing import Any


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


def is_iterable(x: Any) -> bool:
    """Return whether something can be gone through."""
    return isinstance(x, Iterable)


def split_list(values: list[Any], parts: int) -> list[list[Any]]:
    """Return a list in so many parts, of which the first ones have one more if they do not divide."""
    each, more = divmod(len(values), parts)
    starts = [index * each + min(index, more) for index in range(parts + 1)]
    return [values[first:last] for first, last in pairwise(starts)]
