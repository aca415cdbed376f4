"""Models of tables without code: types found, leaks warned of, models tuned, stacked, explained and exported.

    import weft.auto

    model = weft.auto.fit("table.parquet", target="y", minutes=10)
    print(model.leaderboard)
    model.predict(new_rows)

A run is kept in a folder: killed and called again, it goes on where it was. The command is `weft auto`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "AutoConfig": "weft.auto.config",
    "AutoModel": "weft.auto.model",
    "fit": "weft.auto.running",
    "load": "weft.auto.model",
    "to_onnx": "weft.auto.onnx",
}
__all__ = ["AutoConfig", "AutoModel", "fit", "load", "to_onnx"]

if TYPE_CHECKING:
    from weft.auto.config import AutoConfig
    from weft.auto.model import AutoModel, load
    from weft.auto.onnx import to_onnx
    from weft.auto.running import fit


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft.auto' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
