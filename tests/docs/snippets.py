"""The commands and snippets of the documentation, as data: what a reader would type, page by page. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """One command, or one block of Python, of a page."""

    language: str  # console or python
    text: str
    line: int  # of the page


def snippets(page: Path) -> list[Snippet]:
    """Return what a page asks its reader to run, in order."""
    text = page.read_text()
    found: list[Snippet] = []
    for block in _FENCE.finditer(text):
        line = text.count("\n", 0, block.start()) + 2
        if block[1] == "console":
            found += [Snippet("console", command, line) for command in _commands(block[2])]
        elif block[1] == "python":
            found.append(Snippet("python", block[2], line))
    return found


def _commands(block: str) -> Iterator[str]:
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = f"{command[:-1]} {next(lines).strip()}"
            yield command


def on_other_hosts(command: str) -> bool:
    """Return whether a command names hosts that a reader would put their own in place of."""
    return re.search(r"\s(-H|--add)\s", command) is not None


def as_dry_run(command: str) -> str:
    """Turn a run on other hosts into its plan, for which no host is asked."""
    return re.sub(r"\bweft run\b", "weft run --dry-run --skip-checks", command)


def as_quick_bench(command: str) -> str:
    """Let a measurement take two calls of each size, and of small sizes where the command names none."""
    command, hash_sign, comment = command.partition(" #")
    if re.search(r"\bweft bench\b", command):
        sizes = "" if re.search(r"--(sizes|max)\b", command) else " --sizes 4KiB,256KiB"
        command = f"{command}{sizes} --iterations 2"
    return command + hash_sign + comment


def on_cluster(command: str) -> str:
    """Put the hosts of the virtual cluster in the place of a, b, c and d."""
    names = {"a": "h1", "b": "h2", "c": "h3", "d": "h4"}
    return re.sub(
        r"-H ([a-d](?:,[a-d])*)\b", lambda m: "-H " + ",".join(names[x] for x in m[1].split(",")), command
    )


def is_server(command: str) -> bool:
    """Return whether a command serves until it is ended."""
    words = shlex.split(command, comments=True)
    return is_service(command) or (words[:2] == ["weft", "serve"] and words[2] != "keys")


def is_service(command: str) -> bool:
    """Return whether a command is the jobs service."""
    return shlex.split(command, comments=True)[:2] == ["weft", "up"]


def at_port(text: str, port: int) -> str:
    """Let a server listen on a port of the test's own, and its callers ask there."""
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    if text.startswith("weft up"):
        return text.replace("weft up", "weft up --port 0", 1)
    if is_server(text):
        return text.replace("weft serve", f"weft serve --port {port} --grpc-port 0", 1)
    return text
