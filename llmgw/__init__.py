"""Runs language models on your own machines from a git repository."""

__version__ = "0.1.0"
