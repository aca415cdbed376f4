"""The one place that turns errors into what `weft` prints and exits with.

Errors of the library say themselves what must hold. Errors of the system and of parsers (a file that is not there,
text that is not UTF-8, memory that ran out, a package that is not installed) are put into the same words here. Whatever
is left is a fault of Weft's own: its traceback is printed, with a line that says how to report it.
"""

from __future__ import annotations

import errno
import re
import sys
from dataclasses import dataclass
from traceback import walk_tb

import click

from weft.cli.misuse import describe_misuse
from weft.errors import WeftError
from weft.version import __version__

INTERRUPTED = 130  # 128 + SIGINT, as shells count
# Of a path that was given wrongly; other numbers, such as ENOSPC, are failures of the machine.
_MISUSE = frozenset(
    [
        errno.EACCES,
        errno.EEXIST,
        errno.EFBIG,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENODEV,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.ENXIO,
        errno.EPERM,
        errno.EROFS,
    ]
)
# Packages whose modules have another name.
_DISTRIBUTIONS = {
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "grpc": "grpcio",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_OF_DEVELOPERS = ("bench", "dev", "docs", "examples", "test")


@dataclass(frozen=True)
class CommandFailure:
    """The text that is printed of an error, which may be none, and the exit code."""

    text: str
    exit_code: int


def describe_failure(error: BaseException) -> CommandFailure | None:
    """Return what to say of an error; None for a fault of Weft's own."""
    if isinstance(error, WeftError):
        return CommandFailure(str(error), error.exit_code)
    if isinstance(error, click.UsageError):
        return CommandFailure(describe_misuse(error), error.exit_code)
    if isinstance(error, click.ClickException):
        return CommandFailure(error.format_message(), error.exit_code)
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return None if isinstance(error.__cause__, EOFError) else CommandFailure("interrupted", INTERRUPTED)
    if isinstance(error, OSError):
        return _describe_system_error(error)
    if isinstance(error, UnicodeDecodeError):
        return CommandFailure(
            f"text must be {error.encoding}, got the byte {error.object[error.start]:#04x} at {error.start}; "
            "save the file as UTF-8",
            2,
        )
    if isinstance(error, UnicodeEncodeError):
        return CommandFailure(
            f"names must be text, got {error.object[error.start : error.end]!r} at {error.start}; rename it",
            2,
        )
    if isinstance(error, MemoryError):
        said = str(error) or "less"
        return CommandFailure(
            f"the work must fit into the memory of this machine, got: {said}; ask for less", 1
        )
    if isinstance(error, ModuleNotFoundError):
        return _describe_missing_package(error)
    return _describe_parser_error(error)


def _describe_missing_package(error: ModuleNotFoundError) -> CommandFailure | None:
    """Return what to install where a package of one of our extras is not there; None for a module of our own."""
    module = (error.name or "").partition(".")[0]
    extras = _extras_with(module)
    if not extras:
        return None
    part = _part_that_asked(error)
    extra = part if part in extras else extras[0]
    return CommandFailure(
        f"this must have the package {module}, got none; install it: pip install 'weft[{extra}]'", 2
    )


def _extras_with(module: str) -> list[str]:
    """Return the extras of our package that bring a module, but for those of its developers."""
    from importlib.metadata import PackageNotFoundError, requires

    name = _DISTRIBUTIONS.get(module, module).lower().replace("_", "-")
    try:
        wanted = requires("weft") or []
    except PackageNotFoundError:
        return []
    found = (re.fullmatch(r"([\w-]+).*\bextra == ['\"](\w+)['\"].*", line) for line in wanted)
    extras = [match[2] for match in found if match and match[1].lower().replace("_", "-") == name]
    return [extra for extra in extras if extra not in _OF_DEVELOPERS]


def _part_that_asked(error: ModuleNotFoundError) -> str:
    """Return the part of our package whose module wanted another one: `serve` of `weft.serve.server`."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    ours = [name for name in names if name.startswith("weft.")]
    return ours[-1].split(".")[1] if ours else ""


def _describe_system_error(error: OSError) -> CommandFailure | None:
    if isinstance(error, BrokenPipeError) and not error.filename:
        return CommandFailure("", 1)  # the reader of our output has left, as `head` does
    if error.errno in (errno.ENOSPC, errno.EDQUOT):  # told by a write, which does not know its file
        where = error.filename if isinstance(error.filename, str) else "the disk"
        return CommandFailure(f"{where} must have room, got: {error.strerror}; free some, and try again", 1)
    if error.filename is None:
        return None
    reason = error.strerror or type(error).__name__
    path = error.filename if isinstance(error.filename, str) else repr(error.filename)
    code = 2 if error.errno in _MISUSE else 1
    return CommandFailure(f"{path} must be a path that can be used, got: {reason}; check the path", code)


def _describe_parser_error(error: BaseException) -> CommandFailure | None:
    """Return what to say of an error of a parser that is loaded; one that is not cannot have raised."""
    for module, name in (("msgspec", "MsgspecError"), ("yaml", "YAMLError")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(error, kind):
            reason = " ".join(str(error).split())
            return CommandFailure(f"files must be well formed, got: {reason}; mend the file", 2)
    return None


def print_failure(error: BaseException) -> int:
    """Print an error on standard error, in words or as a traceback; return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    failure = describe_failure(error)
    if failure is None:
        sys.excepthook(type(error), error, error.__traceback__)
        click.echo(
            f"weft: this is a fault of weft {__version__} itself; please report it with the lines above "
            "and the command that you typed",
            err=True,
        )
        return 1
    for line in failure.text.splitlines():
        click.echo(f"weft: {line}", err=True)
    return failure.exit_code
