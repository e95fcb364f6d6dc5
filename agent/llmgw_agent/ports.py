"""Ports for engines: chosen here, free at that moment, never in the catalog."""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Collection

from llmgw_agent.dossier import Fault
from llmgw_agent.protocol import PORTS


def choose(address: str, taken: Collection[int]) -> int:
    """A port that nobody listens on at `address`, other than those our own engines have.

    Somebody may take it before the engine does; the engine then ends, and
    another is chosen. Tried from a random place, so that two agents on one
    machine seldom reach for the same.

    Raises:
        Fault: there is none, or the address is not this machine's.
    """
    begin = secrets.randbelow(len(PORTS))
    for i in range(len(PORTS)):
        port = PORTS[(begin + i) % len(PORTS)]
        if port not in taken and _is_free(address, port):
            return port
    why = f"all ports from {PORTS.start} to {PORTS.stop - 1} are taken on {address}"
    raise Fault("port", "no engine was started", why=why, do="stop what listens there")


def _is_free(address: str, port: int) -> bool:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(where)
    except (OSError, UnicodeError) as e:
        if isinstance(e, OSError) and e.errno in {errno.EADDRINUSE, errno.EACCES}:
            return False
        why = f"{address} is no address of this machine"
        raise Fault("port", "no engine was started", why=why, do="correct the node's address in server.yaml") from None
    return True
