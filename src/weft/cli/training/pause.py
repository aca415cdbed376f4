"""`weft pause`: the end of an elastic run at a checkpoint, from which it goes on later."""

from __future__ import annotations

import click


@click.command("pause")
@click.argument("run")
def command(run: str) -> None:
    """Save the next step of an elastic run, and end it. RUN is its run directory, or `latest`.

    The run must have been started with --checkpoint. Started again with the same one, it goes on from there.
    """
    from weft.elastic.launcher.scale import pause
    from weft.launch.control.rundir import find_run

    pause(find_run(run))
