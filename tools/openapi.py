"""Writes the OpenAPI document of the jobs service, from which the console's TypeScript types are made.

python tools/openapi.py             on stdout
python tools/openapi.py FILE        into a file, which is left alone when nothing has changed
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from weft.files import write_whole
from weft.jobs.api.openapi import document


def main(words: list[str]) -> int:
    text = json.dumps(document(), indent=2, sort_keys=True) + "\n"
    if not words:
        sys.stdout.write(text)
        return 0
    path = Path(words[0])
    if not path.is_file() or path.read_text() != text:
        write_whole(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
