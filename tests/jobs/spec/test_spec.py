from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.jobs.spec.read import SpecError, expand, read_spec, resolve, schema
from weft.launch.command import Command

FULL = r"""
run: train.py --epochs 20
name: digits
project: vision
workers: 2:8
resources: {gpus: 1, cpus: 4, memory: 16GiB, hosts: a100, lms: 20GB}
data: {digits: "dataset:digits@3", raw: "s3://b/raw"}
outputs: {models: out}
env: {A: "1", B: 2, C: true}
secrets: [HF_TOKEN]
queue: {priority: 60, max_time: 1h30m, after: [12]}
retry: {max: 2, on: [host-lost], backoff: 45s}
metrics: [{kind: tensorboard, folder: runs}, {kind: regex, pattern: 'loss=(?P<loss>\S+)'}]
notify: [{webhook: "https://example.org/x", on: [failed, advice]}]
export: {model: digits, alias: candidate}
"""


def test_a_full_specification_means_what_it_says() -> None:
    job = resolve(read_spec(FULL))
    assert job.command == Command("script", "train.py", ("--epochs", "20"))
    assert (job.min_workers, job.max_workers) == (2, 8)
    assert (job.memory_bytes, job.lms_bytes) == (16 << 30, 20 * 10**9)
    assert (job.time_limit_s, job.backoff_s) == (5400.0, 45.0)
    assert job.labels == {"a100"}
    assert job.env == {"A": "1", "B": "2", "C": "true"}


@pytest.mark.parametrize(
    ("run", "command"),
    [
        ("train.py", Command("script", "train.py")),
        ("python3 train.py --x 'a b'", Command("script", "train.py", ("--x", "a b"))),
        ("python -c 'print(1)'", Command("command", "python", ("-c", "print(1)"))),
        ("-m package.train -v", Command("module", "package.train", ("-v",))),
        ("[./program, --flag]", Command("command", "./program", ("--flag",))),
    ],
)
def test_commands(run: str, command: Command) -> None:
    quoted = run if run.startswith("[") else msgspec.json.encode(run).decode()
    job = resolve(read_spec(f"run: {quoted}"))
    assert job.command == command
    assert job.name == command.name


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("workers: 2", "the file", "must have the field run"),
        ("[1, 2]", "the file", "a mapping"),
        ("", "the file", "a mapping"),
        ("run: {", "the file", "must be YAML"),
        ("run: a.py\nworker: 2", "its fields", "did you mean workers?"),
        ("run: a.py\nresources: {gpu: 1}", "resources", "did you mean gpus?"),
        ("run: a.py\nnotify: [{webhook: 'https://a', when: [failed]}]", "notify[0]", "got when; remove it"),
        ("run: a.py\nzzz: 2", "its fields", "got zzz; remove it"),
        ("run: a.py\nrun: b.py", "the file", "run twice, first in line 1"),
        ("run: a.py\nenv: {A: 1, A: 2}", "the file", "A twice, first in line 2"),
        ("run: a.py\nqueue: {priority: 101}", "queue.priority", "<= 100"),
        ("run: a.py\nworkers: 8:2", "workers", "a range MIN:MAX"),
        ("run: a.py\nworkers: 0", "workers", ">= 1"),
        ("run: ''", "run", "must name a script"),
        ('run: "a.py \'b"', "run", "close its quotes"),
        ("run: a.py\nresources: {memory: lots}", "resources.memory", "a number of bytes"),
        ("run: a.py\nqueue: {max_time: soon}", "queue.max_time", "a time up to ten years"),
        ("run: a.py\nenv: {a-b: 1}", "names in env", "matching regex"),
        ("run: a.py\nmetrics: [{kind: regex, pattern: '('}]", "metrics[0].pattern", "a regular expression"),
        ("run: a.py\nmetrics: [{kind: regex, pattern: 'x'}]", "metrics[0].pattern", "a named group"),
        ("run: a.py\nnotify: [{webhook: 'ftp://x'}]", "notify[0].webhook", "http or https"),
        ("run: a.py\noutputs: {m: ../x}", "outputs.m", "below the job's folder"),
        ("run: a.py\narray: {lr: []}", "array.lr", "at least one value"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, path: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(read_spec(text))
    problem = caught.value.problems[0]
    assert problem.path == path
    assert said in str(problem)
    assert all((problem.must, problem.got, problem.next)), problem


def test_all_fields_that_are_wrong_are_told_at_once() -> None:
    text = """
run: a.py
workrs: 3
resources: {memry: 3GB, cpus: -1}
queue: {priority: 500}
notify: [{on: 1}]
env: {a-b: 1}
"""
    with pytest.raises(SpecError) as caught:
        read_spec(text)
    told = sorted(f"{problem.path}: {problem.got}" for problem in caught.value.problems)
    assert told == [
        "its fields: workrs",
        "names in env: another value",
        "notify[0].on: a whole number",
        "notify[0]: none",
        "queue.priority: 500",
        "resources.cpus: -1",
        "resources: memry",
    ]


def test_all_values_that_cannot_be_understood_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        resolve(read_spec("run: a.py\nworkers: x\nresources: {memory: y, lms: z}\nretry: {backoff: w}"))
    assert [problem.path for problem in caught.value.problems] == [
        "workers",
        "resources.memory",
        "resources.lms",
        "retry.backoff",
    ]


@given(st.text() | st.binary())
def test_any_text_is_a_specification_or_refused(text: str | bytes) -> None:
    with suppress(SpecError):
        resolve(read_spec(text))


def test_an_array_is_one_job_for_each_combination() -> None:
    spec = read_spec("run: a.py --lr {lr} --size {size}\nname: sweep\narray: {lr: [0.1, 0.2], size: [1, 2]}")
    jobs = list(expand(spec))
    assert [job.run for job in jobs] == [
        "a.py --lr 0.1 --size 1",
        "a.py --lr 0.1 --size 2",
        "a.py --lr 0.2 --size 1",
        "a.py --lr 0.2 --size 2",
    ]
    assert jobs[3].name == "sweep-3"
    assert jobs[3].tags == {"lr": "0.2", "size": "2"}
    assert list(expand(jobs[0])) == [jobs[0]]


def test_the_schema_describes_every_field(tmp_path: Path) -> None:
    described = schema()["$defs"]["JobSpec"]
    assert described["required"] == ["run"]
    assert set(described["properties"]) == set(read_spec("run: a.py").__struct_fields__)
