"""What may be asked: the types of the catalog, and every problem of a file.

Values and arithmetic only: nothing here reads a clock, a file or a socket, but for
the two functions that write the schemas and compare them.
"""
