"""Export: from a trained model to one checked ONNX file that carries all it needs.

    from weft.serve import Card
    from weft.serve.export import export

    export(model, samples, "digits.onnx", card=Card(task="classify", labels=labels))

`torch_source.py` and `learn_source.py` turn a model into a graph and answer as the model does; `asking.py` asks them
and the file the same, `parity.py` compares; `precision.py` makes smaller files; `api.py` ties them up. `loading.py`
finds models and weights for the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Exported": "weft.serve.export.api",
    "export": "weft.serve.export.api",
}

__all__ = ["Exported", "export"]

if TYPE_CHECKING:
    from weft.serve.export.api import Exported, export


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.serve.export' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
