"""What gateways say they are asked, summed by control."""

from __future__ import annotations

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from llmgw.control.tables import Tables
from llmgw.core.observed import DemandSeen, Load
from llmgw.core.table import Demand, ModelDemand


class Told:
    """Gateways that tell a control whose clock stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.woken = 0
        self.tables = Tables(on_demand=self._wake, monotonic=lambda: self.now)

    def _wake(self) -> None:
        self.woken += 1

    async def tell(self, gateway: str, seq: int, boot: str = "b", **models: ModelDemand) -> int:
        body = msgspec.json.encode(Demand(gateway, boot, seq, models))
        request = make_mocked_request("POST", "/gateway/v1/demand")
        request._read_bytes = body
        return (await self.tables.demand(request, gateway)).status

    def seen(self, *gateways: str) -> DemandSeen:
        return self.tables.demand_seen(gateways)


@pytest.fixture
def told() -> Told:
    return Told()


async def test_what_several_gateways_are_asked_is_summed(told: Told):
    await told.tell("g1", 1, m=ModelDemand(2, 3, 5.0, 1.5))
    await told.tell("g2", 1, m=ModelDemand(1, 0, 1.0, 0.5), n=ModelDemand(0, 1))
    told.now += 2

    assert told.seen("g1", "g2") == DemandSeen({"m": Load(3, 3, 3.0, 2.0), "n": Load(0, 1, 2.0, None)})


async def test_a_gateway_that_is_not_in_server_yaml_any_more_asks_nothing(told: Told):
    await told.tell("g1", 1, m=ModelDemand(2, 3, 5.0, 1.5))

    assert told.seen("g2") == DemandSeen()


async def test_a_message_that_was_overtaken_changes_nothing(told: Told):
    await told.tell("g1", 2, m=ModelDemand(2))
    await told.tell("g1", 1, m=ModelDemand(7))

    assert told.seen("g1").loads["m"].waiting == 2


async def test_a_gateway_that_started_again_counts_from_one(told: Told):
    await told.tell("g1", 9, m=ModelDemand(2))
    await told.tell("g1", 1, boot="c", m=ModelDemand(7))

    assert told.seen("g1").loads["m"].waiting == 7


async def test_a_gateway_that_started_again_does_not_know_since_when_a_model_idles(told: Told):
    await told.tell("g1", 1, m=ModelDemand(0, 0, 400.0, 0.0))
    told.now += 5
    await told.tell("g1", 1, boot="c", m=ModelDemand())
    told.now += 3

    assert told.seen("g1").loads["m"].idle_for_s == 3.0


async def test_a_silent_gateway_makes_the_sum_unsure_until_it_is_given_up(told: Told):
    await told.tell("g1", 1, m=ModelDemand(0, 1))
    told.now += 30
    await told.tell("g2", 1)

    assert told.seen("g1", "g2") == DemandSeen({"m": Load(0, 1, 30.0)}, ("g1",), whole=False)
    told.now += 580
    await told.tell("g2", 2)
    assert told.seen("g1", "g2") == DemandSeen()


async def test_a_gateway_that_was_never_heard_of_is_silent_for_as_long(told: Told):
    told.now += 30
    assert told.seen("g1").silent == ("g1",)
    told.now += 600
    assert told.seen("g1") == DemandSeen()


async def test_somebody_waiting_wakes_the_loop(told: Told):
    await told.tell("g1", 1, m=ModelDemand(0, 4))
    assert told.woken == 0
    await told.tell("g1", 2, m=ModelDemand(1))
    assert told.woken == 1


async def test_a_message_that_cannot_be_read_is_refused(told: Told):
    request = make_mocked_request("POST", "/gateway/v1/demand")
    request._read_bytes = b"{"

    response = await told.tables.demand(request, "g1")

    assert isinstance(response, web.Response)
    assert response.status == 422
