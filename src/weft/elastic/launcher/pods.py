"""Elastic runs in pods: the first pod launches, and pods that come and go are hosts that are wanted and not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft.elastic.config import ElasticConfig
from weft.launch.config import LaunchConfig
from weft.launch.control.outcome import Outcome
from weft.launch.engines.pods.engine import in_pods, with_pods
from weft.launch.engines.pods.members import members


def run_in_pods(
    config: LaunchConfig, elastic: ElasticConfig, launch: Callable[[LaunchConfig, ElasticConfig], Outcome]
) -> Outcome:
    """Take this pod's part in an elastic run: that of the launcher by `launch`, or that of another pod."""

    def lead(config: LaunchConfig) -> Outcome:
        per_pod = workers_per_pod(config, elastic, members().place.count)
        config = replace(config, workers=None, per_host=per_pod)
        config = with_pods(config, -(-elastic.least // per_pod), elastic.start_within_s)
        return launch(config, replace(elastic, hostfile=members().hostfile))

    return in_pods(config, lead, elastic=True)


def workers_per_pod(config: LaunchConfig, elastic: ElasticConfig, pods: int) -> int:
    """Return how many workers each pod has: as was said, or so many that all pods have the most."""
    if isinstance(config.per_host, int):
        return config.per_host
    return -(-(config.workers or elastic.most) // pods)
