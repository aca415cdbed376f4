"""A kubelet of our own: runs the containers of pods as processes with mounts, a name and a process table of their own.

The process of a container is process 1 of its table, as in a container, so signals and orphans behave as they do there.
Each pod has a network of its own with one card (`network.py`), and finds the others by name. There are no images,
and no users but ours.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from testing.kubernetes.network import card_script

Data = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class ContainerLog:
    """The log of one container: lines with the time at which each came."""

    lines: list[tuple[str, bytes]] = field(default_factory=list)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def add(self, line: bytes) -> None:
        """Take in a line. Several may have the same time."""
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        with self.changed:
            self.lines.append((time, line))
            self.changed.notify_all()

    def end(self) -> None:
        """Note that there will be no more."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()


class PodProcess:
    """One pod that runs. `on_end` is called with its exit code, in a thread."""

    def __init__(
        self,
        argv: list[str],
        env: dict[str, str],
        *,
        name: str,
        hosts: Path,
        cwd: Path,
        files: dict[str, dict[str, bytes]],  # by folder
        address: str,
        plug: Callable[[int], None],  # a card into the namespaces of a process
        on_end: Callable[[int], None],
    ) -> None:
        self.log = ContainerLog()
        self._on_end = on_end
        # Its own /tmp, in which its folders are seen, and ours where the project itself lies in /tmp.
        seen = [(cwd, cwd), *([(ROOT, ROOT)] if ROOT.is_relative_to("/tmp") else [])]
        seen += [(_kept_files(hosts.parent, content), Path(folder)) for folder, content in files.items()]
        inside = [
            f"hostname {shlex.quote(name)}",
            f"mount --bind {hosts} /etc/hosts",
            "mount -t tmpfs tmpfs /mnt",
            *card_script(address),
            *(
                f"mkdir /mnt/{number} && mount --bind {shlex.quote(str(folder))} /mnt/{number}"
                for number, (folder, _) in enumerate(seen)
            ),
            "mount -t tmpfs tmpfs /tmp",
            *(
                f"mkdir -p {shlex.quote(str(folder))} && mount --move /mnt/{number} {shlex.quote(str(folder))}"
                for number, (_, folder) in enumerate(seen)
            ),
            "mount -t tmpfs tmpfs /dev/shm",
            f"cd {shlex.quote(str(cwd))}",
            f"exec {shlex.join(argv)} < /dev/null",
        ]
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--ipc", "--pid"]
            + ["--fork", "--kill-child", "--mount-proc", "sh", "-euc", "\n".join(inside)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._await_card(plug)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _await_card(self, plug: Callable[[int], None]) -> None:
        """Put the card in once its network is there; the container starts then."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        with self._holder.stdin as told:
            if (line := self._holder.stdout.readline()) == b"made\n":
                plug(self._holder.pid)
                told.write(b"plugged\n")
            else:
                self.log.add(line.rstrip(b"\n"))

    def _read(self) -> None:
        assert self._holder.stdout is not None
        with self._holder.stdout as lines:
            for line in lines:
                self.log.add(line.rstrip(b"\n"))
        code = self._holder.wait()
        self.log.end()
        self._on_end(code if code >= 0 else 128 - code)

    def signal(self, number: int) -> None:
        """Send a signal to process 1 of the container."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._holder.pid).children():
                child.send_signal(number)

    def kill(self) -> None:
        """End all processes of the pod at once."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self._holder.pid).children()
            if not children:
                self._holder.kill()
        self.signal(signal.SIGKILL)

    def kill_worker(self) -> None:
        """End the workers of the pod at once: the processes with a rank on their host."""
        killed = 0
        for process in psutil.Process(self._holder.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "LOCAL_RANK" in process.environ():
                    process.kill()
                    killed += 1
        assert killed, "no worker was there"

    def freeze(self) -> None:
        """Stop all processes of the pod without a word, as on a node that hangs."""
        with suppress(psutil.NoSuchProcess):
            for process in reversed(psutil.Process(self._holder.pid).children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    process.suspend()

    def close(self) -> None:
        """End the pod and wait for it."""
        self.kill()
        self._holder.kill()
        self._reader.join(60)


def _kept_files(beside: Path, content: dict[str, bytes]) -> Path:
    """Return a new folder with the files that a pod sees of a volume."""
    folder = Path(tempfile.mkdtemp(prefix="volume-", dir=beside))
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def missing_rights() -> str | None:
    """Return why no pod can be run here, if so."""
    trial = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run([*trial, "true"], capture_output=True, text=True, timeout=60, check=False)
    return done.stderr.strip() if done.returncode else None


def variables_of(container: Data, pod: Data, secrets: Callable[[str], dict[str, str]]) -> dict[str, str]:
    """Return the environment of a container as a kubelet would make it, upon this machine's."""
    found: dict[str, str] = {}
    for variable in container.get("env", ()):
        source = variable.get("valueFrom")
        if source is None:
            found[variable["name"]] = expanded(variable.get("value", ""), found)
        elif "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            found[variable["name"]] = secrets(reference["name"])[reference["key"]]
        else:
            path = source["fieldRef"]["fieldPath"]
            if path == "status.podIP":
                found[variable["name"]] = pod["status"]["podIP"]
            else:
                key = path.removeprefix("metadata.annotations['").removesuffix("']")
                found[variable["name"]] = pod["metadata"]["annotations"][key]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **found}


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return text with variables in the place of `$(NAME)`, and `$` of `$$`; what no variable has stays."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def config_maps_of(volume: Data) -> list[str]:
    """Return the ConfigMaps that a volume shows in one folder."""
    if "configMap" in volume:
        return [volume["configMap"]["name"]]
    sources = volume.get("projected", {}).get("sources", ())
    return [source["configMap"]["name"] for source in sources if "configMap" in source]
