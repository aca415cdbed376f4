"""Scripts of Horovod under the real launcher, with torch loaded once: launcher and workers are forks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing.forking.server import ForkServer
from testing.shell import Shell

HERE = Path(__file__).parent
WORKERS = HERE / "workers"
NAMES = str(Path(__file__).parents[3] / "distributions" / "weft-horovod")


class HorovodRuns:
    """Runs scripts that say `import horovod.torch as hvd`."""

    def __init__(self, shell: Shell, forks: ForkServer) -> None:
        self.shell = shell
        self._forks = forks.load("weft.compat.horovod.torch", "msgspec.msgpack", "cloudpickle")

    names = NAMES  # where `horovod` is imported from

    @property
    def interpreter(self) -> str:
        """A Python whose programs are forks."""
        return self._forks.python

    @property
    def folder(self) -> Path:
        return self.shell.folder

    def environment(self, **more: str) -> dict[str, str]:
        return self.shell.environment({"PYTHONPATH": self.names, **more})

    def weft(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self._forks.run(args, env=self.environment(**env), cwd=self.folder, timeout=250)

    def passes(self, *args: str, **env: str) -> str:
        """Run `weft` with these arguments, and return what it printed."""
        done = self.weft(*args, **env)
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
        return done.stdout

    def starts(self, *args: str, **env: str) -> subprocess.Popen[str]:
        """Start `weft`, and go on."""
        self.shell.command = self._forks.weft
        return self.shell.start(*args, PYTHONPATH=self.names, **env)

    def python(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a script with no launcher."""
        return subprocess.run(
            [self._forks.python, *args],
            env=self.environment(**env),
            cwd=self.folder,
            timeout=250,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def horovod_runs(tmp_path: Path, forks: ForkServer) -> Iterator[HorovodRuns]:
    shell = Shell(tmp_path)
    yield HorovodRuns(shell, forks)
    shell.close()
