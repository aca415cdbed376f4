"""The folder beside the target in which a file is made and checked, and the move of what is checked to its place.

Weights outside the graph have a name of their own in each export, so a graph that is there always finds the weights it
was written with: they move first, the graph takes the place of the old one last, and the old weights go after that.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from weft.errors import ModelError
from weft.files import drafting, locked_folder
from weft.serve.onnx_file import external_files

_TOKEN_BYTES = 8  # of the random part of a draft's name


@contextmanager
def workplace(target: Path) -> Iterator[Path]:
    """Yield the path of a draft of `target`, in a folder that is removed at the end.

    What a killed export of the same file has left is removed as well.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(drafting(target.absolute().parent, f".{target.name}."))
        except OSError as error:
            raise ModelError(f"{target} must be in a folder that can be written: {error.strerror}") from error
        yield folder / f"{target.stem}.{secrets.token_hex(_TOKEN_BYTES)}.onnx"


def publish(draft: Path, target: Path) -> None:
    """Move a graph and its weights to their places; a reader finds the old model or the new one, never a mixture."""
    with locked_folder(target.absolute().parent):
        before = _weights_of(target)
        for name in external_files(draft):
            draft.with_name(name).replace(target.with_name(name))
        draft.replace(target)
        _sweep(target, before)


def _sweep(target: Path, before: tuple[str, ...]) -> None:
    """Remove weights of earlier exports of this file that no graph in the folder refers to."""
    folder = target.absolute().parent
    token = f"[0-9a-f]{{{2 * _TOKEN_BYTES}}}"
    made = re.compile(rf"{re.escape(target.stem)}\.{token}\.onnx(\.{token})?\.data")
    old = {path.name for path in folder.iterdir() if made.fullmatch(path.name)}
    old |= {name for name in before if name == f"{target.name}.data"}
    try:
        used = {name for graph in folder.glob("*.onnx") for name in external_files(graph)}
    except ModelError:  # a graph that cannot be read may need any of them
        return
    for name in old - used:
        (folder / name).unlink(missing_ok=True)


def _weights_of(target: Path) -> tuple[str, ...]:
    """The files of weights of the model that is there now, if it is one."""
    try:
        return external_files(target)
    except ModelError:
        return ()
