"""The control file and the traces of an elastic run, which its pods keep for a first pod that replaces another one.

The control file is sent to other pods as it changes. Ledgers and events are written by the agent of each pod, and
fetched by the new first pod, whose own begin only with its workers.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import threading
from contextlib import suppress
from pathlib import Path

from weft.elastic.history.lines import LEDGER, trace_file
from weft.elastic.launcher.control import CONTROL_FILE, FOLDER, SECRET_FILE, read_control
from weft.errors import ConnectError, UsageError
from weft.files import write_whole
from weft.launch.config import LaunchConfig
from weft.launch.engines.pods.engine import PodHosts
from weft.launch.engines.pods.members import PodMembers

LOOK_S = 0.25
FETCH_S = 30.0  # for a pod to send its traces
SOURCES = 3  # pods whose traces are fetched: any that took part has every step of its time
_TRACE = re.compile(r"[\w.@-]+\.(ledger|events)\.jsonl")


class RunKeeper:
    """Has the other pods keep the control file of the run, as it changes."""

    def __init__(self, run_dir: Path | None, there: PodMembers) -> None:
        self._run_dir, self._there = run_dir, there
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="weft-keeper", daemon=True)
        if run_dir is not None:
            self._thread.start()

    def _repeat(self) -> None:
        assert self._run_dir is not None
        kept, file = "", self._run_dir / FOLDER / CONTROL_FILE
        while not self._over.wait(LOOK_S):
            try:
                control = file.read_text()
                if control != kept:
                    secret = (self._run_dir / FOLDER / SECRET_FILE).read_text()
                    self._there.keep(read_control(self._run_dir).run, control, secret)
                    kept = control
            except (OSError, UsageError):
                continue  # it is not there yet

    def close(self) -> None:
        """Look no more."""
        self._over.set()


class TraceCollector:
    """Fetches the traces of pods that went on while there was no first pod, once this pod has its own."""

    def __init__(self, run_dir: Path, config: LaunchConfig, there: PodMembers) -> None:
        self._run_dir, self._there = run_dir, there
        self._hosts = PodHosts(config)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._await_own, name="weft-traces", daemon=True)
        self._thread.start()

    def _await_own(self) -> None:
        """Fetch at once, and again when the workers of this pod step: from then on the traces here are whole."""
        own = self._there.place.name
        self._fetch_all()
        while not self._over.wait(LOOK_S):
            with suppress(OSError):
                if trace_file(self._run_dir, own, LEDGER).read_bytes().count(b"\n") > 1:
                    break
        self._fetch_all()

    def close(self) -> None:
        """Fetch the traces that are missing, and end."""
        self._over.set()
        self._thread.join()

    def _fetch_all(self) -> None:
        own = self._there.place.name
        for name in [name for name in self._there.names if name != own][:SOURCES]:
            with suppress(ConnectError, subprocess.SubprocessError, OSError, tarfile.TarError):
                argv = (
                    self._hosts.python,
                    "-P",
                    "-m",
                    "weft.elastic.launcher.pods.keeping",
                    str(self._run_dir),
                )
                done = subprocess.run(
                    self._hosts.start_on(name, argv),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=FETCH_S,
                    check=True,
                )
                unpack_traces(done.stdout, self._run_dir)


def pack_traces(run_dir: Path) -> bytes:
    """Return the traces of this pod as an archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted((run_dir / FOLDER).glob("*.jsonl")):
            if _TRACE.fullmatch(path.name):
                archive.add(path, path.name)
    return packed.getvalue()


def unpack_traces(packed: bytes, run_dir: Path) -> None:
    """Put the traces of another pod beside those of this one."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for entry in archive:
            file = archive.extractfile(entry) if _TRACE.fullmatch(entry.name) and entry.isfile() else None
            if file is not None:
                write_whole(run_dir / FOLDER / entry.name, file.read())


if __name__ == "__main__":
    sys.stdout.buffer.write(pack_traces(Path(sys.argv[1])))
