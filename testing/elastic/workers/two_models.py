"""Two models with an optimizer each, as in a GAN; a worker dies between the two steps of one turn."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal

import torch
from torch import nn
from torch.utils.data import TensorDataset
from uncompiled import without_compiler  # type: ignore[import-not-found]

from weft import elastic

parser = argparse.ArgumentParser()
parser.add_argument("--kill", metavar="WORKER:STEP", required=True)
name, _, step = parser.parse_args().kill.rpartition(":")
torch.set_num_threads(1)
without_compiler()

run = elastic.join()
torch.manual_seed(0)
maker, judge = nn.Linear(4, 4), nn.Linear(4, 1)
data = TensorDataset(torch.randn(64, 4))
of_maker = torch.optim.Adam(maker.parameters(), lr=0.01)
of_judge = torch.optim.Adam(judge.parameters(), lr=0.01)
loader = run.loader(data, batch=16)
run.register(maker=maker, judge=judge, of_maker=of_maker, of_judge=of_judge)
for _ in run.epochs(4):
    for (real,) in loader:
        noise = torch.randn_like(real)
        of_judge.zero_grad()
        (judge(maker(noise).detach()).mean() - judge(real).mean()).backward()
        of_judge.step()
        if run.name == name and run.applied and run.committed == int(step):
            os.kill(os.getpid(), signal.SIGKILL)
        of_maker.zero_grad()
        (-judge(maker(noise)).mean()).backward()
        of_maker.step()
values = b"".join(
    value.detach().numpy().tobytes() for model in (maker, judge) for value in model.state_dict().values()
)
steps = int(of_judge.state_dict()["state"][0]["step"])
digest = hashlib.sha256(values).hexdigest()[:12]
print(json.dumps({"committed": run.committed, "steps": steps, "digest": digest}), flush=True)
