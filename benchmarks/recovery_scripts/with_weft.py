"""The same step under `weft run --elastic`.

weft run --elastic 2:3 -n 3 benchmarks/recovery_scripts/with_weft.py
"""

from __future__ import annotations

import sys
from pathlib import Path

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
    run = elastic.join()
    # Host and slot, so that one who takes a dead worker's place has its name.
    record = Record(run.name.rpartition(".")[0].replace("/", "-"))
    model = network(asked.size_mib)
    optimizer = make_optimizer(model)
    loader = run.loader(Numbers(asked.samples), batch=asked.batch * asked.workers)
    run.register(model=model, optimizer=optimizer)
    step, consumed = 0, set[int]()
    for _ in run.epochs(1):
        for rows, numbers in loader:
            if step != run.committed:
                step, consumed = run.committed, set()
            consumed.update(numbers.tolist())
            optimizer.zero_grad()
            loss_of(model, rows, asked.step_ms).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if run.applied:  # it commits as soon as this turn of the loop ends
                record.commit(step + 1, sorted(consumed))


if __name__ == "__main__":
    main()
