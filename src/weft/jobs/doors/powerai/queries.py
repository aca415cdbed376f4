"""Queries of files as these clients write them, in the words of the library's own language. Pure."""

from __future__ import annotations

import re

# What these clients call the facts of a file, and what the library calls them.
_NAMES = {
    "original_file_name": "name",
    "file_name": "name",
    "size": "bytes",
    "category_name": "category",
    "generate_type": "state",
    "created_at": "added_ms",
    "duration": "duration_s",
    "tag_list": "label",
    "tag_name": "label",
}
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|,|[^\s,()<>=!~"\']+|.', re.DOTALL)


def library_query(text: str) -> str:
    """Return a query with `and` in place of commas, and the library's names; texts in quotes stay as they are."""

    def word(match: re.Match[str]) -> str:
        part = match[0]
        return " and " if part == "," else _NAMES.get(part, part)

    return _PART.sub(word, text.strip().strip(","))
