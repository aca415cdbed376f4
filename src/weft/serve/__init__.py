"""From a trained model to an endpoint: one checked ONNX file, a store of them, a server.

    from weft.serve import Card
    from weft.serve.export import export

    export(model, samples, "digits.onnx", card=Card(task="classify", labels=labels))

`card.py` is what travels with a model; `export/` makes the file and checks it; `store/` keeps versions of it.
torch, onnx and ONNX Runtime are loaded by what needs them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Card": "weft.serve.card",
    "Entry": "weft.serve.store",
    "Parity": "weft.serve.card",
    "Picture": "weft.serve.card",
    "Store": "weft.serve.store",
    "Tokens": "weft.serve.card",
    "read_card": "weft.serve.card",
    "write_card": "weft.serve.card",
}

__all__ = ["Card", "Entry", "Parity", "Picture", "Store", "Tokens", "read_card", "write_card"]

if TYPE_CHECKING:
    from weft.serve.card import Card, Parity, Picture, Tokens, read_card, write_card
    from weft.serve.store import Entry, Store


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.serve' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
