"""The command of a worker: a script, a module, or any command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weft.errors import UsageError


@dataclass(frozen=True)
class Command:
    """The program of a run and its arguments."""

    kind: Literal["script", "module", "command"]
    target: str
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """A short name for the run, taken from the program."""
        return self.target.rpartition(".")[2] if self.kind == "module" else Path(self.target).stem

    def argv(self, python: str) -> tuple[str, ...]:
        match self.kind:
            case "script":
                return (python, "-u", self.target, *self.args)
            case "module":
                return (python, "-u", "-m", self.target, *self.args)
            case "command":
                return (self.target, *self.args)

    def check(self, cwd: Path) -> None:
        """Refuse a script that is not there; other hosts are asked by their agents."""
        if self.kind == "script" and not (cwd / self.target).is_file():
            raise UsageError(
                f"the script must be a file, got {self.target!r} in {cwd}; "
                "use -m for a module or -- before any other command"
            )
