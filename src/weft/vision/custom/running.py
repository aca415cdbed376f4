"""Run a custom model's zip in a process of its own: its code is someone's, and must not touch ours.

    train_custom(Path("mine.zip"), version, Path("mine-model"))
    CustomModel(Path("mine-model")).predict(Path("cat.jpg"))

The process sees the zip's files, the data and a workspace; whoever may submit jobs may run such a zip.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from weft.errors import ModelError, UsageError
from weft.vision.formats.archives import unpack
from weft.vision.records import DatasetVersion

MARK = "weft-custom:"  # begins lines of a custom process that are for us
CODE = "code"  # folder of the zip's files in a model folder


def check_custom(data: bytes) -> None:
    """Refuse bytes that are no zip with train.py and deploy.py in one folder; nothing is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [PurePosixPath(name) for name in archive.namelist()]
    except (zipfile.BadZipFile, ValueError) as error:
        raise UsageError(f"a custom model must be a zip, got other bytes: {error}") from None
    folders = {name.parent for name in names if name.name == "train.py"}
    if not any(name.name == "deploy.py" and name.parent in folders for name in names):
        raise UsageError(
            "a custom model must be a zip with train.py and deploy.py in one folder, got one without; see the docs"
        )


def unpack_custom(archive: Path, folder: Path) -> Path:
    """Unpack a zip safely and return the folder that holds its train.py and deploy.py."""
    folder.mkdir(parents=True, exist_ok=True)
    unpack(archive, folder)
    found = sorted(folder.rglob("train.py"), key=lambda path: len(path.parts))
    if not found or not (found[0].parent / "deploy.py").is_file():
        raise UsageError(
            f"{archive} must hold train.py and deploy.py in one folder, got a zip without; see the docs"
        )
    return found[0].parent


def train_custom(
    archive: Path,
    version: DatasetVersion,
    folder: Path,
    *,
    params: Mapping[str, Any] | None = None,
    report: Callable[[Mapping[str, Any]], None] = lambda values: None,
) -> dict[str, Any]:
    """Train a custom model on a version of a data set; its own files and its code go to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    code = unpack_custom(archive, folder / CODE)
    task = {
        "code": str(code),
        "model": str(folder / "model"),
        "params": dict(params or {}),
        "labels": {str(one.path): _label(one) for one in version.pictures if one.category or one.shapes},
    }
    last: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="weft-custom-") as workspace:
        process = _start("train", {**task, "workspace": workspace}, workspace)
        assert process.stdout is not None
        try:
            with process.stdout as lines:
                for line in lines:
                    if line.startswith(MARK):
                        last = json.loads(line[len(MARK) :])
                        report(last)
                    else:
                        sys.stderr.write(line)
        except BaseException:
            process.kill()  # nobody listens to it any more
            process.wait()
            raise
        if process.wait() != 0:
            raise ModelError(f"train.py of {archive.name} must end well, got exit code {process.returncode}")
    results = {
        "task": "custom",
        "metrics": {name: one for name, one in last.items() if name.startswith("val_")},
    }
    (folder / "custom.json").write_text(
        json.dumps(
            {
                **results,
                "code": str(code.relative_to(folder)),
                "classes": [*version.categories, *version.labels],
            }
        )
    )
    return results


class CustomModel:
    """A custom model's `deploy.py`, running; a context."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / "custom.json").read_text())
        self._workspace = tempfile.TemporaryDirectory(prefix="weft-custom-")
        task = {
            "code": str(folder / about["code"]),
            "model": str(folder / "model"),
            "labels": about["classes"],
            "workspace": self._workspace.name,
        }
        self._process = _start("deploy", task, self._workspace.name, ask=True)
        self._answer()

    def predict(self, picture: Path, params: Mapping[str, Any] | None = None) -> Any:
        """Return what `onInference` answers for a picture."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"picture": str(picture), "params": dict(params or {})}) + "\n")
        self._process.stdin.flush()
        return self._answer()["answer"]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                found: dict[str, Any] = json.loads(line[len(MARK) :])
                if "error" in found:
                    raise ModelError(f"deploy.py must answer, got {found['error']}")
                return found
            sys.stderr.write(line)
        raise ModelError(f"deploy.py must stay, got exit code {self._process.wait()}")

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._workspace.cleanup()

    def __enter__(self) -> CustomModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _label(picture: Any) -> Any:
    if picture.category is not None:
        return picture.category
    return [
        {"label": one.label, "xmin": one.box[0], "ymin": one.box[1], "xmax": one.box[2], "ymax": one.box[3]}
        for one in picture.shapes
    ]


def _start(verb: str, task: Mapping[str, Any], workspace: str, *, ask: bool = False) -> subprocess.Popen[str]:
    file = Path(workspace) / "task.json"
    file.write_text(json.dumps(task))
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "weft.vision.custom.process", verb, str(file)],
        stdin=subprocess.PIPE if ask else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None,
        text=True,
        cwd=workspace,
    )
