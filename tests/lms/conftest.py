"""torch loads its compiler, and sets a variable, when a dispatch mode is first used: do that before any test."""

import torch._dynamo  # noqa: F401
