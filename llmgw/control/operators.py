"""What operators ask control: how it is, what it sees, and enough to plan with."""

from __future__ import annotations

import msgspec
from aiohttp import web
from msgspec import Struct

from llmgw import __version__
from llmgw.catalog import canonical
from llmgw.control.follow import Follower
from llmgw.control.loop import Loop
from llmgw.control.metrics import CONTENT_TYPE_LATEST, Figures, exposition
from llmgw.control.writer import Writer
from llmgw.core.live import Live, SeenNow, figures, specs, without_keys
from llmgw.net.answers import refusal


class Health(Struct, frozen=True):
    """`GET /v1/health`, for whoever restarts processes: no key is needed, and nothing is told."""

    ok: bool
    version: str
    settled: bool


class Operators:
    """Answers operators."""

    def __init__(self, loop: Loop, writer: Writer, follower: Follower) -> None:
        self._loop, self._writer, self._follower = loop, writer, follower

    async def health(self, _request: web.Request) -> web.Response:
        """Whether control runs."""
        settled = self._loop.plan is not None and self._loop.plan.settled
        return _json(Health(ok=True, version=__version__, settled=settled))

    async def status(self, _request: web.Request) -> web.Response:
        """The status as it is now."""
        loop = self._loop
        wanted = loop.followed.wanted if loop.followed else None
        seen = loop.observe()
        now = None
        if wanted is not None and loop.plan is not None:
            now = loop.status(wanted, seen, loop.plan, loop.now())
        mine = (*loop.trouble, self._follower.trouble, self._writer.trouble, *loop.reports.trouble())
        trouble = tuple(t for t in mine if t)
        return _json(Live(now, loop.plan.held if loop.plan else (), without_keys(seen), trouble))

    async def metrics(self, _request: web.Request) -> web.Response:
        """The same as numbers."""
        loop, now = self._loop, self._loop.now()
        wanted, seen = (loop.followed.wanted if loop.followed else None), loop.observe()
        said = loop.status(wanted, seen, loop.plan, now) if wanted is not None and loop.plan is not None else None
        figures = Figures(wanted, seen, loop.plan, said, now, self._follower.failures, self._writer.failures)
        return web.Response(body=exposition(figures), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def seen(self, _request: web.Request) -> web.Response:
        """What a plan is made of."""
        loop = self._loop
        wanted = loop.followed.wanted if loop.followed else None
        return _json(
            SeenNow(
                wanted.commit if wanted else "",
                wanted.applied if wanted else "",
                canonical.spec(wanted.server) if wanted else {},
                specs(wanted) if wanted else (),
                without_keys(loop.observe()),
                loop.memory,
            )
        )

    async def figures(self, request: web.Request) -> web.Response:
        """What was predicted of a model's replicas, beside what is measured."""
        wanted = self._loop.followed.wanted if self._loop.followed else None
        name = request.match_info["model"]
        found = figures(wanted, self._loop.observe(), name) if wanted else None
        if found is None:
            return refusal(
                404, f"there is no model {name[:64]!r}", "the catalog has none of that name", "llmgw status lists them"
            )
        return _json(found)


def _json(value: Struct) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
