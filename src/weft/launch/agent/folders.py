"""Folders of a run on a host that does not share them: taken from the launcher's side, given back, removed.

`python -m weft.launch.agent.folders` reads one `FolderOrder` from its standard input and answers with one line. The
files of folders follow as a tar, in which a folder has the name of its index among the paths of the message before.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import IO

from weft.messages import Decoder, Message, encode


class FolderOrder(Message, frozen=True, tag_field="do"):
    """An order about folders of a host."""


class TakeFolders(FolderOrder, frozen=True, tag="take"):
    """Answer with `LackingFolders`, and take a tar of what is lacking; `make` are folders that may be empty."""

    take: tuple[str, ...]
    make: tuple[str, ...] = ()


class GiveFolders(FolderOrder, frozen=True, tag="give"):
    """Answer with the folders that are there, and a tar of them."""

    paths: tuple[str, ...]


class RemoveFolders(FolderOrder, frozen=True, tag="remove"):
    """Remove folders, where they are there."""

    paths: tuple[str, ...]


class AppendText(FolderOrder, frozen=True, tag="append"):
    """Add text to files, by their paths."""

    texts: dict[str, str]


class LackingFolders(Message, frozen=True, tag_field="answer", tag="lacking"):
    """The folders that this host lacks, and those that it has made."""

    lacking: tuple[str, ...]
    made: tuple[str, ...]


class FoldersDone(Message, frozen=True, tag_field="answer", tag="done"):
    """The paths for which an order was carried out."""

    paths: tuple[str, ...]


ANSWERS = Decoder[Message](LackingFolders, FoldersDone)
_ORDERS = Decoder[FolderOrder](TakeFolders, GiveFolders, RemoveFolders, AppendText)


def main(source: IO[bytes], out: IO[bytes]) -> None:
    """Carry out the order of one line."""
    os.umask(0o077)
    match _ORDERS.decode(source.readline()):
        case TakeFolders() as order:
            _take(order, source, out)
        case GiveFolders(paths):
            _give(paths, out)
        case RemoveFolders(paths):
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
            _answer(out, FoldersDone(paths))
        case AppendText(texts):
            for path, text in texts.items():
                with Path(path).open("a") as file:
                    file.write(text)
            _answer(out, FoldersDone(tuple(texts)))


def _take(order: TakeFolders, source: IO[bytes], out: IO[bytes]) -> None:
    lacking = tuple(path for path in order.take if not Path(path).exists())
    made = tuple(path for path in order.make if path not in lacking and not Path(path).is_dir())
    for path in made:
        Path(path).mkdir(parents=True, exist_ok=True)
    _answer(out, LackingFolders(lacking, made))
    for path in lacking:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    if not lacking:
        return
    drafts = [Path(f"{path}.draft-{os.getpid()}") for path in lacking]
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for entry in archive:
                index, _, rest = entry.name.partition("/")
                _extract(archive, entry, drafts[int(index)], rest, drafts)
        for draft, path in zip(drafts, lacking, strict=True):
            if not Path(path).exists():  # another start on this host may have been quicker
                draft.rename(path)
    finally:
        for draft in drafts:
            shutil.rmtree(draft, ignore_errors=True)
    _answer(out, FoldersDone(lacking))


def _extract(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, draft: Path, rest: str, drafts: list[Path]
) -> None:
    """Write one entry into the draft of its folder; a lone file is the draft itself."""
    entry.name = draft.name + (f"/{rest}" if rest else "")
    if entry.islnk():
        index, _, other = entry.linkname.partition("/")
        entry.linkname = str((drafts[int(index)] / other).relative_to(draft.parent))
    archive.extract(entry, draft.parent, filter="tar")


def _give(wanted: tuple[str, ...], out: IO[bytes]) -> None:
    there = tuple(path for path in wanted if Path(path).is_dir())
    _answer(out, FoldersDone(there))
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for index, path in enumerate(there):
            archive.add(path, arcname=str(index))


def _answer(out: IO[bytes], answer: LackingFolders | FoldersDone) -> None:
    out.write(encode(answer))
    out.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
