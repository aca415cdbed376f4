"""The arguments of an execution, as clients of WMLA send them, and the job they mean. Pure.

--exec-start edtPyTorch --model-main train.py --numWorker 4 --workerDeviceType gpu --epochs 3

Words that WMLA does not know go to the script. Frameworks that begin with `edt` are elastic from one worker on.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from weft.errors import UsageError
from weft.jobs.spec.model import JobSpec, ResourceSpec

DOOR = "wmla"
WORKER = "weft.jobs.doors.wmla.worker"  # the module that each worker runs
FRAMEWORKS = {
    "PyTorch": "one process on one host",
    "distPyTorch": "PyTorch distributed, a fixed number of workers",
    "edtPyTorch": "elastic distributed training: workers come and go",
}
LONGEST = 100_000  # characters
# Options that take a value; what we have no use for is named in a warning.
_TAKEN = {
    "--exec-start", "--model-main", "--model-dir", "--numWorker", "--workerDeviceType", "--workerDeviceNum",
    "--appName", "--cs-datastore-meta", "--edt-options", "--workerMemory", "--workerCpu",
}  # fmt: skip
_UNUSED = {
    "--consumer", "--driverDeviceNum", "--driverMemory", "--driverCpu", "--conda-env-name", "--exec-type",
    "--msd-image-name", "--msd-image-tag", "--cs-rmq-meta", "--cs-url", "--python-version", "--msd-env", "--msd-attr",
    "--msd-pod-priority-class", "--msd-pvc-name", "--workerMemoryLimit", "--driverMemoryLimit", "--workerTaskNum",
}  # fmt: skip


class ArgumentsError(UsageError):
    """Arguments of an execution that cannot be understood."""


@dataclass(frozen=True)
class ExecArguments:
    """The meaning of a client's arguments."""

    framework: str
    main: str
    model_dir: str = ""
    workers: int = 1
    gpus: float = 0.0
    cpus: float = 1.0
    memory: str | None = None
    app_name: str = ""
    data_path: str = ""
    most_workers: int | None = None
    script_args: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def elastic(self) -> bool:
        return self.framework.lower().startswith("edt")


@dataclass
class _Found:
    options: dict[str, str] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def parse_arguments(text: str) -> ExecArguments:
    """Return what the arguments of an execution mean."""
    found = _split(text)
    options = found.options
    framework = _framework(options.get("--exec-start", ""))
    main = options.get("--model-main", "")
    path = PurePosixPath(main)
    if not main.endswith(".py") or path.is_absolute() or ".." in path.parts:
        raise ArgumentsError(
            f"--model-main must be a script of the model, got {main[:80]!r}; name one like train.py"
        )
    device = options.get("--workerDeviceType", "cpu").lower()
    if device not in ("cpu", "gpu"):
        raise ArgumentsError(f"--workerDeviceType must be cpu or gpu, got {device[:40]!r}")
    gpus = _whole(options.get("--workerDeviceNum", "1"), "--workerDeviceNum") if device == "gpu" else 0
    edt = _pairs(options.get("--edt-options", ""))
    meta = _pairs(options.get("--cs-datastore-meta", ""))
    if meta.get("type", "fs") != "fs":
        found.warnings.append(f"--cs-datastore-meta type={meta['type']} is not known: name a path, type=fs")
    return ExecArguments(
        framework=framework,
        main=main,
        model_dir=options.get("--model-dir", ""),
        workers=_whole(options.get("--numWorker", "1"), "--numWorker"),
        gpus=float(gpus),
        cpus=float(_whole(options.get("--workerCpu", "1"), "--workerCpu")),
        memory=options.get("--workerMemory"),
        app_name=options.get("--appName", ""),
        data_path=meta.get("data_path", ""),
        most_workers=_whole(edt["maxWorkers"], "maxWorkers") if "maxWorkers" in edt else None,
        script_args=tuple(found.rest),
        warnings=tuple(found.warnings),
    )


def _split(text: str) -> _Found:
    try:
        words = shlex.split(text) if len(text) <= LONGEST else None
    except ValueError as error:
        raise ArgumentsError(
            f"args must be words of a command line, got {error}; close their quotes"
        ) from None
    if words is None:
        raise ArgumentsError(
            f"args must have at most {LONGEST} characters, got {len(text)}; put them into a file"
        )
    found = _Found()
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if name not in _TAKEN | _UNUSED:
            found.rest.append(word)
            continue
        if not equals:
            if not words:
                raise ArgumentsError(f"{name} must have a value, got none; add it")
            value = words.pop(0)
        if name in _TAKEN:
            found.options[name] = value
        else:
            found.warnings.append(f"{name} has no meaning here and is left out")
    return found


def _framework(given: str) -> str:
    known = next((name for name in FRAMEWORKS if name.lower() == given.lower()), None)
    if known is None:
        raise ArgumentsError(f"--exec-start must be one of {', '.join(FRAMEWORKS)}, got {given[:40]!r}")
    return known


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text) or not 1 <= int(text) <= 65_536:
        raise ArgumentsError(f"{what} must be a whole number from 1 on, got {text[:40]!r}")
    return int(text)


def _pairs(text: str) -> dict[str, str]:
    """Return the values of `type=fs,data_path=/data`."""
    return {
        name.strip(): value.strip()
        for name, _, value in (part.partition("=") for part in text.split(","))
        if name
    }


def to_spec(given: ExecArguments, *, main: str) -> JobSpec:
    """Return the job of an execution; `main` is where its script lies in the code."""
    most = given.most_workers or given.workers
    workers: int | str = f"1:{most}" if given.elastic and most > 1 else given.workers
    if given.framework == "PyTorch":
        workers = 1
    data = {"data": given.data_path} if given.data_path.startswith("/") else {}
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", given.app_name).strip("-._")[:100]
    return JobSpec(
        run=("-m", WORKER, main, *given.script_args),
        name=name or PurePosixPath(main).stem[:100] or DOOR,
        project=DOOR,
        workers=workers,
        resources=ResourceSpec(gpus=given.gpus, cpus=given.cpus, memory=given.memory),
        data=data,
        tags={"door": DOOR},
    )


def find_main(paths: Sequence[str], given: ExecArguments) -> str:
    """Return where the script lies: at the top of the code, or in the folder that was packed."""
    if given.main in paths:
        return given.main
    folder = PurePosixPath(given.model_dir).name
    for candidate in (f"{folder}/{given.main}", *(path for path in paths if path.endswith(f"/{given.main}"))):
        if candidate in paths:
            return candidate
    shown = ", ".join(paths[:5]) or "nothing"
    raise ArgumentsError(
        f"--model-main must be in the model, got {given.main} and files {shown}; pack its folder"
    )
