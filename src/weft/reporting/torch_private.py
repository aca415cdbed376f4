"""Private names of torch that reports need; they hold for torch 2.11, 2.12 and 2.13. Torch itself is loaded by then."""

from __future__ import annotations

import sys
from typing import Any


def current_stream_number(device: int) -> int:
    """Return the CUDA stream in use on a device, 0 for the default one; as an object it takes as long as a copy."""
    torch: Any = sys.modules["torch"]
    number: int = torch._C._cuda_getCurrentRawStream(device)
    return number
