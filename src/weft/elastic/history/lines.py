"""The traces agents leave in `RUN/elastic/`: files of one JSON object a line, only ever appended to.

An agent may be killed in the middle of a line, so the last line of a file counts only if it is whole. Before it
appends to a file of an earlier life, an agent calls `mend`; a broken line elsewhere is therefore no agent's doing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.documents import parse_json
from weft.errors import UsageError

LEDGER, EVENTS = "ledger", "events"


def trace_file(run_dir: Path, host: str, kind: str) -> Path:
    """Return the file in which a host's agent writes; `kind` is LEDGER or EVENTS."""
    return run_dir / "elastic" / f"{host}.{kind}.jsonl"


def trace_files(run_dir: Path, kind: str) -> tuple[Path, ...]:
    """The files of all hosts that have some here: any subset of those that took part."""
    files = sorted((run_dir / "elastic").glob(f"*.{kind}.jsonl"))
    if not files:
        raise UsageError(
            f"{run_dir} must hold elastic/HOST.{kind}.jsonl, got none; was it started with weft run --elastic?"
        )
    return tuple(files)


def read_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """All lines of a file, each with where it stands (`a.ledger.jsonl:12`)."""
    try:
        lines = [line.strip() for line in path.read_bytes().split(b"\n")]
    except OSError as error:
        raise UsageError(f"{path} must be readable, got {error.strerror}") from error
    last = max((number for number, line in enumerate(lines) if line), default=0)
    found = []
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            data = parse_json(line)
        except ValueError:  # of the text or of its encoding
            data = None
        if isinstance(data, dict):
            found.append((f"{path.name}:{number + 1}", data))
        elif number < last:
            raise UsageError(
                f"{path}:{number + 1} must be a JSON object, got {line[:40].decode(errors='replace')!r}; only the last "
                "line may be cut off: take the file away to look at the others alone"
            )
    return found


def mend(path: Path) -> None:
    """Cut off the rest of a line that a killed writer left, so that what is appended starts on a line of its own."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
