"""Runs a script as it is written, and prints what its model has become."""

from __future__ import annotations

import hashlib
import json
import runpy
import sys

import torch

torch.set_num_threads(1)
script = runpy.run_path(sys.argv[1], run_name="__main__")
values = b"".join(value.detach().numpy().tobytes() for value in script["model"].state_dict().values())
digest = hashlib.sha256(values).hexdigest()[:12]
print(json.dumps({"committed": script["run"].committed, "digest": digest}), flush=True)
