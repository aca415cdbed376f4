"""Types of the paths on the command line: files and folders to read, and to write.

    @click.option("--out", type=OutputFile())

A path is refused before anything starts, with the reason that the system gives:

    --out must be a file that can be written, got no/where (its folder does not exist); make the folder, or name another
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import click

from weft.cli.values import ValueType
from weft.errors import UsageError
from weft.text import shorten

SHOWN_PATH = 250  # characters of a refused path, in the error


class PathType(ValueType):
    """A path on this machine."""

    name = "path"
    example = "PATH"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(os.fspath(value), param)

    def shown(self, given: object) -> str:
        text = shorten(given, SHOWN_PATH)
        return text if " " in text or "\\" in text or len(text) == 2 else text[1:-1]

    def status(self, text: str, param: click.Parameter | None) -> os.stat_result | None:
        """Return what is at a path, None if there is nothing; refuse what no path can be."""
        try:
            return Path(text).stat() if text else self.refuse(text, param)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.refuse(text, param, getattr(error, "strerror", None) or str(error), "check the path")


class ExistingFile(PathType):
    """A file that can be read."""

    name = "file"

    def __init__(self, kind: str = "a file", *, advice: str = "check the path") -> None:
        self.must = f"{kind} that can be read"
        self.advice = advice

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        found, path = self.status(text, param), Path(text)
        if found is None or path.is_dir() or not os.access(path, os.R_OK):
            number = errno.ENOENT if found is None else errno.EISDIR if path.is_dir() else errno.EACCES
            self.refuse(text, param, os.strerror(number), self.advice)
        return path


class ExistingFolder(PathType):
    """A folder that is there."""

    name = "folder"
    must = "a folder that exists"

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        found, path = self.status(text, param), Path(text)
        if found is None or not path.is_dir():
            number = errno.ENOENT if found is None else errno.ENOTDIR
            self.refuse(text, param, os.strerror(number), "check the path")
        return path


class PossibleFolder(PathType):
    """A folder, or a path where nothing is yet."""

    name = "folder"
    must = "a folder"

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        if self.status(text, param) is not None and not Path(text).is_dir():
            self.refuse(text, param, os.strerror(errno.ENOTDIR), "check the path")
        return Path(text)


class ExistingPath(PathType):
    """A file or a folder that is there."""

    must = "a file or a folder that exists"

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        if self.status(text, param) is None:
            self.refuse(text, param, os.strerror(errno.ENOENT), "check the path")
        return Path(text)


class OutputFile(PathType):
    """A file to write: its folder is there and may be written to, and it is no folder itself."""

    name = "file"
    must = "a file that can be written"

    def __init__(self, *, dash: bool = False) -> None:
        self.dash = dash  # whether - stands for standard output

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        if self.dash and text == "-":
            return Path("-")
        found, path = self.status(text, param), Path(text)
        if path.is_dir() or text.endswith("/"):
            self.refuse(text, param, "a folder", "name a file")
        if not path.absolute().parent.is_dir():
            self.refuse(text, param, "its folder does not exist", "make the folder, or name another")
        if not os.access(path if found else path.absolute().parent, os.W_OK):
            self.refuse(text, param, os.strerror(errno.EACCES), "name another")
        return path


class OutputFolder(PathType):
    """A folder to write into: it is there, or can be made."""

    name = "folder"
    must = "a folder that can be written to"

    def parse(self, text: str, param: click.Parameter | None) -> Path:
        self.status(text, param)
        path = Path(text)
        there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
        if not there.is_dir():
            self.refuse(text, param, f"{there} is a file", "name another")
        if not os.access(there, os.W_OK):
            self.refuse(text, param, os.strerror(errno.EACCES), "name another")
        return path


def write_output(path: Path, text: str) -> None:
    """Write a file that an option names."""
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(
            f"{path} must be a file that can be written, got: {error.strerror}; name another"
        ) from None
