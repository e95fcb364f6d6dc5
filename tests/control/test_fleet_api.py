"""What agents, gateways and operators are answered, over real sockets."""

import asyncio
import re
import time
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec import UNSET, structs

from control.fleet import a_control, a_model, a_server, until
from llmgw.core.live import Live
from llmgw.core.table import Demand, ModelDemand, Table
from llmgw.errors import Refused, Unreachable
from llmgw.net.http import Client
from llmgw.sources.fleet import Reports
from llmgw_agent.protocol import (
    PROTOCOL,
    SILENT_AFTER_S,
    Claim,
    Orders,
    Phase,
    ReplicaReport,
    Report,
    digest,
)

FAILED = ReplicaReport("m/cpu/0", 1, Phase.FAILED)
DEEP = b'{"node":"n1","boot":"b","later":' + b"[" * 500_000


def said(answer):
    """What, why and do of an error."""
    return msgspec.json.decode(answer.body)["error"]


async def test_an_agent_that_reports_gets_its_orders_as_soon_as_there_are_any(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        orders = await site.node().obey()

    assert [(r.id, r.generation, r.action) for r in orders.replicas] == [("m/cpu/0", 1, "run")]
    assert orders.replicas[0].path == "/models/m.gguf"
    assert (orders.epoch, orders.seq) == (1, 1)


async def test_a_waiting_agent_is_told_of_a_pushed_commit_at_once(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        await until(lambda: _has(node, 1))
        waiting = asyncio.create_task(node.obey())
        began = time.monotonic()

        site.push(m=a_model(replicas=2))
        orders = await waiting

    assert [r.id for r in orders.replicas] == ["m/cpu/0", "m/cpu/1"]
    assert time.monotonic() - began < 5


async def _has(node, count):
    await node.obey()
    return len(node.replicas) == count


async def test_while_control_settles_an_agent_is_told_nothing_which_is_not_empty_orders(tmp_path):
    files = {"m": a_model()}
    async with a_control(tmp_path, files={**files, "server": a_server("n1", "n2")}) as site:
        first, second = site.node("n1"), site.node("n2")
        waiting = asyncio.create_task(first.call())
        done, _ = await asyncio.wait({waiting}, timeout=1.0)
        assert not done, "it was answered before n2 had spoken"

        await second.obey()
        answer = await waiting

    assert answer.status == 200


async def test_a_newer_call_of_a_node_ends_the_wait_of_the_older(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        await until(lambda: _has(node, 1))
        older = asyncio.create_task(node.call())
        await asyncio.wait({older}, timeout=0.3)
        newer = asyncio.create_task(site.node().call(node.report()))

        answer = await older
        newer.cancel()

    assert answer.status == 204


async def test_an_agent_without_news_sends_the_digest_of_what_it_said_last(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        whole = node.report()
        await node.call(whole)
        same = Report("n1", "boot", same=digest(whole))
        known = await node.call(same)
        unknown = await node.call(msgspec.structs.replace(same, same="0123456789abcdef"))

    assert known.status == 200, "it had not obeyed the newest orders, and got them again"
    assert (unknown.status, said(unknown)["do"]) == (409, "send it whole")


@pytest.mark.parametrize(
    ("report", "status", "what"),
    [
        pytest.param(Report("n2", "boot"), 403, "this is not the key of n2", id="another node's name"),
        pytest.param(
            Report("n1", "boot", protocol=PROTOCOL + 1),
            426,
            f"this agent speaks protocol {PROTOCOL + 1}",
            id="a later protocol",
        ),
        pytest.param(
            Report("n1", "boot", replicas=(ReplicaReport("no-id", 1, Phase.READY),)),
            422,
            "this report cannot be read",
            id="an id that is none",
        ),
        pytest.param(
            Report("n1", "boot", replicas=(FAILED, structs.replace(FAILED, attempts=2)), versions=()),
            422,
            "this report cannot be read",
            id="one replica twice",
        ),
        pytest.param(
            Report("n1", "boot", replicas=(structs.replace(FAILED, version="no-slash"),), versions=()),
            422,
            "this report cannot be read",
            id="a version that is none",
        ),
        pytest.param(
            Report("n1", "boot", replicas=(structs.replace(FAILED, claim=Claim(1, 1, 2**62)),), versions=()),
            422,
            "this report cannot be read",
            id="more cards than any machine has",
        ),
        pytest.param(
            Report("n1", "boot", versions=()),
            409,
            "the whole report is needed",
            id="nothing said of replicas, and nothing known",
        ),
    ],
)
async def test_a_report_that_cannot_be_is_refused_in_a_sentence(tmp_path, report, status, what):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        answer = await until(lambda: _answered(node, report))

    assert (answer.status, said(answer)["what"]) == (status, what)


async def _answered(node, report):
    answer = await node.call(report)
    return answer if answer.status != 503 else None


@pytest.mark.parametrize("body", [b"", b"[]", b'{"node": 5}', b"\xff\xfe", b"{" * 10_000, DEEP])
async def test_ds10_a_hostile_node_is_refused_and_the_others_go_on(tmp_path, body):
    async with a_control(tmp_path, files={"m": a_model(), "server": a_server("n1", "bad")}) as site:
        bad, good = site.client("node", "bad"), site.node("n1")
        await until(lambda: _called(site.node("bad", memory_bytes=0)))
        answer = await bad.call("POST", "/agent/v1/report", body=body)
        await until(lambda: _has(good, 1))

    assert answer.status == 422
    assert [k[0] for k in good.replicas] == ["m/cpu/0"]


async def _called(node):
    waiting = asyncio.create_task(node.call())
    await asyncio.wait({waiting}, timeout=0.2)
    waiting.cancel()
    return True


async def test_what_a_report_leaves_out_is_as_it_was_said_before(tmp_path):
    # Taken for none, the agent would be told to drain what it serves.
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        node = site.node()
        await until(lambda: _has(node, 1))
        # Nothing new is said to it, so that its answer comes late.
        told = asyncio.create_task(node.call())
        await until(lambda: _live(site.client("operator", "ana"), "ready"))
        left_out = structs.replace(node.report(), inventory=UNSET, replicas=UNSET, versions=UNSET, agent_version="2")
        waiting = asyncio.create_task(site.node().call(left_out))
        live = await until(lambda: _live_of_version(site.client("operator", "ana"), "2"))
        site.push(other=a_model("other"))
        orders = await until(node.obey)
        told.cancel()
        waiting.cancel()

    (seen,) = live.observed.nodes
    assert [r.id for r in seen.replicas] == ["m/cpu/0"]
    assert seen.inventory is not None
    assert [(r.id, r.action) for r in orders.replicas] == [("m/cpu/0", "run"), ("other/cpu/0", "run")]


async def _live_of_version(client, version):
    live = await _live(client, "ready")
    return live if live and live.observed.nodes[0].agent_version == version else None


async def test_a_second_agent_of_one_name_is_refused_while_the_first_speaks(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        first, second = site.node(), site.node()
        mine = structs.replace(first.report(), instance="one")
        await until(lambda: _answered(first, mine))
        refused = await second.call(structs.replace(second.report(), instance="two"))
        again = await first.call(mine)
        older = await second.call(first.report())
        answer = await site.client("operator", "ana").call("GET", "/v1/status")

    assert (refused.status, said(refused)["what"]) == (409, "another agent reports as n1")
    assert re.match(r"the one at 127\.0\.0\.1 does for \d+ s, and spoke \d+ s ago", said(refused)["why"])
    assert again.status == 200
    assert older.status == 200, "one that does not say which it is cannot be told from the first"
    assert "a second agent calls itself n1" in answer.body.decode()


async def test_an_agent_that_has_been_silent_is_replaced_by_another_of_its_name():
    now = 0.0
    reports = Reports(on_news=lambda: None, monotonic=lambda: now)
    app = web.Application()

    async def handle(request):
        return await reports.handle(request, "n1")

    app.router.add_post("/", handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:

        async def tell(instance):
            whole = Report("n1", "boot", instance=instance, replicas=(), versions=())
            await reports.publish({"n1": Orders(PROTOCOL, 1, round(now) + 1, "127.0.0.1")})
            async with session.post(server.make_url("/"), data=msgspec.json.encode(whole)) as answer:
                return answer.status

        assert await tell("one") == 200
        now = SILENT_AFTER_S - 1
        assert await tell("two") == 409
        assert len(reports.trouble()) == 1
        now = SILENT_AFTER_S + 1
        assert await tell("two") == 200
        assert await tell("one") == 409

    assert len(reports.trouble()) == 1


@pytest.mark.parametrize("wrong", [0.0, -7200.0], ids=["right", "of a clock that was set back"])
async def test_a_replica_that_does_not_change_grows_older_though_nothing_more_is_told_of_it(wrong):
    # Told once and then only that all is as it was, one that had failed stayed as young as in its report for ever.
    now = 0.0
    reports = Reports(on_news=lambda: None, monotonic=lambda: now)
    app = web.Application()

    async def handle(request):
        return await reports.handle(request, "n1")

    app.router.add_post("/", handle)
    await reports.publish({"n1": Orders(PROTOCOL, 1, 1, "127.0.0.1")})
    old = ReplicaReport("m/cpu/1", 1, Phase.READY, age_s=5000.0)
    whole = Report("n1", "boot", replicas=(structs.replace(FAILED, age_s=2.0 + wrong), old), versions=())
    same = Report("n1", "boot", same=digest(whole))

    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        for report in (whole, same, same):
            async with session.post(server.make_url("/"), data=msgspec.json.encode(report)) as answer:
                assert answer.status == 200
            now += 20.0

    (seen,) = reports.seen(["n1"])
    failed, old = seen.replicas
    assert (failed.age_s, seen.age_s) == (62.0 if not wrong else 60.0, 20.0)
    assert old.age_s >= 5000.0


async def test_a_key_opens_its_own_role_and_no_other(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        gateway, stranger = site.client("gateway", "g1"), site.client("node", "stranger")
        report = msgspec.json.encode(Report("n1", "boot"))
        wrong_role = await until(lambda: _not_503(gateway, "POST", "/agent/v1/report", report))
        unknown = await stranger.call("POST", "/agent/v1/report", body=report)
        nothing = await stranger.call("GET", "/no/such/path")

    assert (wrong_role.status, said(wrong_role)["what"]) == (403, "this is the key of a gateway")
    assert (unknown.status, said(unknown)["what"]) == (401, "this key is not known here")
    assert nothing.status == 404


async def _not_503(client, method, path, body=None):
    answer = await client.call(method, path, body=body)
    return answer if answer.status != 503 else None


async def test_a_gateway_gets_the_table_waits_for_the_next_and_is_not_sent_the_same_twice(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        gateway, node = site.client("gateway", "g1"), site.node()
        serving = asyncio.create_task(node.serve())
        table = await until(lambda: _table(gateway, "m/cpu/0"))
        same = await gateway.call("GET", "/gateway/v1/table?wait=0", headers={"if-none-match": f'"{table.version}"'})
        waiting = asyncio.create_task(
            gateway.call("GET", "/gateway/v1/table?wait=20", headers={"if-none-match": f'"{table.version}"'})
        )
        site.push(m=a_model(replicas=2))
        changed = await waiting
        serving.cancel()

    (replica,) = table.models[0].replicas
    assert (replica.url, replica.key, replica.state) == ("http://127.0.0.1:7501", "engine-secret", "ready")
    assert same.status == 304
    assert changed.status == 200
    assert msgspec.json.decode(changed.body, type=Table).version != table.version


async def _table(client, replica):
    answer = await client.call("GET", "/gateway/v1/table")
    if answer.status != 200:
        return None
    table = msgspec.json.decode(answer.body, type=Table)
    return table if [r for m in table.models for r in m.replicas if r.id == replica] else None


async def test_demand_is_taken_and_one_that_cannot_be_read_is_refused(tmp_path):
    async with a_control(tmp_path) as site:
        gateway = site.client("gateway", "g1")
        demand = msgspec.json.encode(Demand("g1", "boot", 1, {"m": ModelDemand(waiting=2)}))
        taken = await until(lambda: _not_503(gateway, "POST", "/gateway/v1/demand", demand))
        refused = await gateway.call("POST", "/gateway/v1/demand", body=b"{}")

    assert taken.status == 204
    assert refused.status == 422


async def test_an_operator_sees_the_fleet_and_never_an_engines_key(tmp_path):
    async with a_control(tmp_path, files={"m": a_model()}) as site:
        operator, node = site.client("operator", "ana"), site.node()
        serving = asyncio.create_task(node.serve())
        live = await until(lambda: _live(operator, "ready"))
        seen = await operator.call("GET", "/v1/seen")
        serving.cancel()

    assert [(m.name, m.state) for m in live.status.models] == [("m", "ready")]
    assert b"engine-secret" not in seen.body
    assert b"engine-secret" not in msgspec.json.encode(live)


async def _live(client, state):
    answer = await client.call("GET", "/v1/status")
    if answer.status != 200:
        return None
    live = msgspec.json.decode(answer.body, type=Live)
    return live if live.status and [m for m in live.status.models if m.state == state] else None


async def test_control_listens_beyond_loopback_only_with_tls_or_when_told_to(tmp_path):
    with pytest.raises(Refused, match=r"control does not listen on 0\.0\.0\.0 without TLS"):
        async with a_control(tmp_path, listen=("0.0.0.0", 0)):
            pass


async def test_with_a_certificate_agents_call_over_tls_and_nobody_without_trust_gets_through(tmp_path):
    pem = Path(__file__).parents[1] / "fakes/localhost.pem"
    async with a_control(tmp_path, files={"m": a_model()}, tls_cert=pem, tls_key=pem) as site:
        key = tmp_path / "node.key"
        key.write_text("node-n1")
        url = f"https://localhost:{site.port}"
        trusting = Client(url, name="control", key_file=key, ca_file=pem)
        wary, plain = Client(url, name="control"), Client(f"http://127.0.0.1:{site.port}", name="control")
        site.clients += [trusting, wary, plain]
        answer = await trusting.call("GET", "/v1/health")
        for stranger in (wary, plain):
            with pytest.raises(Unreachable):
                await stranger.call("GET", "/v1/health")

    assert answer.status == 200


async def test_a_port_in_use_is_said_with_who_holds_it(tmp_path):
    async with a_control(tmp_path) as site:
        with pytest.raises(Refused, match=f"control cannot listen on 127.0.0.1:{site.port}"):
            async with a_control(tmp_path / "other", listen=("127.0.0.1", site.port)):
                pass


async def test_a_repository_that_is_not_there_is_said_before_anything_listens(tmp_path):
    with pytest.raises(Unreachable, match=r"there is no repository at .*nothing\.git"):
        async with a_control(tmp_path, repo=str(tmp_path / "nothing.git")):
            pass


async def test_no_table_is_given_before_every_node_has_spoken(tmp_path):
    # A restarted control that has heard of no replica yet would take away those that serve.
    async with a_control(tmp_path, files={"m": a_model(), "server": a_server("n1", "n2")}) as site:
        gateway, first, second = site.client("gateway", "g1"), site.node("n1"), site.node("n2")
        serving = asyncio.create_task(first.serve())
        await until(lambda: _known(site.client("operator", "ana"), "n1"))
        early = await gateway.call("GET", "/gateway/v1/table")
        other = asyncio.create_task(second.serve())
        table = await until(lambda: _table(gateway, "m/cpu/0"))
        serving.cancel()
        other.cancel()

    assert early.status == 204
    assert [m.name for m in table.models] == ["m"]


async def _known(operator, node):
    answer = await operator.call("GET", "/v1/status")
    if answer.status != 200:
        return None
    seen = msgspec.json.decode(answer.body, type=Live).observed.nodes
    return [n for n in seen if n.name == node and n.age_s is not None]
