"""`POST /hooks/git`: a git server says that something was pushed. It means: look now, and nothing more."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from aiohttp import web

from llmgw.errors import OperatorError
from llmgw.net.answers import refusal
from llmgw.net.key import read_key

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Of a call's body. Nothing in it is read but to see that its signature is right."""
NO_SOONER_S = 5.0
"""Between two looks that calls ask for: a flood of them costs the git server no more than this."""

SIGNED = ("X-Hub-Signature-256", "X-Gitea-Signature", "X-Forgejo-Signature", "X-Gogs-Signature")
"""Where servers write the HMAC of the body, with sha256: GitHub's begins with `sha256=`."""
PLAIN = "X-Gitlab-Token"
"""Where GitLab writes the secret itself."""


class Hooks:
    """Answers git servers. Who calls proves it by a secret, since anybody may reach the port."""

    def __init__(self, secret_file: Path | None, look: Callable[[], None], now: Callable[[], float]) -> None:
        """Call nobody yet.

        Args:
            secret_file: holds the secret, and is read at each call. None: no call is taken.
            look: has the repository looked at soon.
            now: seconds, that only go up.
        """
        self._secret_file, self._look, self._now = secret_file, look, now
        self._last: float | None = None

    async def pushed(self, request: web.Request) -> web.Response:
        """Whatever was pushed, wherever: a look finds out."""
        if self._secret_file is None:
            return refusal(
                404, "no hook is served here", "control was started without a secret", "give --hook-secret-file"
            )
        try:
            secret = read_key(self._secret_file).encode()
        except OperatorError as e:
            log.warning("a call of a git server was not taken: %s", e.sentence)
            return refusal(503, "the hook's secret cannot be read", "see control's log", "mend its file")
        body = await _body(request)
        if body is None:
            return refusal(413, "the body is too large", f"more than {MOST_BYTES} bytes", "send the push event alone")
        if not any(_same(given, asked) for given, asked in _proofs(request, secret, body)):
            return refusal(
                401,
                "the call is not signed with the hook's secret",
                "it carries no signature that fits its body",
                "write the secret of --hook-secret-file into the webhook's settings at the git server",
            )
        if self._last is None or self._now() - self._last >= NO_SOONER_S:
            self._last = self._now()
            self._look()
        return web.Response(status=202)


async def _body(request: web.Request) -> bytes | None:
    parts, size = [], 0
    async for part in request.content.iter_chunked(1 << 16):
        size += len(part)
        if size > MOST_BYTES:
            return None
        parts.append(part)
    return b"".join(parts)


def _proofs(request: web.Request, secret: bytes, body: bytes) -> Iterator[tuple[bytes, bytes]]:
    signature = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
    for name in SIGNED:
        yield request.headers.get(name, "").removeprefix("sha256=").encode("utf-8", "surrogateescape"), signature
    yield request.headers.get(PLAIN, "").encode("utf-8", "surrogateescape"), secret


def _same(given: bytes, asked: bytes) -> bool:
    return hmac.compare_digest(given, asked)
