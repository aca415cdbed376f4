"""Models in files: pickled by `weft learn fit --out`, and read again.

A pickle is a program: reading one runs whatever its maker wrote into it. Open only files that you or people you trust
have made. ONNX files (`--out model.onnx`) hold data alone.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from weft.errors import ModelError


def load_estimator(path: Path) -> Any:
    """Return the estimator in a file of pickle or joblib; whatever its code raises becomes one clear error."""
    try:
        model = _unpickled(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path} must be a pickled estimator, got nothing there; check the path") from error
    except (Exception, SystemExit) as error:  # the file may run any code
        raise ModelError(
            f"{path} must be a pickled estimator of weft.learn, got {_why(error)}; fit one with "
            "`weft learn fit --out model.pkl`"
        ) from error
    if not (hasattr(model, "fit") and hasattr(model, "get_params") and hasattr(model, "predict")):
        raise ModelError(
            f"{path} must be a pickled estimator of weft.learn, got {type(model).__name__}; fit one with "
            "`weft learn fit --out model.pkl`"
        )
    return model


def _unpickled(path: Path) -> Any:
    if path.suffix == ".joblib":
        import joblib

        return joblib.load(path)
    with path.open("rb") as file:
        return pickle.load(file)


def _why(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "an empty file or one that is cut short"
    if isinstance(error, ModuleNotFoundError):
        return f"one that needs the module {error.name}, which is not installed"
    reason = str(error).splitlines()[0].rstrip(".") if str(error) else "no reason given"
    return f"{type(error).__name__}: {reason}"
