"""Runs the tests that failed in the last run once more, one after the other: `python tools/retry_failed.py`.

A test that passes on its own is unsteady: it is named at the end as a bug to mend, and does not refuse the change. A
change is refused by a test that fails again, and by more failures than a few, which are no accident.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"  # pytest's own notes
MOST_FAILURES = 4


def main() -> int:
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if not 0 < len(failed) <= MOST_FAILURES:
        print(f"retry: {len(failed)} tests failed; at most {MOST_FAILURES} are run again")
        return 1
    print(f"retry: {len(failed)} failed; once more, one after the other", flush=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", *failed], cwd=ROOT, check=False
    ).returncode
    if code == 0:
        for name in failed:
            print(f"UNSTEADY {name}: failed beside others, passed alone; a bug to mend")
    return code


if __name__ == "__main__":
    sys.exit(main())
