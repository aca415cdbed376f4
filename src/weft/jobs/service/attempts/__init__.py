"""Attempts: a job's code is staged, its launcher started and followed, and its end judged."""
