"""Log lines from 32 ranks through the launcher into their files, and a search in a gigabyte of them.

python benchmarks/jobs.py lines [--lines 30000] [--ranks 32]
python benchmarks/jobs.py search [--bytes 1073741824]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import claims

from weft.jobs.reports import logs
from weft.jobs.reports.logs import LogReader

# All ranks begin to print when the last of them is there, so that the start of 32 interpreters is not counted.
SCRIPT = """
import os, pathlib, sys, time
lines, ranks, folder = int(sys.argv[1]), int(os.environ["WORLD_SIZE"]), pathlib.Path(sys.argv[2])
(folder / f"here-{os.environ['RANK']}").touch()
while len(list(folder.glob("here-*"))) < ranks: time.sleep(0.02)
(folder / f"began-{os.environ['RANK']}").write_text(repr(time.time()))
for number in range(lines):
    print(f"step {number} loss 0.{number:06d} rate 0.001 and some more text as lines of a log have")
"""
PATTERNS = {
    "word": "needle",
    "folded": "(?i)NEEDLE",
    "either": "warning|needle",
    "expression": r"need\w+ \d+$",
}


def lines_per_s(lines: int, ranks: int) -> float:
    """Return the lines in a second, from the first one printed to the last in its file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "script.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "weft", "run", "-n", str(ranks), "--run-dir", folder + "/run"]
        with (place / "launcher.log").open("wb") as out:
            subprocess.run([*command, "script.py", str(lines), folder], cwd=folder, stdout=out, check=True)
        logs_of_ranks = [place / "run" / f"rank-{rank}.log" for rank in range(ranks)]
        assert sum(path.read_bytes().count(b"\n") for path in logs_of_ranks) == lines * ranks
        assert (place / "launcher.log").read_bytes().count(b"\n") == lines * ranks
        began = min(float(path.read_text()) for path in place.glob("began-*"))
        ended = max(path.stat().st_mtime for path in [*logs_of_ranks, place / "launcher.log"])
        return lines * ranks / (ended - began)


def main(words: list[str]) -> None:
    """Print the figures of printing beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=30_000, help="of each rank")
    parser.add_argument("--ranks", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(words)
    best = max(lines_per_s(given.lines, given.ranks) for _ in range(given.rounds))
    print(claims.report("jobs_reports", {"lines": best}))


def processor_s() -> float:
    """Return the processor time of this process and of those it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def search(words: list[str]) -> None:
    """Print how long searches take that find nothing before the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    given = parser.parse_args(words)
    logs.SEARCH_S = (
        600.0  # the page of a search ends after three seconds and goes on from there; here it is timed
    )
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rank-0.log")
        block = b"".join(
            b"step %d loss 0.%06d rate 0.001 and some more text\n" % (n, n * 7919 % 10**6)
            for n in range(50_000)
        )
        with path.open("wb") as file:
            while file.tell() < given.bytes:
                file.write(block)
            file.write(b"the needle 7\n")
        reader = LogReader(Path(folder))
        reader.tail(0, 1)  # counts the lines of the log once, as a page that shows it does
        for name, pattern in PATTERNS.items():
            times = []
            for _ in range(3):
                began = processor_s()
                (line,) = reader.page(0, grep=pattern).lines
                times.append(processor_s() - began)
                assert line.text == "the needle 7"
            measured[f"search-{name}"] = min(times)
    print(claims.report("jobs_reports", measured))
