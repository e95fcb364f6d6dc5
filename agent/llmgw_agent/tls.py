"""Whose certificates are believed: the system's, and those of the machine's own file."""

from __future__ import annotations

import functools
import ssl
from pathlib import Path

from llmgw_agent.errors import Refused


@functools.cache
def context(ca_file: Path | None) -> ssl.SSLContext:
    """What control's and the mirror's certificates are checked by. One for all, since loading them takes a while.

    Raises:
        Refused: the file has no certificates.
    """
    made = ssl.create_default_context()
    if ca_file is not None:
        try:
            made.load_verify_locations(ca_file)
        except OSError as e:
            do = "name a file with certificates in PEM format"
            raise Refused(f"--ca-file {ca_file} cannot be used", why=str(e), do=do) from None
    return made
