"""What may be asked: the types of the catalog, and every problem of a file.

Values and arithmetic only: nothing here reads a clock, a file or a socket.
"""
