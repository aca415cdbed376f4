"""A dense logistic fit on an accelerator: how near its passes come to the bandwidth of the memory, and of the link.

    python benchmarks/learn_gpu.py                        50,000,000 x 100 on the card, and streamed from the host
    python benchmarks/learn_gpu.py --rows 5000000         the same, smaller

A pass reads the table once. Beside ours: the same sums by torch, X @ w and X.T @ slope, which read it twice. The
bandwidth of the memory is that of a copy on the card, bytes read and written; that of the link, a copy of pinned
memory.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims

from weft.learn import LogisticRegression
from weft.learn.gpu.fused import can_fuse
from weft.learn.gpu.losses import TensorLoss
from weft.learn.gpu.problem import TensorProblem
from weft.learn.gpu.streaming import Stream
from weft.learn.gpu.tables import CHUNK, StreamedTable, TensorTable
from weft.learn.threads import ThreadTeam

GB = 1e9


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of some runs, after one that warms up."""
    work()
    taken = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def made(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A table on the card, and classes -1 and 1."""
    torch.manual_seed(0)
    X = torch.randn(rows, columns, device="cuda")
    margins = X @ torch.randn(columns, device="cuda") / columns**0.5
    return X, torch.where(margins + torch.randn(rows, device="cuda") > 0, 1.0, -1.0)


def by_torch(X: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    margins = X @ w
    slope = -y * torch.sigmoid(-y * margins)
    return X.T @ slope


def copying(values: torch.Tensor, repeats: int) -> float:
    other = torch.empty_like(values)
    return seconds(lambda: other.copy_(values), repeats)


def on_the_card(X: torch.Tensor, y: torch.Tensor, repeats: int) -> float:
    """Print what a pass takes on the card; return its share of the memory's bandwidth."""
    size = X.numel() * X.element_size()
    bandwidth = size / copying(X[: len(X) // 2], repeats)  # half of it read, half of it written
    problem = TensorProblem(
        TensorTable(X), y, torch.ones_like(y), TensorLoss("logistic"), 1.0, True, ThreadTeam(1, None)
    )
    assert can_fuse(problem.table, problem.loss), "the kernel needs Triton"
    random = np.random.default_rng(0)
    point = random.standard_normal(problem.size) / problem.size
    w = torch.as_tensor(point[:-1], dtype=torch.float32, device="cuda")
    ours = seconds(lambda: problem.value_and_gradient(point), repeats)
    theirs = seconds(lambda: by_torch(X, y, w), repeats)
    print(f"copy on the card   {bandwidth / GB:8.0f} GB/s")
    print(f"a pass of ours     {ours * 1e3:8.2f} ms  {size / ours / GB:6.0f} GB/s")
    print(f"by torch, twice    {theirs * 1e3:8.2f} ms  {theirs / ours:6.2f}x the time")
    print(f"{size / ours / bandwidth:.0%} of the memory's bandwidth a pass; must be 60 %")
    labels = (y > 0).long()
    model = LogisticRegression(tol=1e-5)
    whole = seconds(lambda: model.fit(X, labels), 3)
    print(
        f"the whole fit      {whole * 1e3:8.2f} ms  {len(model.history_)} passes, gap {model.history_[-1].gap:.1e}"
    )
    return size / ours / bandwidth


def streamed(X: torch.Tensor, y: torch.Tensor, repeats: int) -> float:
    """Print what a pass takes from the host; return its share of the link's bandwidth."""
    size = X.numel() * X.element_size()
    host = torch.empty(X.shape, pin_memory=True)
    host.copy_(X)
    one = host[: CHUNK // (X.shape[1] * 4)]
    there = torch.empty_like(one, device="cuda")
    link = one.numel() * 4 / seconds(lambda: there.copy_(one, non_blocking=True), 20)
    stream = Stream(host, torch.device("cuda"), CHUNK)
    problem = TensorProblem(
        StreamedTable(stream), y, torch.ones_like(y), TensorLoss("logistic"), 1.0, True, ThreadTeam(1, None)
    )
    point = np.random.default_rng(0).standard_normal(problem.size) / problem.size
    pass_s = seconds(lambda: problem.value_and_gradient(point), repeats)
    stream.close()
    print(f"copy over the link {link / GB:8.1f} GB/s")
    print(f"a streamed pass    {pass_s * 1e3:8.1f} ms  {size / pass_s / GB:6.1f} GB/s")
    print(f"{size / pass_s / link:.0%} of the link's bandwidth; must be 85 %")
    return size / pass_s / link


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    X, y = made(options.rows, options.columns)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {X.shape[0]:,} x {X.shape[1]} float32")
    measured = {"pass": on_the_card(X, y, options.repeats), "streamed": streamed(X, y, 3)}
    print("\n" + claims.report("learn_gpu", measured), end="")


if __name__ == "__main__":
    main()
