"""The program `llmgw`, and `python -m llmgw`: how processes of one installation start each other."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command line. Ctrl-C may come before it is even read in."""
    try:
        from llmgw.cli.main import main as called  # noqa: PLC0415 - so that Ctrl-C can come while it is read

        called()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
