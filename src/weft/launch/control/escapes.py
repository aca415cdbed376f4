"""Escape sequences in the output of workers: colours are kept, what changes the terminal is taken out.

A worker may print the name of a file, a line of a data set or the answer of a server. On a terminal, such text could
set its title, write to the clipboard, move the cursor over other workers' lines, or make the terminal answer.
"""

from __future__ import annotations

import re

from weft.launch.agent.wire import bytes_to_text, text_to_bytes

# Strings (title, clipboard, device control) to their end or that of the line; colours; other sequences.
_SEQUENCE = re.compile(
    rb"\x1b(?:[\]P_^X][^\x07\x1b\n]*(?:\x07|\x1b\\)?|(?P<colour>\[[0-9;:]*m)|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)"
)
_C1 = re.compile(rb"\xc2[\x80-\x9f]")  # the same controls in one character, as UTF-8
# Bell, answerback, character sets and the like; tab, line feed, carriage return and backspace move within a line.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x08, 0x09, 0x0A, 0x0D, 0x1B})


def strip_escapes(data: bytes) -> bytes:
    """Return output without the sequences and characters that change a terminal."""
    if b"\x1b" in data:
        data = _SEQUENCE.sub(lambda match: match[0] if match["colour"] else b"", data)
    if b"\xc2" in data:
        data = _C1.sub(b"", data)
    return data.translate(None, _CONTROLS)


def strip_text(text: str) -> str:
    """Return text that was made by `bytes_to_text` without the sequences that change a terminal."""
    return bytes_to_text(strip_escapes(text_to_bytes(text)))
