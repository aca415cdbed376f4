"""The process that runs a plug-in algorithm of WMLA's shape: a folder with a class PluginOptimizer.

It reads one JSON object: the folder, the parameters, the options, the seed and all calls of `search` so far. It makes
the optimizer, repeats the calls, and writes the answer to the last of them. So nothing is kept between suggestions, and
a study that is started again gets the suggestion that it would have had. Only the standard library is imported here.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import random
import sys
import types
from pathlib import Path
from typing import Any

CLASS = "PluginOptimizer"
MAIN = "optimizer.py"


class BasePluginOptimizer:
    """The root of optimizers, as WMLA's plug-ins import it from `plugins.core.base_plugin_opt`."""

    def __init__(self, name: str, hyper_parameters: list[dict[str, Any]], **kwargs: Any) -> None:
        self.name, self.hyper_parameters, self.kwargs = name, hyper_parameters, kwargs

    def search(self, number_samples: int, last_exp_results: list[dict[str, Any]] | None) -> list[Any]:
        """Return so many points; a plug-in has its own."""
        raise NotImplementedError

    def get_state(self) -> dict[str, Any]:
        """Return what the optimizer would need to go on; calls are repeated here instead."""
        return {}

    def set_state(self, state_dict: dict[str, Any]) -> None:
        """Take a state; calls are repeated here instead."""


def provide_modules() -> None:
    """Make the modules that plug-ins import: plugins.core.logger and plugins.core.base_plugin_opt."""
    for name in ("plugins", "plugins.core"):
        package = types.ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    logger, base = types.ModuleType("plugins.core.logger"), types.ModuleType("plugins.core.base_plugin_opt")
    logger.logger = logging.getLogger("plugin")  # type: ignore[attr-defined]
    base.BasePluginOptimizer = BasePluginOptimizer  # type: ignore[attr-defined]
    for module in (logger, base):
        sys.modules[module.__name__] = module
    sys.modules["plugins.base_plugin_opt"] = base


def find_main(folder: Path) -> Path:
    """Return the file with the class: optimizer.py, or the only one that names it."""
    if (folder / MAIN).is_file():
        return folder / MAIN
    found = [
        path
        for path in sorted(folder.rglob("*.py"))
        if f"class {CLASS}" in path.read_text("utf-8", "replace")
    ]
    if len(found) != 1:
        raise SystemExit(f"a plug-in must have one file with class {CLASS}, got {len(found)}; name it {MAIN}")
    return found[0]


def load(folder: Path) -> Any:
    """Return the class of a plug-in."""
    main = find_main(folder)
    sys.path.insert(0, str(main.parent))
    spec = importlib.util.spec_from_file_location("weft_plugin_optimizer", main)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kind = getattr(module, CLASS, None)
    if not isinstance(kind, type):
        raise SystemExit(f"{main.name} must have a class {CLASS}, got none; name it so")
    return kind


def plain(value: Any) -> Any:
    """Return a value of NumPy's as JSON can hold it."""
    return value.item() if hasattr(value, "item") else str(value)


def main() -> None:
    """Answer the last call."""
    asked = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr  # what a plug-in prints is no answer
    provide_modules()
    random.seed(asked["seed"])
    if importlib.util.find_spec("numpy") is not None:
        import numpy

        numpy.random.seed(asked["seed"] % 2**32)
    kind = load(Path(asked["folder"]))
    optimizer = kind(asked["name"], asked["parameters"], **asked["options"])
    found: Any = None
    for call in asked["calls"]:
        found = optimizer.search(1, call)
    json.dump(list(found or []), answer, default=plain)


if __name__ == "__main__":
    main()
