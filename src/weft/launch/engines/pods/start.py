"""The start of a pod whose code is a snapshot: unpack it into the working folder, then go on as the command.

`python -m weft.launch.engines.pods.start weft run ...`
"""

from __future__ import annotations

import os
import sys
import tarfile


def main() -> None:
    """Unpack the archive that `WEFT_CODE` names, and become the command."""
    with tarfile.open(os.environ["WEFT_CODE"]) as archive:
        archive.extractall(".", filter="data")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
