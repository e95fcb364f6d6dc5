"""How fast one answer is written, worked out of an engine's counters."""

from __future__ import annotations

import pytest

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
