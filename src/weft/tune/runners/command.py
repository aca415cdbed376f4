"""The command of one trial: its placeholders filled in, its variables, its config file."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.tune.space.domains import scalar_text
from weft.tune.study.config import StudyConfig, StudyError
from weft.tune.study.state import TrialRecord

_MARK = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
METRICS = "metrics"  # the folder of its reports, in the folder of a trial


def fill(word: str, values: Mapping[str, Any]) -> str:
    """Return a word with its placeholders filled in; those that are not known stay as they are."""

    def found(match: re.Match[str]) -> str:
        name = match[1]
        return scalar_text(values[name]) if name in values else match[0]

    return _MARK.sub(found, word)


def check_script(words: Sequence[str], folder: Path) -> None:
    """Refuse a script that is not there, before any trial is made for it."""
    name = words[0] if words else ""
    if name.endswith(".py") and not _MARK.search(name) and not (folder / name).is_file():
        raise StudyError(
            f"run must name a script in the folder {folder.resolve()}, got {name}, which is not there; "
            "check the path, or go to its folder"
        )


def ends_at_limit(config: StudyConfig) -> bool:
    """Return whether the command is told how far to go: it has a placeholder named like the resource."""
    return config.resource is not None and any(
        f"{{{config.resource.name}}}" in word for word in config.command
    )


def limit_of(config: StudyConfig, trial: TrialRecord) -> int:
    """Return how much of the resource a trial may use now; 0 where there is none."""
    if config.resource is None:
        return 0
    return trial.until if trial.until is not None else config.resource.max


def trial_words(config: StudyConfig, trial: TrialRecord, files: Mapping[str, Any]) -> list[str]:
    """Return the words of a trial's command; `files` are the paths of {params} and {config}.

    A flag whose parameter does not exist under its condition, or is null, is left out together with its value.
    """
    values: dict[str, Any] = {**trial.params, "trial": trial.number, **files}
    if config.resource is not None:
        values[config.resource.name] = limit_of(config, trial)
    absent = {name for name in config.space if values.get(name) is None}
    words: list[str] = []
    before = ""  # the word of the command that the last one was made of
    for word in config.command:
        if any(mark in absent for mark in _MARK.findall(word)):
            if words and before.startswith("-") and word.startswith("{"):
                words.pop()
            before = ""
            continue
        words.append(fill(word, values))
        before = word
    return words


def program(words: list[str]) -> list[str]:
    """Return the program of a command: a script or a module by this Python, or what it names."""
    if words[0].endswith(".py"):
        return [sys.executable, *words]
    if words[0] == "-m":
        return [sys.executable, *words]
    return [sys.executable, *words[1:]] if words[0] in ("python", "python3") else words


def variables(config: StudyConfig, trial: TrialRecord) -> dict[str, str]:
    """Return the variables of a trial's process, but for paths."""
    found = {"WEFT_PARAMS": json.dumps(trial.params), "WEFT_TRIAL": str(trial.number), **config.env}
    if config.resource is not None:
        found["WEFT_UNTIL"] = str(limit_of(config, trial))
    return found


def merged_config(base: Any, params: Mapping[str, Any]) -> Any:
    """Return a configuration with parameters in place; `optimizer.lr` is an entry inside `optimizer`."""
    if not isinstance(base, dict):
        raise StudyError(f"config must be a mapping, got {type(base).__name__}; write entries by name")
    made = copy.deepcopy(base)
    for name, value in params.items():
        place = made
        *path, last = name.split(".")
        for part in path:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise StudyError(f"{name} must be an entry of the config, got a value at {part}; rename it")
        place[last] = value
    return made


def write_files(config: StudyConfig, trial: TrialRecord, folder: Path) -> dict[str, str]:
    """Write the files that a command may name, and return their paths by placeholder."""
    from weft.documents import parse_document
    from weft.files import write_whole

    text, made = " ".join(config.command), {}
    if "{params}" in text:
        made["params"] = str(folder / "params.json")
        write_whole(folder / "params.json", json.dumps(trial.params, indent=2))
    if "{config}" in text and config.config is not None:
        base = Path(config.config)
        merged = merged_config(parse_document(base, error=StudyError), trial.params)
        made["config"] = str(folder / f"config{'.json' if base.suffix == '.json' else '.yaml'}")
        write_whole(Path(made["config"]), dump(merged, made["config"]))
    return made


def dump(data: Any, path: str) -> str:
    """Return data as YAML or JSON, by the ending of a path."""
    if path.endswith(".json"):
        return json.dumps(data, indent=2) + "\n"
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False))
