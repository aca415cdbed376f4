# mypy: ignore-errors
"""Rank 1 dies while the others wait for it; they hear of it, and can tell."""

import os
import signal

import horovod.torch as hvd
import torch
from horovod.common.exceptions import HorovodInternalError

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's, as rank 1 has failed
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for word in ("raised", "later"):
    try:
        hvd.allreduce(torch.ones(1), name=word)
    except HorovodInternalError as error:
        print(f"{word}: {error}", flush=True)
