"""A table of orders to a model without code: which orders come late, why, and a graph that takes raw rows.

python examples/auto_orders.py orders.csv
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

import weft.auto

random = np.random.default_rng(0)
rows = 400
carrier = random.choice(["Adler", "Brief", "Circus"], rows)
weight_kg = random.lognormal(0, 1, rows).round(2)
sent = np.datetime64("2025-01-01", "s") + random.integers(0, 600 * 86400, rows)
note = random.choice(["leave at the door", "call before you come", "fragile, two persons needed"], rows)
december = sent.astype("datetime64[M]").astype(int) % 12 == 11
hurdle = 1.5 * (carrier == "Circus") + 0.5 * np.log(weight_kg) + 3 * december + 1.5 * (note > "e") - 1
late = np.where(hurdle + random.logistic(size=rows) > 0, "late", "in time")
columns = {"order": np.arange(rows), "carrier": carrier, "weight_kg": weight_kg, "sent": sent, "note": note}
orders = pa.table({**columns, "arrival": late})

path = Path(sys.argv[1] if len(sys.argv) > 1 else "orders.csv")
pa.csv.write_csv(orders, path)

model = weft.auto.fit(orders, "arrival", minutes=1, trials=2, models=["linear", "boosting"])
print(model.leaderboard)
for finding in model.findings:
    print("warning:", finding.sentence)
print(f"log-loss {model.score:.3f} on held-out rows; it goes by", model.importance[0].name)

graph = weft.auto.to_onnx(model)
path.with_suffix(".onnx").write_bytes(graph.SerializeToString())
print("first orders:", *model.predict(orders.slice(0, 5)))
