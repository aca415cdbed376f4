"""The garbage collector of a process of tests: it leaves alone what was imported and collected, which stays to the end.

Thousands of tests and the libraries they import are some millions of objects, which each full collection would walk.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
