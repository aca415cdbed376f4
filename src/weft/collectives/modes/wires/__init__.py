"""Wires: lighter forms of float32 values between hosts."""
