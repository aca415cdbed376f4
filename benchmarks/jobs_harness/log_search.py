"""A search in a gigabyte of logs; see `log_lines.py`."""

from __future__ import annotations

from benchmarks.jobs_harness.log_lines import search as main

__all__ = ["main"]
