"""Custom models in the form of PowerAI Vision: a zip with `train.py` and `deploy.py`, run in a process of its own."""
