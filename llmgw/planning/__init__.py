"""What a model needs and how fast it will be, worked out before anything runs.

Arithmetic over values: a reader is handed a source of bytes, and nothing here
opens a file or a socket but for the tables that come with the package.
"""
