"""From text to a job that can be queued: YAML is read into a `JobSpec`, and resolved into checked values.

spec = read_spec(text)       fields and types
resolve(spec)                meanings: sizes, durations, ranges, commands

Each tells all problems that it finds at once.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from weft.documents import describe_mismatch, parse_yaml
from weft.errors import UsageError
from weft.jobs.spec.cron import next_time_ms
from weft.jobs.spec.model import JobSpec, RegexSource
from weft.launch.command import Command
from weft.text import format_size, parse_duration, parse_size

LARGEST_SPEC_BYTES = 1 << 20
MOST_ARRAY_JOBS = 10_000
MOST_PROBLEMS = 20  # that are told at once
T = TypeVar("T")


@dataclass(frozen=True)
class SpecProblem:
    """One thing that is wrong with a specification."""

    path: str  # the field: resources.memory
    must: str
    got: str
    next: str

    def __str__(self) -> str:
        return f"{self.path} must {self.must}, got {self.got}; {self.next}"


class SpecError(UsageError):
    """A job specification that cannot be used, with every problem that was found."""

    def __init__(self, problems: tuple[SpecProblem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class ResolvedSpec:
    """The values of a specification that its text stands for."""

    spec: JobSpec
    name: str
    command: Command
    min_workers: int
    max_workers: int
    memory_bytes: int  # of one worker; 0: not limited
    lms_bytes: int | None
    labels: frozenset[str]
    time_limit_s: float | None
    backoff_s: float
    env: Mapping[str, str] = field(default_factory=dict)


def read_spec(text: str | bytes) -> JobSpec:
    """Return the specification in a YAML text; JSON is YAML, too."""
    import yaml

    if len(text) > LARGEST_SPEC_BYTES:
        raise SpecError(
            (
                SpecProblem(
                    "the file",
                    f"be at most {format_size(LARGEST_SPEC_BYTES, trimmed=True)}",
                    f"{len(text)} bytes",
                    "keep data in files",
                ),
            )
        )
    try:
        found = parse_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise SpecError((SpecProblem("the file", "be YAML", reason, "mend that line"),)) from None
    return convert_spec(found)


def convert_spec(found: Any) -> JobSpec:
    """Return the specification in parsed data; SpecError names every field that is wrong."""
    problems: list[SpecProblem] = []
    while len(problems) < MOST_PROBLEMS:
        try:
            spec = msgspec.convert(found, JobSpec)
        except msgspec.ValidationError as error:
            problems.append(_located(str(error), found))
            found, shorter = without_field(found, str(error))
            if not shorter:
                break
        else:
            if not problems:
                return spec
            break
    raise SpecError(tuple(problems))


def without_field(found: Any, message: str) -> tuple[Any, bool]:
    """Return parsed data without the field that msgspec complains of, and whether there was one to leave out."""
    unknown = re.match(r"Object contains unknown field `(.*?)`", message)
    steps = [*steps_of(message), *([unknown[1]] if unknown else [])]
    return _without(found, steps) if steps else (found, False)


def _without(found: Any, steps: Sequence[str | int]) -> tuple[Any, bool]:
    first, rest = steps[0], steps[1:]
    there = (isinstance(found, dict) and first in found) or (
        isinstance(found, list) and isinstance(first, int) and first < len(found)
    )
    if not there:
        return found, False
    changed = found.copy()
    if not rest:
        del changed[first]
        return changed, True
    changed[first], shorter = _without(found[first], rest)
    return changed, shorter


def _located(message: str, found: Any) -> SpecProblem:
    """Return msgspec's finding as a problem, with the value that was found."""
    subject, _, rest = describe_mismatch(message, JobSpec).partition(" must ")
    must, _, rest = rest.rpartition(", got ")
    got, _, following = rest.partition("; ")
    if got == "another value":  # of the right type, but out of bounds
        with suppress(LookupError, TypeError):
            for step in steps_of(message):
                found = found[step]
        got = repr(found)[:80] if isinstance(found, (str, int, float)) else got
    return SpecProblem(subject if subject != "it" else "the file", must, got, following)


def steps_of(message: str) -> list[str | int]:
    """Return the way to the field that msgspec complains of: `$.notify[0].on` is notify, 0, on; none if it has none."""
    place = re.search(r"(?:at|in) `\$([^`]*)`$", message)
    if place is None:
        return []
    known = place[1].partition("[...]")[0]  # one value of a mapping: msgspec does not say which
    return [int(index) if index else name for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", known)]


def schema() -> dict[str, Any]:
    """Return the JSON schema of a specification, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(JobSpec)}


def resolve(spec: JobSpec) -> ResolvedSpec:
    """Return what a specification means; SpecError names all that cannot be understood."""
    found = _Findings()
    resources, queue = spec.resources, spec.queue
    command = found.value("run", lambda: _command(spec.run))
    fewest, most = found.value("workers", lambda: _workers(spec.workers)) or (1, 1)
    memory = resources.memory
    result = ResolvedSpec(
        spec=spec,
        name=spec.name or (command.name if command else "job"),
        command=command or Command("command", "true"),
        min_workers=fewest,
        max_workers=most,
        memory_bytes=(found.value("resources.memory", lambda: parse_size(memory)) or 0)
        if memory is not None
        else 0,
        lms_bytes=_optional(found, "resources.lms", resources.lms, parse_size),
        labels=frozenset([resources.hosts] if isinstance(resources.hosts, str) else resources.hosts),
        time_limit_s=_optional(found, "queue.max_time", queue.max_time, parse_duration),
        backoff_s=found.value("retry.backoff", lambda: parse_duration(spec.retry.backoff)) or 0.0,
        env={name: _text(value) for name, value in spec.env.items()},
    )
    _check_sources(spec, found)
    _check_pods(spec, found)
    if spec.advice:
        from weft.jobs.advice.settings import settings_of  # loads numpy

        found.value("advice", lambda: settings_of(spec.advice))
    _check_addresses(spec, found)
    _check_array(spec, found)
    if spec.schedule is not None:
        found.value("schedule", lambda: next_time_ms(str(spec.schedule)))
    if found.problems:
        raise SpecError(tuple(found.problems))
    return result


def _check_pods(spec: JobSpec, found: _Findings) -> None:
    """Find what a job asks of Kubernetes that is not its to say."""
    pods = spec.kubernetes
    if spec.engine != "kubernetes":
        if pods is not None:
            found.add(
                "kubernetes", "come with engine: kubernetes", spec.engine, "add it, or drop the section"
            )
        return
    if pods is None or not pods.image:
        found.add("kubernetes.image", "name the image of the pods", "", "write kubernetes: {image: NAME:TAG}")
    if pods is not None:
        for name in ("kubeconfig", "context", "extra_args", "detach"):
            if getattr(pods, name):
                found.add(f"kubernetes.{name}", "be left to the service", getattr(pods, name), "drop it")


class _Findings:
    """Problems found so far."""

    def __init__(self) -> None:
        self.problems: list[SpecProblem] = []

    def add(self, path: str, must: str, got: object, following: str) -> None:
        self.problems.append(SpecProblem(path, must, repr(got), following))

    def value(self, path: str, read: Callable[[], T]) -> T | None:
        """Return what `read` gives; what it raises becomes a problem of the field."""
        try:
            return read()
        except UsageError as error:
            _, _, rest = str(error).partition(" must ")
            must, _, rest = rest.partition(", got ")
            got, _, following = rest.rpartition("; ")
            self.problems.append(SpecProblem(path, must, got, following))
            return None


def _optional(found: _Findings, path: str, given: Any, parse: Callable[[Any], T]) -> T | None:
    return None if given is None else found.value(path, lambda: parse(given))


def _command(run: str | tuple[str, ...]) -> Command:
    """Return the command of `train.py --lr 1`, `-m package.train`, `./program`, or of a list of words."""
    try:
        words = shlex.split(run) if isinstance(run, str) else list(run)
    except ValueError as error:
        raise UsageError(f"run must be a command, got {run!r} ({error}); close its quotes") from None
    if words[:1] in (["python"], ["python3"]) and (
        len(words) < 2 or words[1] == "-m" or words[1].endswith(".py")
    ):
        words = words[1:]  # the worker's own Python runs it
    if not words or (words[0] == "-m" and len(words) < 2):
        raise UsageError(f"run must name a script, a module or a program, got {run!r}; write run: train.py")
    if words[0] == "-m":
        return Command("module", words[1], tuple(words[2:]))
    return Command("script" if words[0].endswith(".py") else "command", words[0], tuple(words[1:]))


def _workers(given: int | str) -> tuple[int, int]:
    """Return the fewest and the most workers of `4`, `"4"` or `"2:8"`."""
    if isinstance(given, int):
        return given, given
    match = re.fullmatch(r"\s*(\d{1,5})\s*(?::\s*(\d{1,5}))?\s*", given)
    fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= fewest <= most <= 65_536:
        raise UsageError(
            f"workers must be a number or a range MIN:MAX between 1 and 65536, got {given!r}; write workers: 2:8"
        )
    return fewest, most


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_sources(spec: JobSpec, found: _Findings) -> None:
    for index, source in enumerate(spec.metrics):
        if not isinstance(source, RegexSource):
            continue
        path = f"metrics[{index}].pattern"
        try:
            if not re.compile(source.pattern).groupindex:
                found.add(
                    path, "have a named group for each metric", source.pattern, r"write loss=(?P<loss>\S+)"
                )
        except re.error as error:
            found.add(path, f"be a regular expression ({error})", source.pattern, "mend it")


def _check_addresses(spec: JobSpec, found: _Findings) -> None:
    for index, notify in enumerate(spec.notify):
        try:
            address = urlsplit(notify.webhook)
            usable = address.scheme in ("http", "https") and bool(address.hostname) and not address.username
        except ValueError:
            usable = False
        if not usable:
            must = "be an http or https address without a password"
            found.add(f"notify[{index}].webhook", must, notify.webhook, "write https://example.org/hook")
    for name, path in spec.outputs.items():
        if Path(path).is_absolute() or ".." in Path(path).parts:
            found.add(
                f"outputs.{name}", "be a path below the job's folder, or s3://", path, "write a relative path"
            )


def _check_array(spec: JobSpec, found: _Findings) -> None:
    if spec.array is None:
        return
    count = 1
    for name, values in spec.array.items():
        if not values:
            found.add(f"array.{name}", "have at least one value", (), "add one, or remove it")
        count *= len(values)
    if count > MOST_ARRAY_JOBS:
        found.add("array", f"make at most {MOST_ARRAY_JOBS} jobs", count, "use a study (weft tune)")


def expand(spec: JobSpec) -> Iterator[JobSpec]:
    """Yield the jobs of an array: `{lr}` in the command becomes each value of `lr`, in every combination."""
    if not spec.array:
        yield spec
        return
    names = list(spec.array)
    for index, values in enumerate(itertools.product(*spec.array.values())):
        chosen = {f"{{{name}}}": str(value) for name, value in zip(names, values, strict=True)}
        words = (spec.run,) if isinstance(spec.run, str) else spec.run
        filled = tuple(_fill(word, chosen) for word in words)
        yield msgspec.structs.replace(
            spec,
            run=filled[0] if isinstance(spec.run, str) else filled,
            name=f"{spec.name or 'job'}-{index}",
            array=None,
            tags={**spec.tags, **{name: str(value) for name, value in zip(names, values, strict=True)}},
        )


def _fill(word: str, chosen: Mapping[str, str]) -> str:
    for mark, value in chosen.items():
        word = word.replace(mark, value)
    return word
