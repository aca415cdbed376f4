"""The launch under an elastic run: which settings of every run it takes, and which it decides itself."""

from __future__ import annotations

from dataclasses import replace

from weft.elastic.config import ElasticConfig
from weft.errors import UsageError
from weft.launch.config import LaunchConfig
from weft.launch.engines.engine import choose_engine


def underlying_launch(config: LaunchConfig, elastic: ElasticConfig) -> LaunchConfig:
    """Return the settings of the launch under an elastic run: the same number of workers on each host."""
    if choose_engine(config) not in ("local", "ssh", "pods"):
        raise UsageError(
            f"--elastic must come with the engine local or ssh, got {choose_engine(config)}; use -H host1,host2"
        )
    for given, flag in ((config.rankfile, "--rankfile"), (config.max_restarts, "--max-restarts")):
        if given:
            raise UsageError(
                f"--elastic decides where and how often workers run, got {flag} as well; drop one"
            )
    if elastic.witness is not None and (not config.host_names or elastic.witness in config.host_names):
        raise UsageError(
            f"--witness must be a machine beside the hosts of the run, got {elastic.witness} with "
            f"{', '.join(config.host_names) or 'no hosts'}; name the hosts with -H and a third machine as witness"
        )
    hosts = max(1, len(config.host_names))
    per_host = config.per_host
    if config.workers is not None:
        per_host = -(-config.workers // hosts)
    elif per_host is None:
        per_host = -(-elastic.most // hosts)
    return replace(config, workers=None, per_host=per_host, allow_uneven=True)
