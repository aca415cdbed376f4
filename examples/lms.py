"""Train a small transformer within a byte budget, and see what was decided.

    python examples/lms.py                # on a CUDA device, with half of what the step would take
    python examples/lms.py --simulate     # anywhere: a simulated device, counted to the byte

The gradients are those of an ordinary step, bit for bit where the kernels are deterministic.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn

from weft import lms


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulate", action="store_true")
    parser.add_argument(
        "--share", type=float, default=0.5, help="the budget, as a part of the step's own peak"
    )
    asked = parser.parse_args()
    torch.manual_seed(0)
    device = "cpu" if asked.simulate else "cuda"
    width, rows = (64, 512) if asked.simulate else (2048, 65536)
    model = nn.Sequential(*(Block(width) for _ in range(8))).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows, width, device=device)

    needed = lms.estimate(model, x)
    limit = int(needed.peak * asked.share)
    print(f"estimate: {needed}")
    transfer: Any = None
    if asked.simulate:
        from weft.lms.device.simulated import SimulatedTransfer

        transfer = SimulatedTransfer(limit=limit)
        transfer.adopt(*model.parameters(), x)

    for step in range(6):
        optimizer.zero_grad(set_to_none=True)
        with lms.fit(limit=limit, transfer=transfer):
            loss = model(x).square().mean()
            loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")
    print(lms.plan().explain())
    stats = lms.stats()
    print(f"peak {stats['peak']} of {stats['limit']} bytes, {stats['over']} steps over the budget")


if __name__ == "__main__":
    main()
