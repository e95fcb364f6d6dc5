"""Where commands look at sources from: this machine, or the fleet's mirror."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmgw.actuators.mirror import Mirror
from llmgw.catalog.server import Server
from llmgw.cli.asked import Reach
from llmgw.core.resolved import Ask, Resolved
from llmgw.errors import Misused
from llmgw.sources.hub import ENDPOINT, Hub
from llmgw.sources.locking import Look
from llmgw.sources.upstream import Upstream
from llmgw.sources.web import Web

AT_ONCE = 8
"""Sources looked at at the same time."""

MIRROR_S = 180.0
"""The mirror asks others in its turn, each with bounds of its own."""


@contextmanager
def look(reach: Reach, server: Server | None, *, facts: bool = True) -> Iterator[Look]:
    """How sources are looked at: through the mirror where that is asked for, else from this machine.

    Raises:
        OperatorError: no mirror is meant, or the hub is no address.
    """
    if reach.via is not None:
        yield _through(reach.via, server, reach.mirror_key_file, facts=facts)
        return
    with here(reach, server) as upstream:
        yield lambda source: upstream.resolve(source, facts=facts)


@contextmanager
def here(reach: Reach, server: Server | None) -> Iterator[Upstream]:
    """Looks from this machine, and over the byte port of the fleet's mirror at what that holds.

    Raises:
        Refused: the hub is no address.
    """
    with Web() as web:
        hub = hub_of(web, reach)
        yield Upstream(web, hub, mirror=server.mirror.base if server and server.mirror else None)


def hub_of(web: Web, reach: Reach) -> Hub:
    """The hub that is meant, asked as whom the command line or the environment names.

    Raises:
        Refused: it is no address, or the token is none.
    """
    named, token = os.environ.get("HF_TOKEN_PATH"), os.environ.get("HF_TOKEN", "")
    file = reach.token_file or (Path(named) if named and not token else None)
    return Hub(web, endpoint=endpoint_of(reach), token_file=file, token="" if file else token)


def endpoint_of(reach: Reach) -> str:
    """Where the hub's API is."""
    return reach.hub or os.environ.get("HF_ENDPOINT") or ENDPOINT


def _through(via: str, server: Server | None, key_file: Path | None, *, facts: bool) -> Look:
    """Looks from the mirror.

    Raises:
        Misused: no mirror is meant.
    """
    api = server.mirror.api if via == "mirror" and server and server.mirror else via
    if not api.startswith(("http://", "https://")):
        raise Misused(
            "no mirror is known to ask",
            why="server.yaml has no `mirror`" if via == "mirror" else f"{via} is no address",
            do="write its API: --via http://HOST:8082",
        )

    async def ask(source: Mapping[str, Any]) -> Resolved:
        mirror = Mirror(api, key_file=key_file, timeout_s=MIRROR_S)
        try:
            return await mirror.resolve(Ask(dict(source), facts))
        finally:
            await mirror.close()

    return lambda source: asyncio.run(ask(source))
