"""The conversation with control, and what it survives."""

from __future__ import annotations

import logging
import time

import msgspec
import pytest

from fakes.waiting import until
from llmgw_agent import control as talk
from llmgw_agent.control import Control, WholeWanted
from llmgw_agent.errors import Refused, Unreachable
from llmgw_agent.orders import OrderBook
from llmgw_agent.protocol import PROTOCOL, Orders, Phase, Report, digest


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(talk, "BACKOFF_S", (0.05, 0.2))
    monkeypatch.setattr(talk, "REFUSED_S", (0.05, 0.2))


@pytest.fixture
async def caller(agents):
    """Makes one call after the other."""
    control = Control(agents.settings)
    yield control
    await control.close()


REPORT = Report("n1", "boot", replicas=(), versions=())


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (401, Refused, "does not let n1 in"),
        (403, Refused, "does not let n1 in"),
        (426, Refused, "speaks another protocol"),
        (500, Unreachable, "answered 500"),
        (404, Unreachable, "answered 404"),
    ],
)
async def test_what_control_answers_is_said_in_a_sentence(caller, control, status, error, said):
    control.status = status

    with pytest.raises(error, match=said):
        await caller.post(REPORT)


async def test_a_control_that_is_not_there_is_unreachable(caller, control):
    await control.down()

    with pytest.raises(Unreachable, match="cannot be reached"):
        await caller.post(REPORT)


@pytest.mark.parametrize("text", ["<html>a proxy</html>", '{"protocol": "one"}', ""])
async def test_an_answer_that_is_not_orders_is_not_obeyed(caller, control, text):
    control.text = text

    with pytest.raises(Unreachable, match="not orders"):
        await caller.post(REPORT)


async def test_the_same_report_is_said_by_its_digest_and_whole_when_asked(caller, control):
    control.order()
    await caller.post(REPORT)

    await caller.post(REPORT)
    assert control.posts[-1].same
    assert control.posts[-1].replicas is msgspec.UNSET

    control.forgetful = True
    with pytest.raises(WholeWanted):
        await caller.post(REPORT)
    await caller.post(REPORT, whole=True)
    assert control.posts[-1].replicas == ()


def test_what_an_older_control_does_not_know_has_it_ask_for_nothing_again():
    whole = msgspec.structs.replace(REPORT, instance="i1", trouble="")

    assert digest(whole) == digest(REPORT)
    assert digest(msgspec.structs.replace(whole, trouble="the disk is full")) != digest(REPORT)


async def test_the_key_is_read_at_each_call_and_a_missing_one_is_said(caller, control, agents):
    control.order()
    await caller.post(REPORT)
    agents.settings.key_file.write_text("another-key\n")
    await caller.post(REPORT)
    assert control.keys == {"Bearer node-key", "Bearer another-key"}

    agents.settings.key_file.write_text("")
    with pytest.raises(Refused, match="holds no key"):
        await caller.post(REPORT)
    agents.settings.key_file.unlink()
    with pytest.raises(Refused, match="cannot be read"):
        await caller.post(REPORT)


async def test_news_end_a_waiting_call_and_are_told_at_once(agents, control):
    control.order()
    node = await agents.start()
    await until(lambda: node.machine.inventory() and control.posts and control.posts[-1].obeyed_seq == 1)
    calls, began = len(control.posts), time.monotonic()

    node.news.set()

    await until(lambda: len(control.posts) > calls)
    assert time.monotonic() - began < 5  # it would else have waited for twenty seconds


async def test_no_orders_yet_are_not_empty_orders(agents, control):
    control.order(agents.order())
    await agents.start()
    before = await control.sees(Phase.READY)
    control.orders = None  # started anew, and settling
    control._hold_s = 0.05
    calls = len(control.posts)

    agents.node.news.set()
    await until(lambda: len(control.posts) > calls + 1)

    assert control.replica("m/cpu/0").pid == before.pid
    assert control.replica("m/cpu/0").phase is Phase.READY


async def test_a_control_that_answers_at_once_is_not_asked_without_a_pause(agents, control):
    control._hold_s = 0.0
    await agents.start()
    await until(lambda: control.posts)
    began, calls = time.monotonic(), len(control.posts)

    await until(lambda: time.monotonic() - began > 1.5)

    assert len(control.posts) - calls < 12


async def test_trouble_is_said_once_and_so_is_its_end(agents, control, caplog, impatient):
    caplog.set_level(logging.INFO)
    control.status = 401
    control.order()
    await agents.start()
    await until(lambda: len(control.posts) > 4)

    control.status = 0

    await until(lambda: "control answers again" in caplog.text)
    assert caplog.text.count("does not let n1 in") == 1


async def test_old_and_foreign_orders_are_refused(tmp_path):
    book = OrderBook(tmp_path / "orders.json")
    assert book.accept(Orders(PROTOCOL, 3, 5, "127.0.0.1"))

    assert not book.accept(Orders(PROTOCOL, 3, 5, "127.0.0.1"))
    assert not book.accept(Orders(PROTOCOL, 3, 4, "127.0.0.1"))
    with pytest.raises(Refused, match="their epoch 2 is before 3"):
        book.accept(Orders(PROTOCOL, 2, 9, "127.0.0.1"))
    with pytest.raises(Refused, match="protocol 3"):
        book.accept(Orders(PROTOCOL + 2, 4, 1, "127.0.0.1"))
    assert book.accept(Orders(PROTOCOL - 1, 4, 1, "127.0.0.2"))
    assert OrderBook(tmp_path / "orders.json").obeyed == (4, 1)


async def test_cached_orders_that_are_broken_are_as_none(tmp_path):
    (tmp_path / "orders.json").write_text('{"half":')

    assert OrderBook(tmp_path / "orders.json").obeyed == (0, 0)
