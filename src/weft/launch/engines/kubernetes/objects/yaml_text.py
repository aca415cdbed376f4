"""Objects as YAML, as `--dry-run` prints them and as the cluster is sent them: one text for both."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from weft.errors import UsageError


def to_yaml(objects: Iterable[dict[str, Any]]) -> str:
    """Return objects as one YAML stream, fields in the order in which they were written."""
    return "".join(f"---\n{one_to_yaml(item)}" for item in objects)


def one_to_yaml(item: dict[str, Any]) -> str:
    """Return one object as YAML. Text that YAML 1.1 would read as something else is quoted."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UsageError(
            "--engine kubernetes must have PyYAML and lightkube, got neither; pip install 'weft[kubernetes]'"
        ) from None
    # Through JSON: PyYAML would write an object that stands twice as a reference.
    plain = json.loads(json.dumps(item))
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1 << 30)
    return text
