"""The same step under `weft run --elastic`.

weft run --elastic 2:3 -n 3 benchmarks/recovery_scripts/with_weft.py
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from weft import elastic

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recovery_scripts.common import (
    Numbers,
    Record,
    loss_of,
    make_optimizer,
    network,
    options,
)


def main() -> None:
    asked = options()
    run: Any = elastic.join()  # type: ignore[attr-defined,unused-ignore]
    record = Record(os.environ.get("RANK", os.getpid()))
    model = network(asked.size_mib)
    optimizer = make_optimizer(model)
    loader = run.loader(Numbers(asked.samples), batch=asked.batch * asked.workers)
    run.register(model=model, optimizer=optimizer)
    committed, consumed = run.committed, []
    for _ in run.epochs(1):
        for rows, numbers in loader:
            optimizer.zero_grad()
            loss_of(model, rows, asked.step_ms).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            consumed += numbers.tolist()
            if run.committed > committed:
                committed = run.committed
                record.commit(committed, consumed)
                consumed = []


if __name__ == "__main__":
    main()
