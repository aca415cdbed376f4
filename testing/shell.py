"""Running `weft` as a user does: the real command, real workers, a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

WEFT = str(Path(sys.executable).with_name("weft"))


@dataclass
class Shell:
    """A folder in which scripts are written and `weft` is called."""

    folder: Path
    command: str = WEFT  # or that of a fork server
    _open: list[subprocess.Popen[str]] = field(default_factory=list)

    def script(self, text: str, name: str = "train.py") -> str:
        (self.folder / name).write_text(text)
        return name

    def weft(self, *args: str, timeout: float = 50, **env: str) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return subprocess.run(
            [self.command, *args],
            cwd=self.folder,
            env=self.environment(env),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *args: str, command: str | None = None, **env: str) -> subprocess.Popen[str]:
        """Start, and go on; ended with the test if it is still there."""
        process = subprocess.Popen(
            [command or self.command, *args],
            cwd=self.folder,
            env=self.environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._open.append(process)
        return process

    def run_dir(self) -> Path:
        """The run directory of the only run so far."""
        (found,) = [path for path in (self.folder / "weft-runs").iterdir() if path.is_dir()]
        return found

    def environment(self, extra: dict[str, str]) -> dict[str, str]:
        # Nothing of the machine the tests run on may leak into a run.
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "XDG_CACHE_HOME": str(self.folder / "cache"), **extra}

    def close(self) -> None:
        for process in self._open:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
