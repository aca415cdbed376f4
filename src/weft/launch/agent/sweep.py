"""`python -m weft.launch.agent.sweep RUN_ID`: end what is left of a run on this host, when its agent no longer can."""

from __future__ import annotations

import sys

from weft.launch.agent.processes import sweep


def marker(run_id: str) -> str:
    """Return what every process of a run carries in its environment."""
    return f"WEFT_RUN_ID={run_id}"


if __name__ == "__main__":
    sweep(marker(sys.argv[1]))
