"""A real `weft up` in a process of its own, for browsers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def weft_up(data: Path) -> Iterator[str]:
    """The log-in link of a service with its data in a folder."""
    command = [sys.executable, "-m", "weft", "up", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
        assert service.stdout is not None
        try:
            yield next(
                found[0] for line in service.stdout if (found := re.search(r"http://\S+#link=\S+", line))
            )
        finally:
            service.terminate()
            service.communicate(timeout=60)
