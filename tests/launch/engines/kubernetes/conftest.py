"""A cluster of our own, and a folder in which `weft` is called with its kubeconfig."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from testing.cluster.require import require
from testing.kubernetes.api_server import VirtualKubernetes
from testing.kubernetes.kubelet import missing_rights
from testing.shell import Shell


@dataclass
class ClusterShell:
    """A folder whose script runs on a cluster; the pods see another folder, which is empty."""

    cluster: VirtualKubernetes
    shell: Shell
    settings: Path

    def flags(self, *more: str) -> tuple[str, ...]:
        """Return the words of a command line up to the script."""
        return (
            "run",
            "--engine",
            "kubernetes",
            "--image",
            "none:1",
            "--kubernetes",
            str(self.settings),
            *more,
        )

    def set(self, **settings: object) -> None:
        """Add settings to the file of them."""
        data = yaml.safe_load(self.settings.read_text())
        self.settings.write_text(yaml.safe_dump({**data, **settings}))

    def run(self, *words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        return self.shell.weft(*self.flags(*words), timeout=timeout, **self.env)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start, and go on."""
        return self.shell.start(*self.flags(*words), **self.env)

    def weft(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Call another verb."""
        return self.shell.weft(*words, timeout=240, **self.env)

    @property
    def env(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.cluster.kubeconfig)}


@pytest.fixture
def on_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterShell]:
    """A cluster without pods, and a shell beside it."""
    require(missing_rights())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    for name in ("cluster", "pod", "here"):
        (tmp_path / name).mkdir()
    settings = tmp_path / "cluster.yaml"
    settings.write_text(f"workdir: {tmp_path / 'pod'}\ncode: snapshot\ngrace_s: 10\n")
    with VirtualKubernetes(tmp_path / "cluster") as cluster:
        shell = Shell(tmp_path / "here")
        yield ClusterShell(cluster, shell, settings)
        shell.close()
