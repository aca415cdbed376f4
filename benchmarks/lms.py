"""Large model support against its goals and its rivals, many cases in one go; needs a CUDA device.

    python benchmarks/lms.py                          every case
    python benchmarks/lms.py --cases fits gpt llama   some
    python benchmarks/lms.py --out lms.txt            and write what is printed to a file, too

Times are medians of whole steps (forward and backward) by CUDA events, one after the other as in training, in turns
with native ones, after the steps in which plans are made. The peak of ours is that of every step, the first among
them; others' is of the timed steps. A smaller device is emulated with `set_per_process_memory_fraction`. Gradients are
compared with deterministic kernels. Each case is a process of its own: what one leaves behind on the device or in
pinned memory is not the next one's trouble.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from benchmarks import claims
from benchmarks.lms_harness import text, tuned, unseen, vision
from benchmarks.lms_harness.measure import Report, cuda

CASES: dict[str, Callable[[Report, int], None]] = {
    "fits": vision.case_fits,
    "gpt": text.case_gpt,
    "llama": text.case_llama,
    "unet": vision.case_unet,
    "pixels": vision.case_pixels,
    "lengths": text.case_lengths,
    "adamw": text.case_adamw,
    **tuned.CASES,
    **unseen.CASES,
}


def run(report: Report, name: str, rounds: int) -> None:
    """One case, here."""
    began = time.perf_counter()
    try:
        CASES[name](report, rounds)
    except Exception as error:
        traceback.print_exc()
        report.say(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    report.say(f"({name}: {time.perf_counter() - began:.0f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    parser.add_argument(
        "--recordings", type=Path, help="a folder for recorded steps, to plan them again anywhere"
    )
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--figures", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        run(Report(asked.out, asked.alone, asked.recordings, asked.figures), asked.cases[0], asked.rounds)
        return
    if asked.out is not None:
        asked.out.write_text("")
    Report(asked.out).say(
        f"{date.today()}, {cuda.get_device_name()}, {os.cpu_count()} cores, torch {torch.__version__}, Python "
        f"{platform.python_version()}: python benchmarks/lms.py {' '.join(sys.argv[1:])}"
    )
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures"
        figures.write_text("")
        run_cases(asked, figures)
        measured = read_figures(figures)
    for name in ("lms", "lms_pixels"):
        known = {claim.name for part in claims.parts([name]) for claim in part.claims}
        if found := {claim: figure for claim, figure in measured.items() if claim in known}:
            Report(asked.out).say("\n" + claims.report(name, found))


def read_figures(path: Path) -> dict[str, float]:
    """Return the figures that the cases have noted, by the names of their claims."""
    found: dict[str, float] = {}
    for line in path.read_text().splitlines():
        found |= json.loads(line)
    return found


def run_cases(asked: argparse.Namespace, figures: Path) -> None:
    """Run each case in a process of its own."""
    for name in asked.cases:
        part = [sys.executable, "-u", __file__, "--part", "--cases", name, "--rounds", str(asked.rounds)]
        part += ["--out", str(asked.out)] if asked.out is not None else []
        part += ["--figures", str(figures)]
        part += ["--alone"] if asked.alone else []
        part += ["--recordings", str(asked.recordings)] if asked.recordings is not None else []
        subprocess.run(part, check=False)


if __name__ == "__main__":
    main()
