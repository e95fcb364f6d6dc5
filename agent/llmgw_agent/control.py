"""The one conversation an agent has: it posts what is, and is answered with what should be."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

import httpx
import msgspec
from msgspec import UNSET

from llmgw_agent import durable, tls
from llmgw_agent.errors import OperatorError, Refused, Unreachable
from llmgw_agent.protocol import Orders, Report, digest
from llmgw_agent.settings import Settings

LOG = logging.getLogger(__name__)

CALL_S = 25.0
"""A call that control has not answered by then is given up. It answers after 20 s at the latest."""
CONNECT_S = 5.0
GATHER_S = 0.1
"""News seldom come alone, and a call just begun may still bring orders: so long it is left to."""
PAUSE_S = 1.0
"""Between two calls when nothing is new, should control answer at once."""
BACKOFF_S = (0.5, 30.0)
REFUSED_S = (5.0, 40.0)
"""First and longest wait after control could not be reached, and after it refused
us; shorter than the 45 s after which a node is silent."""
BACKOFF_GROWS = 1.5
"""A control that starts beside its agents is found within seconds, and one that is away is not asked often."""


class WholeWanted(Exception):
    """Control does not know the report that `same` refers to."""


class Control:
    """Control, as this agent talks to it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = httpx.AsyncClient(
            base_url=settings.control,
            verify=tls.context(settings.ca_file),
            timeout=httpx.Timeout(CALL_S, connect=CONNECT_S),
            # Proxies of the environment are not asked: nothing but main reads it.
            trust_env=False,
        )
        self._told = ""
        """Digest of the last whole report control has taken."""
        self._trouble = ""

    async def close(self) -> None:
        await self._http.aclose()

    async def talk(
        self, report: Callable[[], Report], obey: Callable[[Orders], None], news: asyncio.Event, *, whole: bool = False
    ) -> None:
        """Report and obey, for ever. Whatever happens here, the engines go on.

        Args:
            report: the whole of what is; asked at each call, and quick.
            obey: given orders. Raises OperatorError for those it refuses.
            news: set when there is something control should hear now: a waiting
                call is then ended, and another takes its place.
            whole: the next report is sent whole, as after every refusal.
        """
        failures = 0
        while True:
            news.clear()
            begun = time.monotonic()
            try:
                orders = await self._unless(news, report(), whole=whole)
                whole = False
                if orders is not None:
                    obey(orders)
                elif time.monotonic() - begun < PAUSE_S and not news.is_set():
                    await _pause(news, PAUSE_S)
                failures = 0
                self._settle()
            except WholeWanted:
                whole = True
            except OperatorError as e:
                whole = True
                self._say(e)
                first, longest = REFUSED_S if isinstance(e, Refused) else BACKOFF_S
                # Spread, so that a fleet does not come back in one moment.
                await asyncio.sleep(min(longest, first * BACKOFF_GROWS**failures) * random.uniform(0.5, 1.0))  # noqa: S311
                failures = min(failures + 1, 20)

    async def _unless(self, news: asyncio.Event, report: Report, *, whole: bool) -> Orders | None:
        """What a call brings; None also when news end it."""
        call = asyncio.ensure_future(self.post(report, whole=whole))
        told = asyncio.ensure_future(news.wait())
        try:
            await asyncio.wait({call, told}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                await asyncio.wait({call}, timeout=GATHER_S)
            return call.result() if call.done() else None
        finally:
            for task in (call, told):
                task.cancel()
            await asyncio.gather(call, told, return_exceptions=True)

    async def post(self, report: Report, *, whole: bool = False) -> Orders | None:
        """One call: the orders it brings, or None when there are no new ones.

        Raises:
            WholeWanted: say it again, whole.
            Unreachable: nobody answered, or not with an answer of ours.
            Refused: control does not want this node as it is.
        """
        mark = digest(report)
        if mark == self._told and not whole:
            body = msgspec.structs.replace(report, same=mark, inventory=UNSET, replicas=UNSET, versions=UNSET)
        else:
            body = report
        where = f"control at {self._settings.control}"
        headers = {"Authorization": f"Bearer {self._key()}", "Content-Type": "application/json"}
        try:
            async with asyncio.timeout(CALL_S):
                answer = await self._http.post("/agent/v1/report", content=msgspec.json.encode(body), headers=headers)
        except TimeoutError:
            raise Unreachable(f"{where} did not answer", why=f"{CALL_S:g} s passed", do="see whether it runs") from None
        except httpx.HTTPError as e:
            why = str(e) or type(e).__name__
            raise Unreachable(f"{where} cannot be reached", why=why, do="see whether it runs, and the URL") from None
        if answer.status_code in {409, 422} and not whole:
            raise WholeWanted
        orders = self._read(answer, where)
        if body is report:
            self._told = mark
        return orders

    def _read(self, answer: httpx.Response, where: str) -> Orders | None:
        said = answer.content[:200].decode(errors="replace").strip() or answer.reason_phrase
        match answer.status_code:
            case 204:
                return None
            case 200:
                try:
                    return durable.decode(answer.content, Orders)
                except durable.Damaged as e:
                    do = "see whether that is control's URL"
                    raise Unreachable(f"{where} answered what is not orders", why=str(e), do=do) from None
            case 401 | 403:
                do = f"put the sha256 of this node's key into server.yaml: {self._settings.key_file}"
                raise Refused(f"{where} does not let {self._settings.node} in", why=said, do=do)
            case 426:
                raise Refused(f"{where} speaks another protocol", why=said, do="update the older of the two")
            case code:
                raise Unreachable(f"{where} answered {code}", why=said, do="look at control's log")

    def _key(self) -> str:
        """The node's key, read at each call so that it can be replaced without a restart."""
        file = self._settings.key_file
        try:
            key = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise Refused(f"the key file {file} cannot be read", why=str(e), do="put the node's key there") from None
        if not key or not key.isascii() or not key.isprintable():
            raise Refused(f"the key file {file} holds no key", why="it is empty or not text", do="llmgw key new node")
        return key

    def _say(self, error: OperatorError) -> None:
        """Once for each trouble, not at each try."""
        if error.sentence != self._trouble:
            self._trouble = error.sentence
            LOG.warning("%s; engines go on meanwhile", error.sentence)

    def _settle(self) -> None:
        if self._trouble:
            self._trouble = ""
            LOG.info("control answers again, and is obeyed")


async def _pause(news: asyncio.Event, seconds: float) -> None:
    """That long, or until there are news."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return
