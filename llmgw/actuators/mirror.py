"""How what is decided about weights reaches the mirror."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import msgspec

from llmgw.core.actions import Fetch, Remove
from llmgw.core.holdings import FetchRequest, Holding, MirrorHealth, MirrorSeen
from llmgw.core.resolved import Ask, Resolved
from llmgw.net.http import Client


class Mirror:
    """Calls the mirror's management API."""

    def __init__(self, api: str, *, key_file: Path | None = None, timeout_s: float = 5.0) -> None:
        self.api = api
        self._client = Client(api, name="the mirror", key_file=key_file, timeout_s=timeout_s)

    async def close(self) -> None:
        """End every connection."""
        await self._client.close()

    async def look(self) -> MirrorSeen:
        """The whole of what it holds.

        Raises:
            OperatorError: it cannot be asked.
        """
        # In this order: what is removed between the two is seen twice, and never missed as held and as free.
        holdings = await self._client.get("/v1/models", tuple[Holding, ...])
        health = await self._client.get("/v1/health", MirrorHealth)
        return MirrorSeen(holdings, health.disk_free_bytes, health.boot, health.removed_bytes)

    async def fetch(self, action: Fetch) -> None:
        """Ask it to fetch. The same content joins a fetch under way.

        Raises:
            OperatorError: it will not, or cannot be asked.
        """
        request = (
            FetchRequest(action.name, action.version, files=action.files, retry=action.retry)
            if action.files
            else FetchRequest(
                action.name, action.version, from_=action.source, sha256=action.sha256, retry=action.retry
            )
        )
        answer = await self._client.call("POST", "/v1/models", body=msgspec.json.encode(request))
        if answer.status >= 400:
            raise self._client.error(answer, "/v1/models")

    async def resolve(self, ask: Ask) -> Resolved:
        """What a source holds, as the mirror sees it.

        Raises:
            OperatorError: it cannot see it, or cannot be asked.
        """
        answer = await self._client.call("POST", "/v1/resolve", body=msgspec.json.encode(ask))
        return self._client.value(answer, "/v1/resolve", Resolved)

    async def remove(self, action: Remove) -> None:
        """Ask it to remove a version. One that is not there is removed already.

        Raises:
            OperatorError: it will not, or cannot be asked.
        """
        path = f"/v1/models/{quote(action.name, safe='')}/{quote(action.version, safe='')}"
        answer = await self._client.call("DELETE", path)
        if answer.status >= 400 and answer.status != 404:
            raise self._client.error(answer, path)
