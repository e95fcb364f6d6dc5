"""Figures: each against a peer or a limit, measured in one run."""
