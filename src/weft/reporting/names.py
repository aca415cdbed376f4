"""Names that workers, agents and launchers share for what a worker reports; agents load nothing more of this package.

The variable WEFT_METRICS names the channel on which the reports of a worker leave it:

    file:PATH       a file of the run directory, on the launcher's own machine
    pipe:FD,INODE   a pipe to the agent of this host, which passes on what comes
    mark            marks on standard error, where mpirun or srun carry nothing else from another host
"""

from __future__ import annotations

VARIABLE = "WEFT_METRICS"
SLOT_VARIABLE = "WEFT_METRICS_RANK"  # the rank under which a pipe's lines are kept, where RANK may change
STEP_METRIC = "step_s"  # the seconds of a step
FOLDER = "metrics"  # of a run directory
MARK = "\x1eweft: points "  # begins what is a report and not output; \x1f stands for the ends of lines, \x1e ends it


def file_name(rank: int) -> str:
    """Return the name of the file with the metrics of a rank."""
    return f"rank-{rank}.jsonl"


def file_channel(run_dir: str, rank: int) -> str:
    """Return the value of the variable for a worker that writes into the run directory itself."""
    return f"file:{run_dir}/{FOLDER}/{file_name(rank)}"
