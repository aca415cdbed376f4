"""A small training for searches: it reports each epoch, saves itself, and goes on where it was."""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

import weft

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--alpha", type=float, default=1e-4)
parser.add_argument("--loss", choices=["log_loss", "hinge"], default="log_loss")
parser.add_argument("--epochs", type=int, default=9)
args = parser.parse_args()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x / 16, y, random_state=0, stratify=y)
model = SGDClassifier(
    loss=args.loss, alpha=args.alpha, learning_rate="constant", eta0=args.lr, random_state=0
)

saved = Path(os.environ.get("WEFT_CHECKPOINT", "checkpoints")) / "model.json"
epoch = 0
if saved.exists():
    state = json.loads(saved.read_text())
    epoch = state["epoch"]
    model.partial_fit(x_train[:10], y_train[:10], classes=np.unique(y))
    model.coef_, model.intercept_ = np.array(state["coef"]), np.array(state["intercept"])

while epoch < args.epochs:
    epoch += 1
    model.partial_fit(x_train, y_train, classes=np.unique(y))
    saved.parent.mkdir(exist_ok=True)
    state = {"epoch": epoch, "coef": model.coef_.tolist(), "intercept": model.intercept_.tolist()}
    saved.write_text(json.dumps(state))
    weft.report(epoch, accuracy=model.score(x_test, y_test))
