"""The kubernetes engine: a run as the pods of a cluster, applied and followed from here.

The pods carry out the run themselves, by the engine `pods`: the first one is its launcher. Whoever applied the objects
only watches, so that a run outlives the connection to the cluster, and the client.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.objects.manifests import ManifestRequest, manifests
from weft.launch.engines.kubernetes.objects.pod_spec import Data
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.objects.snapshot import snapshot
from weft.launch.plan import LaunchPlan
from weft.launch.pod_settings import KubernetesConfig
from weft.launch.sites import HostSite
from weft.secret import new_secret

if TYPE_CHECKING:
    from weft.launch.control.console import Console
    from weft.launch.control.outcome import Outcome


class KubernetesEngine:
    """Workers in pods of a cluster."""

    name = "kubernetes"
    hosts = None
    python = "python"  # of the image

    def __init__(self, config: LaunchConfig) -> None:
        self._config = config
        self._settings = config.kubernetes or KubernetesConfig()

    @cached_property
    def request(self) -> ManifestRequest:
        """The run as it is decided; the secret of its pods is drawn once."""
        code = snapshot(self._config.cwd) if self._settings.code == "snapshot" else None
        return make_request(self._config, door_secret=new_secret(), code=code)

    def objects(self) -> tuple[Data, ...]:
        """Return the objects that `run` applies."""
        return manifests(self.request)

    def close(self) -> None:
        """End nothing: what is applied goes on."""

    def sites(self) -> tuple[HostSite, ...]:
        """Return the pods, of which nothing is known before they run."""
        names = self.request.names
        return tuple(
            HostSite(name=names.host(index), host=None, address=f"{names.host(index)}.{names.name}")
            for index in range(self._settings.pods)
        )

    def port(self) -> int:
        """Return the port that the plan shows; the first pod picks one that is free unless it was named."""
        return self._config.port or 29500

    def commands(self, plan: LaunchPlan) -> tuple[tuple[str, ...], ...]:
        """Return the command of each pod."""
        return (self.request.command,)

    def run(self, plan: LaunchPlan, console: Console, *, run_id: str, run_dir: Path | None) -> Outcome:
        """Apply the objects and follow the run to its end; then nothing of it is left in the cluster."""
        from weft.launch.engines.kubernetes.run import run_on_cluster

        return run_on_cluster(self.request, self.objects(), console, run_dir)
