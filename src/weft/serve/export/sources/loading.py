"""Models and weights as the command line names them: `module:factory`, `file.py:factory`, a pickled estimator."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.errors import ModelError
from weft.serve.export.sources.names import some

PICKLES = (".pkl", ".pickle", ".joblib")
WRAPPERS = ("state_dict", "model_state_dict", "model", "module")  # keys under which people put weights
PREFIXES = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before names


def load_model(name: str, weights: Path | None = None) -> Any:
    """The model that `name` means, with its weights."""
    if name.endswith(PICKLES):
        if weights is not None:
            raise ModelError(f"weights must be for a torch module, got {weights} for {name}")
        from weft.learn.saved import load_estimator

        return load_estimator(Path(name))
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
            f"got {name!r}; write model.py:make for a function that returns a torch module"
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
    except (Exception, SystemExit) as error:
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
    except (Exception, SystemExit) as error:
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
    except (Exception, SystemExit) as error:
        raise ModelError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(folder)
    return module


def load_weights(model: Any, path: Path) -> None:
    """Fill a module from a state dict (`torch.save`), safetensors, or a folder of torch.distributed.checkpoint."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise ModelError(f"weights must be for a torch module, got {type(model).__name__}")
    if path.is_dir():
        from weft.serve.export.sources.checkpoint import read_checkpoint

        state = read_checkpoint(model, path)
    else:
        state = _read_state(path)
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
        f"{what} {some(names)}"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
        if names
    ]
    if faults:
        raise ModelError(f"{path} must have the weights of the model, got " + "; ".join(faults))
    model.load_state_dict(state)


def _kind(path: Path, error: Exception) -> str:
    """Say what a file is that holds no weights, as far as its first bytes and torch's error tell."""
    if path.stat().st_size == 0:
        return "an empty file"
    if "Weights only load failed" in str(error):
        return "objects beside tensors, which are read only by running code"
    said = str(error).splitlines()[0][:200] if str(error) else "no reason given"
    return f"another kind of file ({type(error).__name__}: {said})"


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
            f"{path} must be a state dict, safetensors or a checkpoint of torch.distributed, got {_kind(path, error)}; "
            "save model.state_dict()"
        ) from error
    state = loaded
    for key in WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
            break
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ModelError(f"{path} must be a state dict, got {type(loaded).__name__}; save model.state_dict()")
    return state
