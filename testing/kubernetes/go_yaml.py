"""YAML as Kubernetes reads it: by Go's parser, which takes more words for numbers and switches than Python's."""

from __future__ import annotations

import re
from typing import Any

import yaml


class GoLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """A loader that reads text without quotes as Go's parser does."""

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """Return a number that Python's parser takes for text."""
        text = self.construct_scalar(node).replace("_", "")
        return int(text, 0) if re.fullmatch(r"[-+]?0[oOxXbB].*", text) else float(text)

    def construct_switch(self, node: yaml.ScalarNode) -> bool:
        """Return a switch that Python's parser takes for text."""
        return self.construct_scalar(node) in ("y", "Y")


_NUMBER = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[oOxXbB][0-9a-fA-F_]+", re.ASCII
)
GoLoader.add_implicit_resolver("!number", re.compile(rf"^(?:{_NUMBER.pattern})$"), list("-+.0123456789"))
GoLoader.add_implicit_resolver("!switch", re.compile(r"^[yYnN]$"), list("yYnN"))
GoLoader.add_constructor("!number", GoLoader.construct_number)
GoLoader.add_constructor("!switch", GoLoader.construct_switch)


def load(text: str) -> Any:
    """Return what Kubernetes would read."""
    return yaml.load(text, Loader=GoLoader)
