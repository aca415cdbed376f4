"""A look at what is installed: Horovod itself and `weft-horovod` have the same files, and one hides the other."""

from __future__ import annotations

from importlib.util import find_spec

OURS, THEIRS = "weft-horovod", "horovod"


def conflict() -> str | None:
    """Return a sentence if both are installed; None if not."""
    if find_spec("horovod") is None:  # as mostly, and found out in no time
        return None
    from importlib import metadata

    try:
        ours, theirs = metadata.version(OURS), metadata.version(THEIRS)
    except metadata.PackageNotFoundError:
        return None
    return (
        f"one Horovod must be installed, got {THEIRS} {theirs} and {OURS} {ours}, whose files are the same; "
        f"`import horovod` finds whichever came last: pip uninstall {THEIRS}, then pip install --force-reinstall {OURS}"
    )
