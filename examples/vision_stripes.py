"""Make pictures of stripes, across and down, as folders of classes: something to train a classifier on in seconds.

python examples/vision_stripes.py
weft vision train --data stripes --model small --epochs 8 --out stripes-model
weft vision predict stripes-model stripes/down/0.png
"""

from pathlib import Path

import cv2
import numpy as np

generator = np.random.default_rng(0)
for name, axis in (("across", 0), ("down", 1)):
    folder = Path("stripes") / name
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(30):
        width = generator.integers(2, 5)
        stripes = (np.indices((32, 40))[axis] // width % 2)[:, :, None]
        one, other = generator.integers(0, 256, (2, 3))
        picture = np.where(stripes, one, (other + 128) % 256) + generator.normal(0, 8, (32, 40, 3))
        cv2.imwrite(str(folder / f"{number}.png"), np.clip(picture, 0, 255).astype(np.uint8))
print("60 pictures of 2 classes in stripes/")
