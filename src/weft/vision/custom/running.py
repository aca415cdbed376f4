"""Run a custom model's zip in a process of its own: its code is someone's, and must not touch ours.

    train_custom(Path("mine.zip"), version, Path("mine-model"))
    CustomModel(Path("mine-model")).predict(Path("cat.jpg"))

The process sees the zip's files, the data and a workspace; whoever may submit jobs may run such a zip. A trained
model is a folder, and the same packed as one file, `custom.zip`, which travels.
"""

from __future__ import annotations

import contextlib
import io
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from weft.errors import ModelError, UsageError
from weft.files import write_whole
from weft.vision.custom.contract import USUAL_PARAMS
from weft.vision.custom.data import custom_images
from weft.vision.formats.archives import unpack
from weft.vision.records import DatasetVersion

MARK = "weft-custom:"  # begins lines of a custom process that are for us
ABOUT, CODE, MODEL = (
    "custom.json",
    "code",
    "model",
)  # of a model folder: what it is, the zip's files, its own files
PACKED = "custom.zip"  # these three as one file
LOAD_S, ANSWER_S = 300.0, 60.0  # that a model may take to load, and to answer for a picture


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
            f"{archive.name} must hold train.py and deploy.py in one folder, got a zip without; see the docs"
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
    shutil.rmtree(folder / CODE, ignore_errors=True)  # of a training before
    code = unpack_custom(archive, folder / CODE)
    last: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="weft-custom-") as workspace:
        kind, classes, images = custom_images(version, Path(workspace, "upright"))
        task = {
            "code": str(code.resolve()),
            "model": str((folder / MODEL).resolve()),
            "params": {**USUAL_PARAMS, **(params or {})},
            "classes": classes,
            "images": images,
        }
        process = _start("train", {**task, "workspace": workspace}, workspace)
        assert process.stdout is not None
        try:
            with process.stdout as lines:
                for line in lines:
                    if line.startswith(MARK):
                        data = json.loads(line[len(MARK) :])
                        last |= {name: one for name, one in data.items() if name.startswith("val_")}
                        report(data)
                    else:
                        sys.stderr.write(line)
        except BaseException:
            process.kill()  # nobody listens to it any more
            process.wait()
            raise
        if process.wait() != 0:
            raise ModelError(
                f"train.py of {archive.name} must end well, got exit code {process.returncode}; its words are above"
            )
    about = {"task": kind, "code": str(code.relative_to(folder)), "classes": classes}
    write_whole(folder / ABOUT, json.dumps(about))
    pack_model(folder)
    return {"task": kind, "classes": classes, "metrics": last, "score": _score(last)}


def _score(told: Mapping[str, float]) -> dict[str, Any] | None:
    """Return what a training told last of its accuracy on test pictures."""
    for name, shown in (("val_accuracy", "accuracy"), ("val_map50", "map50")):
        if name in told:
            return {"name": shown, "value": told[name]}
    return None


def pack_model(folder: Path) -> Path:
    """Write a trained model's folder as one zip into itself, and return the path."""
    path = folder / PACKED
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.write(folder / ABOUT, ABOUT)
        for home in (CODE, MODEL):
            for file in sorted((folder / home).rglob("*")):
                if file.is_file() and not file.is_symlink() and file.suffix != ".pyc":
                    archive.write(file, file.relative_to(folder).as_posix())
    return path


def is_packed(path: Path) -> bool:
    """Return whether a file is a trained custom model, packed."""
    try:
        with zipfile.ZipFile(path) as archive:
            return ABOUT in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def read_about(folder: Path) -> dict[str, Any]:
    """Return what a custom model's folder says of itself."""
    try:
        found = json.loads((folder / ABOUT).read_bytes())
        code = (folder / str(found["code"])).resolve()
        if not code.is_relative_to(folder.resolve()) or not (code / "deploy.py").is_file():
            raise ValueError("its code is not in it")
        return {
            "task": str(found["task"]),
            "code": str(found["code"]),
            "classes": [str(one) for one in found["classes"]],
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{folder} must be the folder of a custom model, got none that can be read: {error}"
        ) from None


class CustomModel:
    """A custom model's `deploy.py`, running; a context. It answers for one picture after another."""

    def __init__(self, folder: Path) -> None:
        self.about = read_about(folder)
        self._workspace = tempfile.TemporaryDirectory(prefix="weft-custom-")
        task = {
            "code": str((folder / self.about["code"]).resolve()),
            "model": str((folder / MODEL).resolve()),
            "classes": self.about["classes"],
            "workspace": self._workspace.name,
        }
        self._process = _start("deploy", task, self._workspace.name, ask=True)
        self._told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="weft-custom", daemon=True)
        self._reader.start()
        try:
            self.test = self._answer(LOAD_S)["test"]  # what `onTest` says
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        """Pass on what the process says: lines for us are answers, the others are its own words."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(MARK):
                self._told.put(json.loads(line[len(MARK) :]))
            else:
                sys.stderr.write(line)
        self._told.put(None)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def predict(self, picture: Path, params: Mapping[str, Any] | None = None) -> Any:
        """Return what `onInference` answers for a picture."""
        assert self._process.stdin is not None
        asked = json.dumps({"picture": str(picture), "params": dict(params or {})})
        try:
            self._process.stdin.write(asked + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ModelError(f"deploy.py must stay, got exit code {self._process.wait()}") from None
        return self._answer(ANSWER_S)["answer"]

    def _answer(self, limit_s: float) -> dict[str, Any]:
        try:
            found = self._told.get(timeout=limit_s)
        except queue.Empty:
            self._process.kill()  # what it says later would be taken for the answer to another picture
            raise ModelError(
                f"deploy.py must answer within {limit_s:g} seconds, got nothing; it is ended"
            ) from None
        if found is None:
            raise ModelError(
                f"deploy.py must stay, got exit code {self._process.wait()}; its words are in the log"
            )
        if "error" in found:
            raise ModelError(f"deploy.py must answer, got {found['error']}")
        return found

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._workspace.cleanup()

    def __enter__(self) -> CustomModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
