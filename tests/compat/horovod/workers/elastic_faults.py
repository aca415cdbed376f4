# mypy: ignore-errors
"""Elastic training whose workers kill themselves: once in the middle of a step, once during each kind of operation.

Arguments: a folder, the steps, and where to die, as STEP:WHAT. Each death happens once in the run.
"""

import os
import signal
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
deaths = dict(reversed(each.split(":")) for each in sys.argv[3:])


def die(what, step):
    if deaths.get(what) != str(step) or hvd.rank() != hvd.size() - 1 or hvd.size() == 1:
        return
    try:
        (folder / f"died-{what}").touch(exist_ok=False)
    except FileExistsError:
        return
    print(f"step {step}: dies during {what}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


hvd.init()
torch.manual_seed(hvd.rank())
model = nn.Linear(4, 2)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), model.named_parameters()
)
resets = []
pid = os.getpid()


@hvd.elastic.run
def train(state):
    while state.step < steps:
        step = state.step
        optimizer.zero_grad()
        model(torch.ones(3, 4) * (step + 1)).pow(2).mean().backward()
        die("step", step)
        optimizer.step()
        die("allgather", step)
        hvd.allgather(torch.ones(hvd.rank() + 1), name="g")
        die("broadcast", step)
        hvd.broadcast(torch.ones(1000), 0, name="b")
        state.step += 1
        state.sums.append(float(hvd.allreduce(torch.ones(1), op=hvd.Sum, name="s")))
        die("commit", step)
        state.commit()
        while hvd.size() < int(os.environ["FULL"]):  # until those who were lost are back
            time.sleep(0.01)
            state.commit()
    return state.sums


state = hvd.elastic.TorchState(model, optimizer, step=0, sums=[])
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
sums = train(state)
weights = hvd.allgather_object([p.detach() for p in model.parameters()])
assert all(torch.equal(a, b) for other in weights for a, b in zip(weights[0], other, strict=True))
assert len(sums) == steps, sums
assert int(os.environ["HOROVOD_SIZE"]) == hvd.size()
print(f"done: rank {hvd.rank()} of {hvd.size()}, pid {pid}, sums {sums}, resets {resets}", flush=True)
