"""What is measured of an engine that serves: how fast one answer is written, and the memory it takes at its most."""

from __future__ import annotations

import pytest

from fakes import smi
from fakes.waiting import until
from llmgw_agent import replica
from llmgw_agent.engines.ask import Endpoint, ask
from llmgw_agent.protocol import Phase
from llmgw_agent.speed import Speed, Work

IDLE = Work(0, 0.0, 0, 0)


def seen(*looks: Work) -> float | None:
    speed = Speed()
    for look in looks:
        speed.saw(look)
    return speed.tps


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([IDLE, IDLE, IDLE], None, id="nothing ran"),
        pytest.param([Work(31, 1.0, 31, 31)], None, id="too little to say"),
        pytest.param([Work(64, 2.0, 64, 64)], 32.0, id="one answer"),
        pytest.param([Work(64, 2.0, 64, 64), Work(64, 2.0, 64, 64)], 32.0, id="it stays while nothing runs"),
        pytest.param([Work(20, 1.0, 20, 20), Work(40, 2.0, 40, 40)], 20.0, id="short answers add up"),
        pytest.param([Work(128, 8.0, 64, 128)], None, id="two at once say nothing of one"),
        pytest.param([Work(64, 2.0)], None, id="how many there were is not known"),
        pytest.param(
            [Work(64, 2.0, 64, 64), Work(192, 10.0, 128, 192), Work(256, 16.0, 192, 256)],
            32.0,
            id="what ends alone may have begun among others",
        ),
        pytest.param([Work(64, 2.0, 64, 64), Work(128, 6.0, 128, 128)], 32 + 0.3 * (16 - 32), id="it is smoothed"),
        pytest.param(
            [Work(100_000, 5_000.0, 100_000, 100_000), Work(100_050, 5_001.0, 100_050, 100_050)],
            20.0,
            id="six digits are too few for a small step of a large count",
        ),
        pytest.param([Work(64, 2.0, 64, 64), Work(40, 1.0, 40, 40)], 32.0, id="an engine that counts anew"),
        pytest.param([Work(64, 0.0, 64, 64)], None, id="no time at all is no speed"),
    ],
)
def test_what_is_made_of_the_counters(looks, expected):
    assert seen(*looks) == (None if expected is None else pytest.approx(expected))


MIB = 1 << 20


async def test_an_engine_that_answers_one_by_one_has_a_speed_and_one_that_answered_nothing_has_none(
    agents, control, monkeypatch
):
    monkeypatch.setattr(replica, "SPEED_EVERY_S", 0.1)
    agents.engine(token_ms=2)
    control.order(agents.order("m/a/0"), agents.order("m/b/0"))
    await agents.start()
    asked = await control.sees(Phase.READY, "m/a/0")
    await control.sees(Phase.READY, "m/b/0")

    at = Endpoint(asked.address, asked.port, asked.key, "m", "chat")
    for _ in range(2):
        await ask(at, "/v1/completions", body={"prompt": "a", "max_tokens": 40}, within_s=20)

    r = await until(lambda: (r := control.replica("m/a/0")) and r.tps and r)
    assert 50 < r.tps < 500
    assert control.replica("m/b/0").tps is None


async def test_what_was_freed_again_is_in_the_peak(agents, control):
    agents.engine(claim_bytes=200 * MIB, free_when_loaded=True)
    control.order(agents.order())
    await agents.start()

    r = await control.sees(Phase.READY)

    assert r.memory_bytes < 150 * MIB
    assert 200 * MIB <= r.memory_peak_bytes <= 300 * MIB


async def test_what_it_holds_of_its_cards_is_told_with_its_peak_and_unknown_without_one(agents, control, tmp_path):
    smi.nvidia_smi(tmp_path, smi.log(smi.gpu(1)))
    control.order(agents.order("m/gpu/0", devices=("GPU-1",)), agents.order("m/cpu/0"))
    await agents.start(path=(tmp_path, *agents.settings.path))
    r = await control.sees(Phase.READY, "m/gpu/0")
    await control.sees(Phase.READY, "m/cpu/0")
    assert (r.card_bytes, r.card_peak_bytes) == (None, None)

    for held in ("9000 MiB", "8000 MiB"):
        smi.nvidia_smi(tmp_path, smi.log(smi.gpu(1, smi.running((r.pid, "llama-server", held)), used=held)))
        size = int(held.split()[0]) * MIB
        told = await until(lambda size=size: (r := control.replica("m/gpu/0")) and r.card_bytes == size and r)

    assert told.card_peak_bytes == 9000 * MIB
    assert control.replica("m/cpu/0").card_bytes is None
