"""The order in which an agent tells what its workers print and how they end."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, since an agent reaps every child of its process.
PROGRAM = """
import os, sys
from weft.launch.agent.agent import Agent
from weft.launch.agent.protocol import StartWorkers, WorkerTask

agent, sent = Agent(lost_after_s=None), []
agent._send = sent.append
worker = WorkerTask(0, (sys.executable, "-c", "raise SystemExit('last words')"))
agent._carry_out(StartWorkers(0, os.getcwd(), {}, (worker,)))
(pid,) = agent._current.workers
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it has printed and ended, and nobody has looked
agent._collect()
print([type(event).__name__ for event in sent if type(event).__name__ != "AgentBeat"])
"""


def test_the_last_words_of_a_worker_are_told_before_its_end() -> None:
    """Or the launcher would tell the others to end, and learn of the exception that ended the first one after that."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == str(["WorkersStarted", "WorkerOutput", "WorkerExited", "WorkersDone"])
