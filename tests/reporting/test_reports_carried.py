"""What a worker logs on another host: through the pipe of its agent, or through marks in its output."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from weft.launch.agent.protocol import StartWorkers, WorkerExited, WorkerPoints, WorkersDone, WorkerTask
from weft.launch.agent.wire import text_to_bytes
from weft.launch.control.agents import AgentCommand, AgentPool
from weft.launch.control.console import Console
from weft.launch.engines.local import agent_argv, explain_agent
from weft.launch.engines.marks import Logged, MarkFinder
from weft.reporting.channels import MarkChannel

SCRIPT = """
import os, weft
for step in range(3000):
    weft.log({"loss": 0.5, "rate": 0.1}, step=step)
if os.fork() == 0:
    weft.log({"loss": 7.0}, step=9999)
else:
    os.wait()
"""


def test_an_agent_passes_on_every_line_of_its_workers(tmp_path: Path) -> None:
    with AgentPool([AgentCommand("far", agent_argv(), remote=True)], explain=explain_agent) as crew:
        tasks = tuple(
            WorkerTask(rank, (sys.executable, "-c", SCRIPT), {"RANK": str(rank)}) for rank in (0, 1)
        )
        crew.tell(StartWorkers(0, str(tmp_path), {"WEFT_METRICS": "file:/of/an/outer/run"}, tasks))
        console = Console(2, logs=tmp_path)
        codes = {}
        while True:
            _, event = crew.hear(60)
            if isinstance(event, WorkerPoints):
                console.keep_points(event.rank, text_to_bytes(event.text))
            elif isinstance(event, WorkerExited):
                codes[event.rank] = event.code
            elif isinstance(event, WorkersDone):
                break
        console.close()
    assert codes == {0: 0, 1: 0}
    for rank in (0, 1):
        kept = (tmp_path / "metrics" / f"rank-{rank}.jsonl").read_text().splitlines()
        lines = [json.loads(line) for line in kept]
        assert sorted(line[1] for line in lines) == [*range(3000), 9999]
        assert {tuple(line[2]) for line in lines} == {("loss", "rate"), ("loss",)}


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_marks_are_taken_out_of_the_output(size: int) -> None:
    inside, outside = os.pipe()
    data = b"".join(b'[%d,%d,{"loss":0.5}]\n' % (step, step) for step in range(300 if size == 1 else 1000))
    channel, left = MarkChannel(3, outside), data
    while left:
        os.write(outside, b"epoch 1\r")
        left = left[channel.write(left) :]
    os.write(outside, b"the end")
    os.close(outside)
    text = b"".join(iter(lambda: os.read(inside, 1 << 16), b"")).decode()
    os.close(inside)
    finder = MarkFinder()
    items = [item for place in range(0, len(text), size) for item in finder.feed(text[place : place + size])]
    output = "".join(item for item in items if isinstance(item, str)) + finder.finish()
    assert "".join(item.text for item in items if isinstance(item, Logged)).encode() == data
    assert output.replace("epoch 1\r", "") == "the end"
