"""A small control for tests of the agent: it takes reports, hands out orders, and misbehaves when told to."""

from __future__ import annotations

import asyncio
from typing import Self

import msgspec
from aiohttp import web

from fakes.waiting import until
from llmgw_agent.protocol import PROTOCOL, Orders, Phase, ReplicaOrder, ReplicaReport, Report, VersionOrder, digest


class FakeControl:
    """Real HTTP on loopback; its orders are what the test says."""

    def __init__(self, *, address: str = "127.0.0.1", hold_s: float = 20.0) -> None:
        self.orders: Orders | None = None
        """None: it settles, and answers 204 to everybody."""
        self.report: Report | None = None
        """The last whole report."""
        self.posts: list[Report] = []
        self.status = 0
        """Answer everything with this, when not 0."""
        self.text: str | None = None
        """Answer everything with 200 and this, when not None."""
        self.forgetful = False
        """Answer 409 to the next report that says `same`."""
        self.forgot_at = 0
        """How many posts there were when it last did."""
        self.keys: set[str] = set()
        self._address, self._hold_s = address, hold_s
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.down()

    async def up(self) -> None:
        app = web.Application()
        app.router.add_post("/agent/v1/report", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]

    async def down(self) -> None:
        """As if the link were cut: nothing listens at its address."""
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    def order(self, *replicas: ReplicaOrder, versions: tuple[VersionOrder, ...] = (), epoch: int = 1) -> Orders:
        """From now on this, and nothing else, should be on the node."""
        seq = self.orders.seq + 1 if self.orders and self.orders.epoch == epoch else 1
        self.orders = Orders(PROTOCOL, epoch, seq, self._address, replicas, versions)
        self._changed.set()
        return self.orders

    def replica(self, replica_id: str, generation: int = 1) -> ReplicaReport | None:
        """One replica of the last report."""
        if self.report is None or not isinstance(self.report.replicas, tuple):
            return None
        return next((r for r in self.report.replicas if (r.id, r.generation) == (replica_id, generation)), None)

    async def sees(
        self, phase: Phase, replica_id: str = "m/cpu/0", generation: int = 1, *, within_s: float = 15.0
    ) -> ReplicaReport:
        """The replica, once it is reported in this phase."""

        def there() -> ReplicaReport | None:
            r = self.replica(replica_id, generation)
            return r if r and r.phase is phase else None

        try:
            found = await until(there, within_s=within_s)
        except AssertionError:
            raise AssertionError(f"{replica_id} is not {phase}: {self.replica(replica_id, generation)}") from None
        assert found is not None
        return found

    async def misses(self, replica_id: str = "m/cpu/0", generation: int = 1, *, within_s: float = 15.0) -> None:
        """Back once the replica is reported no more."""
        said = f"{replica_id} gone"
        await until(lambda: self.report and not self.replica(replica_id, generation), within_s=within_s, said=said)

    async def _answer(self, request: web.Request) -> web.Response:
        report = msgspec.json.decode(await request.read(), type=Report)
        self.keys.add(request.headers.get("Authorization", ""))
        self.posts.append(report)
        if self.status:
            return web.Response(status=self.status, text="asked to fail")
        if self.text is not None:
            return web.Response(text=self.text)
        if report.same:
            if self.forgetful or self.report is None or digest(self.report) != report.same:
                self.forgetful, self.forgot_at = False, len(self.posts)
                return web.Response(status=409)
        else:
            self.report = report
        deadline = asyncio.get_running_loop().time() + self._hold_s
        while self.orders is None or (report.obeyed_epoch, report.obeyed_seq) == (self.orders.epoch, self.orders.seq):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                return web.Response(status=204)
        return web.Response(body=msgspec.json.encode(self.orders), content_type="application/json")
