"""What is to be done before a process is gone is done, whichever of its threads does it."""

from __future__ import annotations

import subprocess
import sys

ENDS_MEANWHILE = """
import threading
from weft.collectives.watching.ending import Ending

begun = threading.Event()

def do(patience_s):
    begun.set()
    threading.main_thread().join()  # the script is over; what is registered for the end comes next
    print("done", flush=True)

ending = Ending(do)
threading.Thread(target=ending.now, args=(1.0,), daemon=True).start()
begun.wait()
"""


def test_a_main_thread_that_ends_waits_for_what_is_being_done() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_MEANWHILE], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "done\n", done.stderr
