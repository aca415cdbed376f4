"""The folder beside the target in which a file is made and checked before it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from weft.errors import ModelError
from weft.serve.drafts import drafting


@contextmanager
def workplace(target: Path) -> Iterator[Path]:
    """A folder of our own, gone at the end; what a killed export of the same file left is removed."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(drafting(target.absolute().parent, f".{target.name}."))
        except OSError as error:
            raise ModelError(f"{target} must be in a folder that can be written: {error.strerror}") from error
        yield folder
