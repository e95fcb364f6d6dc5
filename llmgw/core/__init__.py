"""The decisions: what is wanted and what is seen in, what will be done out.

Nothing here reads a clock, a file, a socket or a random number.
"""
