"""Calls `weft` with wrong command lines and damaged files, and counts how they are answered.

    python tools/wrong_commands.py                    2,000 command lines in this process, 50 as processes
    python tools/wrong_commands.py --count 20000      more of them
    python tools/wrong_commands.py --light            the verbs that need no torch, scikit-learn or ONNX
    python tools/wrong_commands.py --light --only job,jobs     some of them
    python tools/wrong_commands.py --json             the counts and findings as data

Command lines are drawn by hypothesis from the parsers of the verbs. Each must end with exit code 2 and a message that
says what must be, without a traceback, without a change to any file, and within seconds. Nothing is started: see
testing/wrong_commands/calling.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from testing.wrong_commands.calling import Called, Guard, call_guarded, judge, stop_at_seams, stop_at_service
from testing.wrong_commands.files import USES, FileUse, damages, place
from testing.wrong_commands.lines import CommandLine, Verb, verbs, wrong_lines
from testing.wrong_commands.scratch import make_scratch

from weft.cli import VERBS

JOBS = (
    "up",
    "submit",
    "jobs",
    "job",
    "logs",
    "hosts",
    "audit",
    "login",
    "user",
    "token",
    "secret",
    "dataset",
    "retention",
)
LIGHT = ("run", "bench", "check", "topology", "rankfile", "scale", "pause", "ledger", "timeline", *JOBS)
COUNTED = ("invocations", "tracebacks", "accepted", "other findings", "processes")
HEAVY_MODULES = (
    "torch", "sklearn.linear_model", "weft.learn.fitting_job", "weft.learn.explaining", "weft.learn.tables.convert",
    "weft.serve.server.process", "weft.serve.export.api", "weft.serve.client", "weft.serve.describe", "onnxruntime",
)  # fmt: skip


def drawn(strategy: st.SearchStrategy[CommandLine], count: int, number: int) -> Iterator[CommandLine]:
    """Return so many examples of a strategy."""
    found: list[CommandLine] = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def draw(line: CommandLine) -> None:
        found.append(line)

    draw()
    return iter(found)


def damaged_lines(use: FileUse, scratch: Path, count: int, number: int) -> Iterator[CommandLine]:
    """Return command lines that read a damaged file, each of which is written when its turn comes."""
    good = (scratch / use.good).read_bytes()
    found = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(damages(use, good))
    def draw(damage: object) -> None:
        found.append(damage)

    draw()
    for damage in found:
        argv = place(use, damage, scratch)  # type: ignore[arg-type]
        yield CommandLine(argv, f"{use.good}: {damage.kind}", damage.refused)  # type: ignore[attr-defined]


def all_lines(
    chosen: list[Verb], uses: list[FileUse], scratch: Path, count: int, number: int
) -> Iterator[CommandLine]:
    """Return command lines of all verbs, in proportion to their parameters, and of all files."""
    weights = [len(verb.command.params) + 4 for verb in chosen]
    total = sum(weights) + 8 * len(uses)
    for verb, weight in zip(chosen, weights, strict=True):
        yield from drawn(wrong_lines(verb), max(1, -(-count * weight // total)), number)
    for use in uses:
        yield from damaged_lines(use, scratch, max(1, -(-count * 8 // total)), number)


def as_process(line: CommandLine, scratch: Path) -> str:
    """Call `weft` as a process with a command line that was refused before; return what is wrong with the answer."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "weft", *line.argv],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=300,
            check=False,
        )
    except (OSError, UnicodeEncodeError) as error:
        return "" if "too long" in str(error) else str(error)
    told = done.stderr.decode(errors="backslashreplace")
    return judge(Called(line, done.returncode, told, 0.0, (), ()))


def prepare(folder: Path, *, heavy: bool) -> None:
    """Make the scratch folder the place where everything is kept, and load what the verbs load."""
    for name in ("cache", "tmp", "scratch"):
        (folder / name).mkdir()
    os.environ |= {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_DATA_HOME": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CONFIG_HOME": str(folder / "cache"),
        "WEFT_STORE": str(folder / "scratch" / "store"),
        "WEFT_URL": "http://127.0.0.1:1",  # a command line that is accepted gets as far as connecting
        "WEFT_TOKEN": "x",
    }
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 (nobody types a password)
    tempfile.tempdir = None
    scratch = folder / "scratch"
    make_scratch(scratch, heavy=heavy)
    shutil.copytree(scratch, folder / "pristine")
    os.chdir(scratch)
    for module in HEAVY_MODULES if heavy else ():
        importlib.import_module(module)
    stop_at_service()
    if heavy:
        stop_at_seams()


def fuzz(
    folder: Path, *, count: int, processes: int, light: bool, number: int, only: tuple[str, ...] = ()
) -> tuple[Counter[str], list[tuple[str, Called]]]:
    """Call all command lines; return the counts, and what was found."""
    prepare(folder, heavy=not light)
    scratch = folder / "scratch"
    guard = Guard((str(folder), "/dev/null", "/proc/self", *_compiled()))
    sys.addaudithook(guard.hook)
    wanted = only or (LIGHT if light else VERBS)
    chosen = [verb for verb in verbs() if verb.name.split()[0] in wanted]
    uses = [use for use in USES if use.argv[0] in wanted]
    counts: Counter[str] = Counter()
    findings: list[tuple[str, Called]] = []
    refused: list[CommandLine] = []
    for line in all_lines(chosen, uses, scratch, count, number):
        called = call_guarded(line, guard, scratch)
        finding = judge(called)
        counts["invocations"] += 1
        counts["tracebacks"] += finding == "traceback"
        counts["accepted"] += finding == "accepted"
        counts["other findings"] += finding not in ("", "traceback", "accepted")
        if finding:
            findings.append((finding, called))
        if called.changed:
            restore(scratch, folder / "pristine")
        if finding:
            continue
        if called.code == 2 and "damaged" not in " ".join(line.argv):
            refused.append(line)
    for line in refused[:: max(1, len(refused) // max(1, processes))][:processes]:
        finding = as_process(line, scratch)
        counts["processes"] += 1
        if finding:
            counts["other findings"] += 1
            findings.append((f"as a process: {finding}", Called(line, None, "", 0.0, (), ())))
    return counts, findings


def _compiled() -> tuple[str, ...]:
    """Return the folders of modules, where Python and Numba keep what they compiled."""
    return tuple(path for path in sys.path if path)


def restore(scratch: Path, pristine: Path) -> None:
    """Put the good files back after a call that changed some."""
    for path in scratch.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(pristine, scratch, dirs_exist_ok=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="command lines in this process")
    parser.add_argument("--processes", type=int, default=50, help="command lines as processes of their own")
    parser.add_argument("--light", action="store_true", help="only verbs that load no large packages")
    parser.add_argument(
        "--only", default="", metavar="VERB,...", help="only these verbs, which --light must hold"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--json", action="store_true", help="print counts and findings as data")
    given = parser.parse_args()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        counts, findings = fuzz(
            Path(folder),
            count=given.count,
            processes=given.processes,
            light=given.light,
            number=given.seed,
            only=tuple(filter(None, given.only.split(","))),
        )
        os.chdir("/")
    cpu_s = time.process_time() - began
    if given.json:
        told = [{"finding": finding, **asdict(called)} for finding, called in findings]
        print(json.dumps({"counts": counts, "cpu_s": cpu_s, "findings": told}))
        return bool(findings)
    for finding, called in findings:
        typed = " ".join(called.line.argv)
        print(f"{finding}: weft {typed!r:.150}  ({called.line.wrong!r}, exit code {called.code})")
        print("".join(f"    {line!r:.200}\n" for line in called.told.strip().splitlines()[-4:]), end="")
    print(", ".join(f"{name} {counts[name]}" for name in COUNTED))
    print(f"{cpu_s:.0f} s of processor time")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
