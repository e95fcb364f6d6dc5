"""Fetching one file, whole and checked, from wherever it is: the agent and the mirror do it in the same way."""
