"""Scaling of training from one virtual host to two, joined by links of 1 Gbit/s: pictures a second of each.

Each host has one worker with one thread, so that two hosts share two cores of the machine as two machines would not
share theirs. The batch of a worker stays the same; the efficiency is the speed of two hosts over twice that of one.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from testing.cluster.cluster import VirtualCluster, missing

ROOT = Path(__file__).resolve().parent.parent.parent
WEFT = str(Path(sys.executable).with_name("weft"))
BATCH, SIDE, STEPS, EPOCHS = 8, 192, 10, 2  # of a worker; pixels; of an epoch
CONFIG = """task: classification
data: {data}
model: {{name: efficientnet-lite0, pretrained: false}}
size: {side}
batch: {batch}
first: false
threads: 1
schedule: {{epochs: {epochs}}}
"""


def speed(cluster: VirtualCluster, folder: Path, hosts: int) -> float:
    """Return the pictures that so many hosts learn from in a second."""
    data, target = folder / f"{hosts}.npz", folder / f"model-{hosts}"
    if not data.exists():
        draw = np.random.default_rng(0)
        pixels = draw.integers(0, 256, (hosts * BATCH * STEPS, SIDE, SIDE, 3), dtype=np.uint8)
        classes = draw.integers(0, 10, len(pixels))
        np.savez(data, train_x=pixels, train_y=classes, test_x=pixels[:8], test_y=classes[:8])
        text = CONFIG.format(data=data, side=SIDE, batch=hosts * BATCH, epochs=EPOCHS)
        (folder / f"{hosts}.yaml").write_text(text)
    names = ",".join(f"h{number + 1}" for number in range(hosts))
    argv = [WEFT, "run", "-H", names, "--per-host", "1", "--skip-checks", "--no-pin"]
    argv += ["--env", "OMP_NUM_THREADS=1", "--env", f"PYTHONPATH={ROOT}"]
    argv += ["-m", "weft.vision.training", str(folder / f"{hosts}.yaml"), str(target)]
    cluster.run(argv, env={"XDG_CACHE_HOME": str(folder / "cache")}, cwd=folder, timeout=600)
    results = json.loads((target / "results.json").read_text())
    return float(results["steps"] * hosts * BATCH / results["training_s"])


def scaling(rounds: int) -> float | None:
    """Print and return the efficiency of two hosts, in turns with one."""
    why = missing()
    if why is not None:
        print(f"virtual hosts must be possible here, got: {why}", file=sys.stderr)
        return None
    found = []
    with tempfile.TemporaryDirectory() as folder, VirtualCluster(2, rate="1gbit") as cluster:
        for _ in range(rounds):
            one, two = (speed(cluster, Path(folder), hosts) for hosts in (1, 2))
            found.append(two / (2 * one))
            print(f"one host {one:.1f}/s, two hosts {two:.1f}/s: {found[-1]:.1%}", flush=True)
    middle = statistics.median(found)
    print(f"efficiency from one host to two at 1 Gbit/s: {middle:.1%} (median of {rounds})")
    return middle
