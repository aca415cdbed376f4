"""Masking of environment variables in what is printed or written to files: plans, run directories, dry runs.

A plan is there to be read, mailed and attached to an issue, so values that may be secret are not in it: those of names
that look like it (`HF_TOKEN`, `WANDB_API_KEY`, `AWS_...`), those that the user gave with `--env`, and logins in URLs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

MASK = "***"
_WORDS = frozenset({"AUTH", "COOKIE", "JWT", "KEY", "KEYS", "PASS", "PAT", "PIN", "PW", "TOKEN", "TOKENS"})
_PARTS = ("APIKEY", "ACCESSKEY", "CREDENTIAL", "PASSPHRASE", "PASSWD", "PASSWORD", "PRIVATEKEY", "SECRET")
_PREFIXES = ("AWS_",)
_LOGIN = re.compile(r"(?<=://)[^/?#\s]+(?=@)")  # user and password in a URL


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name is likely to hold a secret."""
    upper = name.upper()
    words = re.split(r"[^A-Z0-9]+", upper)
    return (
        upper.startswith(_PREFIXES) or not _WORDS.isdisjoint(words) or any(part in upper for part in _PARTS)
    )


def masked(variables: Iterable[tuple[str, str]], given: Collection[str] = ()) -> dict[str, str]:
    """Return variables as they may be shown; `given` names those whose values are masked whatever their names."""
    return {
        name: MASK if value and (name in given or looks_secret(name)) else _LOGIN.sub(MASK, value)
        for name, value in variables
    }
