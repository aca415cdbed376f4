"""The start of an elastic run: from this process on hosts, or as one of the pods that carry it out together."""

from __future__ import annotations

from contextlib import closing
from typing import BinaryIO

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.launcher import ElasticLauncher
from weft.elastic.launcher.underlying import underlying_launch
from weft.launch.config import LaunchConfig
from weft.launch.control.outcome import Outcome
from weft.launch.engines.engine import choose_engine


def run_elastic(config: LaunchConfig, elastic: ElasticConfig, *, out: BinaryIO) -> Outcome:
    """Run the program on the hosts that are there; return when the run is finished, or has failed."""
    if choose_engine(config) == "pods":
        from weft.elastic.launcher.pods.run import run_in_pods

        return run_in_pods(config, elastic, out=out)
    config = underlying_launch(config, elastic)
    with closing(ElasticLauncher(config, elastic, out)) as launcher:
        return launcher.run()
