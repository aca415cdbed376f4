"""A model of flowers: fitted, exported, served and asked, in one script.

    python examples/serve.py

What `weft learn fit`, `weft export`, `weft serve` and `weft client` do from the command line.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

from weft.learn import LogisticRegression
from weft.serve.client import Client
from weft.serve.export import export

WEFT = str(Path(sys.executable).with_name("weft"))


def main() -> None:
    flowers = load_iris()
    rows = flowers.data.astype(np.float32)
    model = LogisticRegression().fit(rows, flowers.target_names[flowers.target])
    print(f"fitted: knows {model.score(rows, flowers.target_names[flowers.target]):.0%} of the flowers")
    with tempfile.TemporaryDirectory() as folder:
        export(model, rows, Path(folder) / "iris.onnx")
        command = [WEFT, "serve", f"{folder}/iris.onnx", "--port", "0", "--no-grpc"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            ready = next(line for line in server.stdout if line.startswith("listening on"))
            url = ready.split()[2]  # listening on URL (http)
            with Client(url) as client:
                told = client.metadata("iris")
                (given,) = told["inputs"]
                answer = client.infer("iris", {given["name"]: rows[[0, 75, 149]]})
            for name, values in answer.items():
                print(f"{name}: {values.tolist()}")
            server.terminate()
        print(f"served, and ended with {server.returncode}")


if __name__ == "__main__":
    main()
