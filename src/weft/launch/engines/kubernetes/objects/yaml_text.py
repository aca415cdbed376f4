"""Objects as YAML, as `--dry-run` prints them and as the cluster is sent them: one text for both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from weft.errors import UsageError

# What Kubernetes' parser of YAML takes for a number, a time, a switch or nothing, and Python's for text: 1e-3, y, 0o7.
_DOUBTFUL = re.compile(r"[-+]?[.0-9].*|[-+~]?|y|n|yes|no|on|off|true|false|null", re.IGNORECASE | re.DOTALL)


def to_yaml(objects: Iterable[dict[str, Any]]) -> str:
    """Return objects as one YAML stream, fields in the order in which they were written."""
    return "".join(f"---\n{one_to_yaml(item)}" for item in objects)


def one_to_yaml(item: dict[str, Any]) -> str:
    """Return one object as YAML. Text that any parser would read as something else is quoted."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UsageError(
            "--engine kubernetes must have PyYAML and lightkube, got neither; pip install 'weft[kubernetes]'"
        ) from None
    # Through JSON: PyYAML would write an object that stands twice as a reference.
    plain = json.loads(json.dumps(item))

    class QuotingDumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML has no types
        """A dumper that leaves no doubt about what is text."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Python's emitter would write some line breaks as they are, which come back as others.
        style = '"' if not text.isprintable() else "'" if _DOUBTFUL.fullmatch(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    QuotingDumper.add_representer(str, represent)
    found: str = yaml.dump(plain, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=1 << 30)
    return found
