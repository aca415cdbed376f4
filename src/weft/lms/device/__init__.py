"""Devices and their links: CUDA, the simulated device, and host memory for copies."""
