"""What a test needs from the machine: without it the test is skipped at a desk, and fails in CI."""

from __future__ import annotations

import os
import shutil

import pytest


def require(missing: str | None) -> None:
    """Go on if nothing is missing. In CI a skipped test would hide that it never ran."""
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing, pytrace=False)
    if missing:
        pytest.skip(missing)


def missing_tools(*tools: str) -> str | None:
    """Why a test bed made of these tools cannot be built here, if so."""
    if os.geteuid() != 0:
        return "must be root to make network namespaces"
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else None
