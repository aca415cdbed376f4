"""The same step under torchft, after the example of its repository (train_ddp.py): one replica group per worker.

    REPLICA=0 TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510 torchrun --standalone recovery_scripts/with_torchft.py

$REPLICA is the number of this replica, $REDUCE_TIMEOUT_S how long a reduction may take (5, as in the example). The
position of its loader is kept on disk after every step, as the example advises.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader
from torchft import (  # type: ignore[import-not-found,unused-ignore]
    DistributedDataParallel,
    DistributedSampler,
    Manager,
    Optimizer,
    ProcessGroupGloo,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recovery_scripts.common import (
    Numbers,
    Record,
    folder,
    loss_of,
    make_optimizer,
    network,
    options,
)


class Position:
    """How many batches of its share this replica has drawn, kept through a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.drawn = int(path.read_text()) if path.exists() else 0

    def advance(self) -> None:
        self.drawn += 1
        new = self.path.with_suffix(".new")
        new.write_text(str(self.drawn))
        new.rename(self.path)


def main() -> None:
    asked = options()
    replica = int(os.environ["REPLICA"])
    record = Record(replica)
    model = network(asked.size_mib)
    plain = make_optimizer(model)

    def state_dict() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": plain.state_dict()}

    def load_state_dict(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=float(os.environ.get("REDUCE_TIMEOUT_S", "5")))),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=f"recovery_{replica}",
        timeout=timedelta(seconds=30),
        hostname="127.0.0.1",
    )
    wrapped = DistributedDataParallel(manager, model)
    optimizer = Optimizer(manager, plain)
    data = Numbers(asked.samples)
    sampler = DistributedSampler(
        data, replica_rank=replica, num_replica_groups=asked.workers, group_rank=0, num_replicas=1
    )
    position = Position(folder() / f"position-{replica}")
    for drawn, (rows, numbers) in enumerate(DataLoader(data, batch_size=asked.batch, sampler=sampler)):
        if drawn < position.drawn:
            continue
        optimizer.zero_grad()
        loss_of(wrapped, rows, asked.step_ms).backward()  # type: ignore[no-untyped-call]
        before = manager.current_step()
        optimizer.step()
        position.advance()
        if manager.current_step() > before:
            # A replica that is being healed takes part with a gradient of zero.
            record.commit(manager.current_step(), numbers.tolist() if manager.is_participating() else [])
        if manager.current_step() >= asked.steps:
            break
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
