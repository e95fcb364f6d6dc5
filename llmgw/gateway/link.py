"""The gateway's way to control: where it is, and the key that opens it."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import aiohttp

from llmgw.errors import Refused, Unreachable
from llmgw.net.key import read_key

MAX_TABLE_BYTES = 256 << 20


class ControlLink:
    """Calls control's gateway API. The key is read at each call, so that a new one needs no restart."""

    def __init__(self, url: str, key_file: Path, ca_file: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._key_file = key_file
        try:
            trust = True if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise Refused(
                "control's certificate cannot be checked",
                why=f"{ca_file}: {error}",
                do="give --ca-file a file of PEM certificates that can be read",
            ) from None
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust), trust_env=False)

    async def close(self) -> None:
        await self._session.close()

    async def table(self, version: str, wait_s: float) -> bytes | None:
        """The table, as soon as it is another than `version`, or after `wait_s`.

        None: it still is that one, or control has none yet.

        Raises:
            OperatorError: control cannot be had, or refuses.
        """
        headers = {"If-None-Match": f'"{version}"'} if version else {}
        url = f"{self._url}/gateway/v1/table?wait={wait_s:.0f}"
        status, body = await self._call("GET", url, headers, None, wait_s + 10)
        return body if status == 200 else None

    async def demand(self, body: bytes) -> None:
        """Tell control what is asked of this gateway.

        Raises:
            OperatorError: control cannot be had, or refuses.
        """
        headers = {"Content-Type": "application/json"}
        await self._call("POST", f"{self._url}/gateway/v1/demand", headers, body, 10)

    async def _call(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes | None,
        limit_s: float,
    ) -> tuple[int, bytes]:
        headers["Authorization"] = f"Bearer {read_key(self._key_file)}"
        limits = aiohttp.ClientTimeout(total=limit_s, sock_connect=5)
        try:
            async with self._session.request(
                method, url, headers=headers, data=body, timeout=limits, allow_redirects=False
            ) as answer:
                said = await answer.content.read(MAX_TABLE_BYTES)
                self._check(answer.status)
                while more := await answer.content.readany():
                    said += more
                return answer.status, said
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                "control cannot be reached",
                why=f"{self._url}: {str(error) or type(error).__name__}",
                do="see that `llmgw control` runs and that this machine reaches it",
            ) from None

    def _check(self, status: int) -> None:
        given: dict[str, Any] = {"why": f"{self._url} answered {status}"}
        if status in {401, 403}:
            raise Refused(
                "control refuses this gateway",
                **given,
                do=f"see that server.yaml has the sha256 of the key in {self._key_file}",
            )
        if status not in {200, 202, 204, 304}:
            raise Unreachable("control does not give the table", **given, do="see control's log")
