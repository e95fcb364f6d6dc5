"""Arithmetic over values: memory, speed, what fits."""
