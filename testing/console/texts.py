"""Texts of the made-up jobs: logs, code, files, specifications, events."""

from __future__ import annotations

import re
from typing import Any

from testing.console.world import MINUTE_MS, World, job_hosts

TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 88, in <module>
    main()
  File "train.py", line 61, in main
    logits = model(images)
  File "model.py", line 24, in forward
    return self.head(features.flatten(1))
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)"""

CODE = {
    "train.py": (
        "import torch\nimport weft\n\nfrom model import Net\n\n\ndef main() -> None:\n    world = weft.init()\n"
        "    model = torch.nn.parallel.DistributedDataParallel(Net())\n"
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)\n"
        "    for step, (images, labels) in enumerate(loader(world)):\n"
        "        loss = torch.nn.functional.cross_entropy(model(images), labels)\n"
        "        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n"
        '        weft.log(step=step, loss=loss)\n\n\nif __name__ == "__main__":\n    main()\n'
    ),
    "model.py": "from torch import nn\n\n\nclass Net(nn.Sequential):\n    ...\n",
    "configs/base.yaml": "epochs: 20\nbatch: 256\n",
}
DIFF = """--- a/train.py
+++ b/train.py
@@ -8,7 +8,8 @@ def main() -> None:
     world = weft.init()
     model = torch.nn.parallel.DistributedDataParallel(Net())
-    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
+    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
+    schedule = cosine(optimizer, warm_up=1000)
     for step, (images, labels) in enumerate(loader(world)):
"""
CSV = "step,loss,accuracy\n" + "".join(
    f"{n * 500},{2.4 / (n + 1):.4f},{1 - 0.9 / (n + 1):.4f}\n" for n in range(40)
)


def spec_of(job: dict[str, Any]) -> dict[str, Any]:
    low, high = job["min_workers"], job["max_workers"]
    return {
        "run": f"train.py --config configs/base.yaml --lr {0.0001 * (job['id'] % 9 + 1):.4f} --seed {job['id']}",
        "name": job["name"],
        "project": job["project"],
        "workers": low if low == high else f"{low}:{high}",
        "resources": {"gpus": 1, "cpus": 4, "memory": "16GiB"},
        "data": {"images": "dataset:imagenet@3"},
        "queue": {"name": job["queue"], "priority": job["priority"], "max_time": "4h"},
        "retry": {"max": 2},
        "tags": job["tags"],
    }


def params_of(job: dict[str, Any]) -> dict[str, str]:
    number = job["id"]
    return {
        "learning_rate": f"{0.0001 * (number % 9 + 1):.4f}",
        "batch": str(64 * 2 ** (number % 3)),
        "optimizer": ("adamw", "sgd", "lamb")[number % 3],
        "weight_decay": f"{0.01 * (number % 5):.2f}",
        "epochs": "20",
    }


def log_lines(world: World, job_id: int) -> list[tuple[int, int, str]]:
    """Return (rank, number, text) of all lines in the order in which they were written."""
    job = world.jobs[job_id]
    if job["started_ms"] is None:
        return []
    ranks = max(1, job["workers"] or job["min_workers"])
    lines = [(-1, 1, f"weft run: {ranks} workers on {', '.join(s.host for s in job_hosts(job)) or 'gx01'}")]
    lines += [(-1, 2, "weft run: backend weft, NCCL in a host, rings between hosts")]
    for step in range(0, max(world.steps[job_id], 60), 60):
        for rank in range(ranks):
            number = step // 60 + 1
            loss = 2.4 / (1 + step / 900) + 0.01 * rank
            text = f"step {step:>6}  loss={loss:.4f}  lr={1e-3:.1e}  {2100 - 7 * rank} samples/s"
            if step and step % 1200 == 0 and rank == 0:
                text = f"saved checkpoints/step-{step}.pt in 0.84 s"
            if step % 4200 == 60 and rank == ranks - 1:
                text = "UserWarning: the loader waited 0.31 s for data; raise num_workers above 4"
            lines.append((rank, number, text))
    if job["state"] == "failed":
        failed = ranks - 1
        first = max((number for rank, number, _ in lines if rank == failed), default=0)
        lines += [(failed, first + n, text) for n, text in enumerate(TRACEBACK.split("\n"), 1)]
        lines.append((-1, 3, f"weft run: rank {failed} ended with 1; the others were stopped"))
    return lines


def matching(lines: list[tuple[int, int, str]], grep: str | None) -> list[tuple[int, int, str]]:
    pattern = re.compile(grep or "")
    return [line for line in lines if pattern.search(line[2])]


def events_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a job, oldest first."""
    begin: int = job["created_ms"]
    events: list[dict[str, Any]] = []

    def note(time_ms: int, kind: str, **data: Any) -> None:
        events.append(
            {"id": len(events) + 1, "time_ms": time_ms, "kind": kind, "data": {"job": job["id"], **data}}
        )

    note(begin, "submitted", user=job["user"])
    start = job["started_ms"]
    if start is None:
        return events
    note(start - 2100, "state", state="staging", before="queued")
    note(start - 600, "state", state="starting", before="staging")
    note(start, "attempt", number=1, hosts=[{"host": "gx01", "workers": 2}])
    note(start + 800, "state", state="running", before="starting")
    if job["max_workers"] > job["min_workers"]:
        note(start + 12 * MINUTE_MS, "resized", before=job["min_workers"], workers=job["max_workers"])
        note(start + 31 * MINUTE_MS, "recovery", view=3, cause="host gx02 was lost", pause_s=1.84)
        note(
            start + 44 * MINUTE_MS,
            "resized",
            before=job["max_workers"],
            workers=job["min_workers"],
            why="job 17 is urgent",
        )
    if job["id"] % 3 == 0:
        note(
            start + 20 * MINUTE_MS,
            "finding",
            rule="straggler",
            text="rank 3 takes 1.6 times as long as the others",
        )
    if job["ended_ms"]:
        note(job["ended_ms"], "state", state=job["state"], before="running", message=job["message"])
    return events


def timeline_of(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of membership of an elastic run."""
    if job["max_workers"] == job["min_workers"] or job["started_ms"] is None:
        return []
    start, low = job["started_ms"] / 1000, job["min_workers"]
    one = [f"gx01/{n}" for n in range(low)]
    more = [*one, *(f"gx02/{n}" for n in range(low))]
    rows = [
        ("start", "the run began", 0.0, [], one, 2.1),
        ("scale", "weft scale", 720.0, one, more, 0.9),
        ("host", "host gx02 was lost", 1860.0, more, one, 1.84),
        ("join", "gx02 is back", 2100.0, one, more, 0.7),
    ]
    return [
        {
            "view": view, "kind": kind, "cause": cause, "who": [], "detected_t": start + at, "agreed_s": took * 0.2,
            "grouped_s": took * 0.5, "healed_s": took * 0.8, "healed_bytes": 102_000_000, "stepped_s": took,
            "step": int(at / 0.42), "before": before, "after": after, "pause_s": took * 0.9, "total_s": took,
            "joined": [w for w in after if w not in before], "left": [w for w in before if w not in after],
        }
        for view, (kind, cause, at, before, after, took) in enumerate(rows, 1)
    ]  # fmt: skip
