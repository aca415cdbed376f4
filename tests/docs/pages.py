"""What the pages of the documentation take for granted: the reader's own files, and names that snippets use."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.docs.snippets import ROOT

# Commands that no test of the pages runs, and why not.
NOT_RUN = {
    "make run": "it makes the environment that the tests run in; CI calls make itself",
    "python benchmarks/collectives.py ": "five minutes; --list of the same script is run",
    "python benchmarks/collectives.py --only": "a minute of measuring; --list of the same script is run",
    "python benchmarks/device.py": "needs an accelerator",
    "horovodrun": "tests/compat/horovod/test_horovodrun.py runs the command",
    "weft run --elastic 1:2 examples/horovod": "tests/compat/horovod/test_horovod_examples.py runs it",
    "weft run --engine kubernetes --image registry.example.org/team/train:2 --pods 4  --res": "needs a cluster; "
    "tests/launch/engines/kubernetes/test_runs.py has one",
    "weft submit job.yaml": "needs a service and a cluster; tests/launch/engines/kubernetes has both",
    "weft submit --engine kubernetes": "needs a service and a cluster; test_submitted_jobs.py has both",
    "weft kubernetes check": "needs a cluster; tests/launch/engines/kubernetes/test_runs.py has one",
    "weft check --engine kubernetes": "needs a cluster; tests/launch/engines/kubernetes/test_runs.py has one",
    "salloc": "tests/launch/engines/test_slurm.py runs it on a real Slurm",
    "weft hosts add": "needs other machines; tests/jobs/service has a cluster's",
    "weft hosts drain": "needs other machines; tests/cli/jobs/test_up_end_to_end.py drains this one",
    "weft user add carol": "needs such an account; tests/jobs/service/test_system_users.py runs a job as another user",
    "weft user system": "needs such an account; tests/jobs/service/test_system_users.py runs a job as another user",
    "weft scale latest": "needs a run that goes on; tests/elastic/runs/test_elastic_hosts.py scales one",
    "weft pause latest": "needs a run that goes on; tests/elastic/runs/test_full_restart.py pauses one",
    "weft run --adopt": "needs a run without a launcher; tests/elastic/runs/test_adopted_runs.py has some",
    "weft learn compile": "minutes of compiling; tests/learn/tables/test_compiling.py compiles ahead one kernel",
}
# Blocks of Python that are compiled and not run: those of a test's own file, or a part of a longer program.
COMPILED = {
    "how-to/mlflow.md": "needs a service; tests/jobs/doors/test_mlflow_client.py runs MLflow's client on one",
    "why/testing.md": "a test of its own",
    "start/first-run.md": "examples/ten_lines.py, which tests/test_examples.py runs",
    "README.md": "examples/ten_lines.py, which tests/test_examples.py runs",
}

DDP_SCRIPT = """
import torch, weft
world = weft.init()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weft.shutdown()
"""
PLANNED_MODEL = """
from torch import nn

def make():
    return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
"""
HOROVOD_SCRIPT = """
import horovod.torch as hvd, torch
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size()
"""
LOGGING_SCRIPT = """
import weft
for step in range(3):
    weft.log({"loss": 1 / (step + 1), "rate": 0.1}, step=step)
"""
ELASTIC_SCRIPT = """
import torch, weft
from torch.utils.data import TensorDataset
torch.manual_seed(0)
run = weft.elastic.join()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = run.loader(TensorDataset(torch.randn(1437, 4)), batch=64, micro=8)
run.register(model=model, optimizer=optimizer)
for epoch in run.epochs(2):
    for (rows,) in loader:
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
"""


def script(text: str) -> Callable[[Path], None]:
    """Return what writes `train.py`."""
    return lambda folder: void(folder.joinpath("train.py").write_text(text))


def cluster_settings(folder: Path) -> None:
    """Write the settings that the page shows."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    (folder / "cluster.yaml").write_text(page.split("# cluster.yaml\n", 1)[1].split("```", 1)[0])


def void(_: object) -> None:
    """Drop a result."""


def elastic_run(folder: Path) -> None:
    """Leave an elastic run behind, for commands that look into the latest one."""
    script(ELASTIC_SCRIPT)(folder)
    subprocess.run(
        ["weft", "run", "--elastic", "1:2", "train.py"], cwd=folder, check=True, capture_output=True
    )


def tables(folder: Path) -> None:
    """Write small tables, as files and as a fit in YAML."""
    import numpy as np
    import pandas as pd

    random = np.random.default_rng(0)
    (folder / "data").mkdir()
    for name in ("table.parquet", "new.parquet", "data/a.parquet", "data/b.parquet"):
        values = random.standard_normal((300, 3))
        frame = pd.DataFrame(values, columns=["width", "height", "depth"]).astype("float32")
        frame["y"] = (values[:, 0] + 0.3 * random.standard_normal(300) > 0).astype("int64")
        frame.to_parquet(folder / name)
    (folder / "fit.yaml").write_text("table: table.parquet\ntarget: y\nmodel: linear\n")
    fit = ["weft", "learn", "fit", "table.parquet", "--target", "y", "--out", "model.pkl"]
    subprocess.run(fit, cwd=folder, check=True, capture_output=True)


def models(folder: Path) -> None:
    """Make the models that the page on serving names: digits, a and b, birds, a store, and a torch module."""
    for command in (["examples/digits_rows.py"], ["examples/export_digits.py", "--epochs", "1"]):
        subprocess.run(["python", *command], cwd=folder, check=True, capture_output=True)
    for name in ("digits.onnx", "a.onnx", "b.onnx", "efficientnet.onnx"):
        shutil.copy(folder / "digits" / "digits-fp32.onnx", folder / name)
    shutil.copytree(folder / "digits" / "store", folder / "models")
    for alias in ("staging", "candidate"):
        tag = ["weft", "model", "tag", "digits@1", alias, "--store", "models"]
        subprocess.run(tag, cwd=folder, check=True, capture_output=True)
    # In a process of its own: cv2 sets a variable of the process that imports it.
    jpeg = ["python", "-c", "import cv2; cv2.imwrite('gull.jpg', cv2.imread('seven.png'))"]
    subprocess.run(jpeg, cwd=folder, check=True)
    (folder / "mine.py").write_text("import torch\n\ndef make_model():\n    return torch.nn.Linear(4, 2)\n")
    names = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def compass(folder: Path) -> None:
    """Write a file for the store to keep."""
    from tests.serve.small_models import write_scaled

    from weft.serve import Card

    write_scaled(folder / "compass.onnx", card=Card(name="compass", labels=("north", "east", "south")))


def token(folder: Path) -> None:
    """Write a secret for a job."""
    (folder / "token.txt").write_text("hf_123\n")


def planned_model(folder: Path) -> None:
    """Write a script and a model to plan for."""
    script(DDP_SCRIPT)(folder)
    (folder / "nets.py").write_text(PLANNED_MODEL)


# What is there before the first command of a page; by no name, before those that hosts are asked.
def _pictures(folder: Path) -> None:
    """Make class folders of pictures and a film."""
    from testing.vision.made_films import film_bytes
    from testing.vision.made_pictures import picture_file

    for seed in range(12):
        picture_file(folder / "pictures" / ("rose" if seed % 2 else "tulip"), f"{seed}.jpg", seed=seed)
    (folder / "drive.mp4").write_bytes(film_bytes())


FILES: dict[str, Callable[[Path], None]] = {
    "how-to/vision-data.md": _pictures,
    "": planned_model,
    "how-to/plan.md": planned_model,
    "how-to/jobs.md": token,
    "how-to/checkpoints.md": script(ELASTIC_SCRIPT),
    "how-to/elastic.md": script(ELASTIC_SCRIPT),
    "how-to/horovod.md": script(HOROVOD_SCRIPT),
    "how-to/kubernetes.md": cluster_settings,
    "how-to/learn.md": tables,
    "how-to/metrics.md": script(LOGGING_SCRIPT),
    "how-to/serve.md": models,
    "how-to/watching.md": script(DDP_SCRIPT),
    "reference/collectives.md": script(DDP_SCRIPT),
    "reference/engines.md": script(DDP_SCRIPT),
    "reference/ledger-and-timeline.md": elastic_run,
    "reference/model-store.md": compass,
    "reference/modes.md": script(DDP_SCRIPT),
    "reference/running.md": script(DDP_SCRIPT),
}

# What is known before the first block of Python of a page; a text that is replaced makes it run where there is no GPU.
NAMES = {
    "how-to/checkpoints.md": (
        "import torch, torch.distributed.checkpoint; model = torch.nn.Linear(4, 1)\n"
        "import pathlib; newest = sorted(pathlib.Path('saved').glob('step-*'))[-1]"
    ),
    "how-to/elastic.md": (
        "import json, os, pathlib; run_dir = pathlib.Path('running'); (run_dir / 'elastic').mkdir(parents=True)\n"
        "control = {'launcher': os.getpid(), 'hosts': []}\n"
        "(run_dir / 'elastic' / 'control.json').write_text(json.dumps(control))"
    ),
    "how-to/export.md": (
        "import torch; from torch import nn\n"
        "model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))\n"
        "samples = torch.randn(6, 3, 224, 224); labels = model.eval()(samples).argmax(1)"
    ),
    "how-to/keras.md": "import os; os.environ['KERAS_BACKEND'] = 'torch'",
    "how-to/learn.md": (
        "import numpy as np, onnx, weft, weft.learn, torch\n"
        "random = np.random.default_rng(0); X = random.standard_normal((400, 3)).astype('float32')\n"
        "y = (X[:, 0] > 0).astype(int); X_new = X[:5]\n"
        "import pyarrow; frame = pyarrow.table({'a': X[:, 0], 'b': X[:, 1], 'w': y + 1.0, 'y': y})\n"
        "spark_frame = frame  # tests/learn/frames/test_spark.py has real ones\n"
        "torch_or_cupy_array_on_the_card = X; X_of_this_worker, y_of_this_worker = X, y\n"
        "from weft.learn import GradientBoostingClassifier, LogisticRegression, Ridge"
    ),
    "how-to/lms.md": (
        "import torch; from types import SimpleNamespace; from functools import partial; from weft import lms\n"
        "from weft.lms.device.simulated import SimulatedTransfer\n"
        "net = torch.nn.Linear(8, 8); batch = torch.randn(4, 8); transfer = SimulatedTransfer(limit=10**9)\n"
        "transfer.adopt(*net.parameters(), batch)\n"
        "model = lambda rows: SimpleNamespace(loss=net(rows).square().mean())\n"
        "lms.fit = partial(lms.fit, transfer=transfer)"
    ),
    "how-to/serve.md": "import numpy as np; rows = np.load('rows.npz')['input'][:2]",
    "reference/collectives.md": (
        "import torch, torch.distributed as dist, weft\n"
        "import os; os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
        "store, rank, survivors, tensor = dist.HashStore(), 0, 1, torch.ones(4)\n"
        "original = torch.distributed.init_process_group\n"
        "torch.distributed.init_process_group = lambda *a, **k: original(*a, **{'store': dist.HashStore(), 'rank': 0, "
        "'world_size': 1, **k})"
    ),
    "reference/modes.md": (
        "import numpy as np, torch, weft; weft.init()\n"
        "array = np.ones(4, dtype='float32'); grads = [array, array]\n"
        "ddp = lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))\n"
        "model = type('Either', (), {'register_comm_hook': lambda _, *hook: ddp().register_comm_hook(*hook)})()"
    ),
    "reference/model-store.md": "",
    "reference/running.md": "",
}
REPLACED = {
    "how-to/learn.md": {'device="cuda"': 'device="cpu:torch"'},
    "how-to/checkpoints.md": {'"saved/step-00000120"': "newest"},
    "how-to/checks.md": {'"a,b,c"': '"localhost"'},
    "reference/model-store.md": {'"/srv/models"': '"models"'},
    "reference/modes.md": {"splits=[1, 3]": "splits=[4]"},
    "reference/running.md": {'parse_hosts("a:4,b:4")': 'parse_hosts("localhost:2")'},
}
LINKS = ("benchmarks", "examples")


def prepare(page: str, folder: Path) -> None:
    """Make a folder look like the reader's when the page begins."""
    for name in LINKS:
        (folder / name).symlink_to(ROOT / name)
    if page in FILES:
        FILES[page](folder)
