"""Write rows of the digits data set for `weft export` and `weft client`: rows.npz, labels.txt, seven.png, row.json.

    python examples/digits_rows.py

The rows are the test pictures of `examples/digits.py`, scaled as it scales them.
"""

import json
from pathlib import Path

import cv2
import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
test = np.random.default_rng(0).permutation(len(digits.target))[
    :359
]  # what examples/digits.py does not train on
pictures, classes = digits.images[test], digits.target[test]
rows = (pictures / 16).astype(np.float32)[:, None]  # grey, 0 to 1, as (row, channel, height, width)

np.savez("rows.npz", input=rows, y=classes)
Path("labels.txt").write_text("\n".join(map(str, range(10))) + "\n")
seven = int(np.flatnonzero(classes == 7)[0])
cv2.imwrite("seven.png", np.round(pictures[seven] * 255 / 16).astype(np.uint8))
Path("row.json").write_text(json.dumps(rows[[seven]].tolist()))
print(f"{len(rows)} rows in rows.npz, 10 classes in labels.txt, a seven in seven.png and row.json")
