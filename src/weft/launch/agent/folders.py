"""Folders of a run on a host that does not share them: taken from the launcher's side, given back, removed.

`python -m weft.launch.agent.folders` reads one JSON line from its standard input and answers with one:

    {"take": [...], "make": [...]}   {"lacking": [...], "made": [...]}   a tar of what is lacking follows, by index
    {"give": [...]}                  {"given": [...]}                    and a tar of those that are there
    {"remove": [...]}                {"removed": [...]}
    {"append": {path: text}}         {"appended": [...]}
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

TAKE, MAKE, GIVE, REMOVE, APPEND = "take", "make", "give", "remove", "append"


def main(source: IO[bytes], out: IO[bytes]) -> None:
    """Do what one line asks for."""
    os.umask(0o077)
    asked = json.loads(source.readline())
    if GIVE in asked:
        _give(asked[GIVE], out)
    elif REMOVE in asked:
        for path in asked[REMOVE]:
            shutil.rmtree(path, ignore_errors=True)
        _answer(out, {"removed": asked[REMOVE]})
    elif APPEND in asked:
        for path, text in asked[APPEND].items():
            with Path(path).open("a") as file:
                file.write(text)
        _answer(out, {"appended": list(asked[APPEND])})
    else:
        _take(asked.get(TAKE, []), asked.get(MAKE, []), source, out)


def _take(wanted: list[str], make: list[str], source: IO[bytes], out: IO[bytes]) -> None:
    lacking = [path for path in wanted if not Path(path).exists()]
    made = [path for path in make if path not in lacking and not Path(path).is_dir()]
    for path in made:
        Path(path).mkdir(parents=True, exist_ok=True)
    _answer(out, {"lacking": lacking, "made": made})
    for path in lacking:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    if not lacking:
        return
    drafts = [Path(f"{path}.draft-{os.getpid()}") for path in lacking]
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for entry in archive:
                index, _, rest = entry.name.partition("/")
                _extract(archive, entry, drafts[int(index)], rest, drafts)
        for draft, path in zip(drafts, lacking, strict=True):
            if not Path(path).exists():  # another start on this host may have been quicker
                draft.rename(path)
    finally:
        for draft in drafts:
            shutil.rmtree(draft, ignore_errors=True)
    _answer(out, {"taken": lacking})


def _extract(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, draft: Path, rest: str, drafts: list[Path]
) -> None:
    """Write one entry into the draft of its folder; a lone file is the draft itself."""
    entry.name = draft.name + (f"/{rest}" if rest else "")
    if entry.islnk():
        index, _, other = entry.linkname.partition("/")
        entry.linkname = str((drafts[int(index)] / other).relative_to(draft.parent))
    archive.extract(entry, draft.parent, filter="tar")


def _give(wanted: list[str], out: IO[bytes]) -> None:
    there = [path for path in wanted if Path(path).is_dir()]
    _answer(out, {"given": there})
    with tarfile.open(fileobj=out, mode="w|") as archive:
        for index, path in enumerate(there):
            archive.add(path, arcname=str(index))


def _answer(out: IO[bytes], answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
