"""Models and weights as the command line names them: `module:factory`, `file.py:factory`, a pickled estimator."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import warnings
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.errors import ModelError

PICKLES = (".pkl", ".pickle", ".joblib")
WRAPPERS = ("state_dict", "model_state_dict", "model", "module")  # keys under which people put weights
PREFIXES = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before names
SHOWN = 5  # names in a message


def load_model(name: str, weights: Path | None = None) -> Any:
    """The model that `name` means, with its weights."""
    if name.endswith(PICKLES):
        if weights is not None:
            raise ModelError(f"weights must be for a torch module, got {weights} for {name}")
        return _load_pickle(Path(name))
    model = make_model(name)
    if weights is not None:
        load_weights(model, weights)
    return model


def make_model(name: str) -> Any:
    """Call `module:factory`; a module is found as Python finds it, the current folder first."""
    home, colon, factory = name.rpartition(":")
    if not (colon and home and factory):
        raise ModelError(
            f"a model must be MODULE:FACTORY, FILE.py:FACTORY or a pickled estimator ({', '.join(PICKLES)}), "
            f"got {name!r}"
        )
    module = _import_file(Path(home)) if home.endswith(".py") else _import(home)
    made: Any = module
    for part in factory.split("."):
        if not hasattr(made, part):
            near = get_close_matches(part, dir(made), 1)
            raise ModelError(
                f"{home} must have {factory!r}, got none" + (f"; do you mean {near[0]}?" if near else "")
            )
        made = getattr(made, part)
    if not callable(made) or (hasattr(made, "forward") and not isinstance(made, type)):
        return made  # a model that is there already
    try:
        return made()
    except Exception as error:
        raise ModelError(f"{name} must give a model, got {type(error).__name__}: {error}") from error


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise ModelError(
                f"{name} must be a module that Python finds, got none here or installed"
            ) from error
        raise ModelError(f"{name} cannot be imported: it needs {error.name}") from error
    except Exception as error:
        raise ModelError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ModelError(f"{path} must be a Python file, got none there")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)  # what it imports beside it
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module


def _load_pickle(path: Path) -> Any:
    """Like every pickle, it runs what its maker wrote into it."""
    try:
        if path.suffix == ".joblib":
            import joblib

            return joblib.load(path)
        with path.open("rb") as file:
            return pickle.load(file)
    except FileNotFoundError as error:
        raise ModelError(f"{path} must be a pickled estimator, got nothing there") from error
    except Exception as error:
        raise ModelError(
            f"{path} must be a pickled estimator of weft.learn, got {type(error).__name__}: {error}"
        ) from error


def load_weights(model: Any, path: Path) -> None:
    """Fill a module from a state dict (`torch.save`), safetensors, or a folder of torch.distributed.checkpoint."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise ModelError(f"weights must be for a torch module, got {type(model).__name__}")
    state = _read_checkpoint(model, path) if path.is_dir() else _read_state(path)
    wanted = model.state_dict()
    state = {_bare(name): value for name, value in state.items()}
    missing = [name for name in wanted if name not in state]
    unexpected = [name for name in state if name not in wanted]
    shapes = [
        f"{name} {list(state[name].shape)} in place of {list(wanted[name].shape)}"
        for name in wanted
        if name in state and state[name].shape != wanted[name].shape
    ]
    faults = [
        f"{what} {_some(names)}"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    if faults:
        raise ModelError(f"{path} must have the weights of the model, got " + "; ".join(faults))
    model.load_state_dict(state)


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _bare(name: str) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def _read_state(path: Path) -> Mapping[str, Any]:
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ModelError(f"{path} must be a file of weights, got nothing there") from error
    except ModuleNotFoundError as error:
        raise ModelError(
            "safetensors must be installed to read such weights; pip install 'weft[export]'"
        ) from error
    except Exception as error:
        raise ModelError(
            f"{path} must be a state dict, safetensors or a checkpoint of torch.distributed, got "
            f"{type(error).__name__}; save model.state_dict()"
        ) from error
    state = loaded
    for key in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
            break
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ModelError(f"{path} must be a state dict, got {type(loaded).__name__}; save model.state_dict()")
    return state


def _read_checkpoint(model: Any, folder: Path) -> Mapping[str, Any]:
    """The weights in a checkpoint of torch.distributed, under whatever key the script put them."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        reader = FileSystemReader(folder)
        metadata = reader.read_metadata().state_dict_metadata
    except Exception as error:
        raise ModelError(
            f"{folder} must be a checkpoint of torch.distributed, got {type(error).__name__}: {error}"
        ) from error
    stored = {name: what for name, what in metadata.items() if isinstance(what, TensorStorageMetadata)}
    wanted = model.state_dict()
    first = next(iter(wanted), "")
    # Of all keys that end like the model's first, the one under which most of the others are.
    prefixes = {name.removesuffix(first) for name in stored if name == first or name.endswith(f".{first}")}
    prefix = max(
        sorted(prefixes), key=lambda start: sum(start + name in stored for name in wanted), default=""
    )
    names = [name for name in wanted if prefix + name in stored]
    wrong = [name for name in names if tuple(stored[prefix + name].size) != tuple(wanted[name].shape)]
    if wrong:
        raise ModelError(f"{folder} must have the weights of the model, got of another shape {_some(wrong)}")
    state = {prefix + name: torch.empty_like(wanted[name], device="cpu") for name in names}
    with warnings.catch_warnings():  # it remarks that we are alone
        warnings.simplefilter("ignore")
        load(state, storage_reader=reader, no_dist=True)
    more = {name.removeprefix(prefix) for name in stored if prefix and name.startswith(prefix)} - set(wanted)
    return {name: state[prefix + name] for name in names} | dict.fromkeys(sorted(more))
