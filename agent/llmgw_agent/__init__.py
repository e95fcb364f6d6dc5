"""The part of llmgw that runs on each node."""

__version__ = "0.1.0"
