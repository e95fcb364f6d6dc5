"""HTTP calls of commands and of control: the only module that imports httpx.

An answer that is not one of ours is an error in a sentence; what cannot be
reached is `Unreachable`, so that the caller knows that waiting may help.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import httpx
import msgspec

from llmgw.errors import OperatorError, Refused, Unreachable
from llmgw.net.answers import Errored
from llmgw.net.decoding import decode
from llmgw.net.key import read_key

T = TypeVar("T")

LARGEST_ANSWER_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that is still coming."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]


class Client:
    """Calls one server of ours. Its key is read from a file at each call, so that it can be changed."""

    def __init__(
        self,
        base: str,
        *,
        name: str,
        key_file: Path | None = None,
        ca_file: Path | None = None,
        timeout_s: float = 10.0,
        from_environment: bool = False,
    ) -> None:
        """Make no connection yet.

        Args:
            base: http(s)://host:port.
            name: how the server is spoken of in errors: "control", "the mirror".
            key_file: holds the bearer key.
            ca_file: holds the certificates to trust in place of the system's.
            timeout_s: of connecting, and of each read and write.
            from_environment: whether it is somebody else's server, and may lie behind a proxy.

        Raises:
            Refused: the certificates cannot be read.
        """
        self.base, self.name, self._key_file = base.rstrip("/"), name, key_file
        # No proxy from the environment where these are machines of one fleet.
        trust = _trust(name, self.base, ca_file)
        self._http = httpx.AsyncClient(timeout=timeout_s, trust_env=from_environment, verify=trust)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection."""
        await self._http.aclose()

    async def call(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Call and take any answer.

        Raises:
            Unreachable: nothing answered in time.
        """
        try:
            async with self._http.stream(
                method, self.base + path, content=body, headers=self._headers(headers, body)
            ) as response:
                parts: list[bytes] = []
                size = 0
                async for part in response.aiter_bytes():
                    size += len(part)
                    if size > LARGEST_ANSWER_BYTES:
                        raise Refused(
                            f"{self.name} answered too much",
                            why=f"{path} gave more than {LARGEST_ANSWER_BYTES} bytes",
                            do=f"see what listens at {self.base}",
                        )
                    parts.append(part)
                return Answer(response.status_code, b"".join(parts), response.headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
            raise self._unreachable(e) from None

    @asynccontextmanager
    async def streamed(
        self, path: str, *, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Streamed]:
        """Send a POST, and read its answer as it comes. Leaving the block ends it.

        Raises:
            Unreachable: nothing answered in time, or the answer broke off.
        """
        try:
            async with self._http.stream(
                "POST", self.base + path, content=body, headers=self._headers(headers, body)
            ) as response:
                yield Streamed(response.status_code, response.headers, response.aiter_bytes())
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
            raise self._unreachable(e) from None

    async def get(self, path: str, kind: type[T]) -> T:
        """The answer of a GET, as a value.

        Raises:
            OperatorError: it answered with an error, or with something else.
        """
        return self.value(await self.call("GET", path), path, kind)

    def _headers(self, given: Mapping[str, str] | None, body: bytes | None) -> dict[str, str]:
        sent = dict(given or {})
        if self._key_file is not None:
            sent["authorization"] = f"Bearer {read_key(self._key_file)}"
        if body is not None:
            sent.setdefault("content-type", "application/json")
        return sent

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"{self.name} did not answer at {self.base}",
            why=str(error) or type(error).__name__,
            do=f"see that {self.name} runs there, and that this machine reaches it",
        )

    def value(self, answer: Answer, path: str, kind: type[T]) -> T:
        """The value of a good answer.

        Raises:
            Unreachable: it says that it cannot now.
            Refused: it says that it will not.
            OperatorError: it is not an answer of ours.
        """
        if answer.status >= 400:
            raise self.error(answer, path)
        try:
            return decode(answer.body, kind)
        except msgspec.DecodeError as e:
            raise OperatorError(
                f"{self.name} answered something else than was asked",
                why=f"{path}: {e}",
                do=f"see what listens at {self.base}, and which version of llmgw it is",
            ) from None

    def error(self, answer: Answer, path: str) -> OperatorError:
        """What an answer of 400 and above says."""
        kind = Unreachable if answer.status in {429, 500, 502, 503, 504, 507} else Refused
        try:
            said = decode(answer.body, Errored).error
        except msgspec.DecodeError:
            return kind(
                f"{self.name} answered {answer.status}",
                why=f"{path} is not as expected there",
                do=f"see what listens at {self.base}",
            )
        return kind(said.what, why=said.why, do=said.do)


def _trust(name: str, base: str, ca_file: Path | None) -> ssl.SSLContext:
    """Whose certificates are believed. At a plain address none is shown, and nobody's are."""
    try:
        if ca_file or not base.lower().startswith("http:"):
            return ssl.create_default_context(cafile=ca_file)
        # To load the system's takes longer than most calls.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except (OSError, ssl.SSLError) as e:
        raise Refused(
            f"the certificate of {name} cannot be checked", why=f"{ca_file}: {e}", do="name a file of PEM certificates"
        ) from None
