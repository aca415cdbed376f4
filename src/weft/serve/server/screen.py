"""The start-up screen: what is served, as it is loaded, and where to try it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft.serve.server.models.model import Model
from weft.version import __version__

_ANYWHERE = ("0.0.0.0", "[::]")  # a server on these is reached by any address of the machine
_PLATFORMS = {"onnxruntime_onnx": "ONNX Runtime", "pytorch_module": "torch"}


class StartScreen:
    """Tells a person line by line how the server starts."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    def begin(self, names: list[str], where: str) -> None:
        """Tell which models will be loaded; `where` is the store, empty where there is none."""
        self._say(f"weft serve {__version__}")
        if names:
            self._say(f"  loading {', '.join(names)}")
        else:
            self._say(f"  the store {where} holds no models yet; those that are pushed will be served")

    def loaded(self, model: Model, place: int, count: int) -> None:
        self._say(f"  [{place}/{count}] {describe_model(model)}")

    def failed(self, name: str, reason: str, place: int, count: int) -> None:
        self._say(f"  [{place}/{count}] {name} did not load: {reason}")

    def end(self, addresses: Mapping[str, str]) -> None:
        """Tell the addresses; the last line is the one that scripts wait for."""
        page = addresses["http"]
        for anywhere in _ANYWHERE:
            page = page.replace(f"//{anywhere}:", "//127.0.0.1:")
        self._say(f"  try it at {page}/")
        self._say(f"  API at {page}/docs, figures at {page}/metrics")
        self._say("listening on " + ", ".join(f"{address} ({kind})" for kind, address in addresses.items()))


def describe_model(model: Model) -> str:
    """Return a line about a model: its version, what runs it, and how many rows share a run."""
    runs = f"{_PLATFORMS.get(model.platform, model.platform)} on {model.processor}"
    rows = f"batches of up to {model.options.max_batch} rows" if model.batches else "one request a run"
    return f"{model.name}, version {model.version}, {runs}, {rows} ({model.batch_reason})"
