"""The start of a pod whose code is a snapshot, or whose working folder the cluster cannot set; then the command.

`python -m weft.launch.engines.pods.start weft run ...`
"""

from __future__ import annotations

import os
import sys
import tarfile
from io import BytesIO
from pathlib import Path


def main() -> None:
    """Go to the folder `WEFT_WORKDIR`, unpack the archive that `WEFT_CODE` names, and become the command."""
    if folder := os.environ.get("WEFT_WORKDIR"):
        try:
            os.chdir(folder)
        except OSError as error:
            sys.exit(
                f"weft: workdir must be a folder of the image or a volume, got {folder}: {error.strerror}; set workdir"
            )
    if code := os.environ.get("WEFT_CODE"):
        unpack(Path(code), ".")
    os.execvp(sys.argv[1], sys.argv[1:])


def unpack(archive: Path, folder: str) -> None:
    """Unpack an archive that is one file, or several of its name with their numbers behind it."""
    parts = [archive] if archive.exists() else sorted(archive.parent.glob(f"{archive.name}.*"))
    with BytesIO(b"".join(part.read_bytes() for part in parts)) as data, tarfile.open(fileobj=data) as files:
        files.extractall(folder, filter="data")


if __name__ == "__main__":
    main()
