"""What happens to a fleet, and when, on a clock of its own."""

from __future__ import annotations

from fleets import NOW, SETTLED, R, fleet, model, node, profile, replica, wanting

from llmgw.core.observed import Observed
from llmgw.core.rehearsal import Rehearsal, rehearse
from llmgw_agent.protocol import Claim

GIB = 1 << 30


def happened(result: Rehearsal) -> list[tuple[float, str]]:
    return [(e.at_s, e.what.split(":")[0]) for e in result.events]


def test_a_settled_fleet_does_nothing():
    m = model(cpu=2)

    result = rehearse(wanting(m), fleet(m, "n1", "n2", cpu=[R, R]), SETTLED, NOW, minutes=30)

    assert result.events == ()
    assert result.ready == result.least == {"m": 2}
    assert result.unplaced == ()


def test_a_lost_node_is_replaced_once_its_grace_is_over_and_not_before():
    m = model(cpu=2)
    seen = Observed((node("n1", replica("m/cpu/0", m), age_s=0.0), node("n2", replica("m/cpu/1", m), age_s=0.0)))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=15, lost={"n1"})

    assert happened(result) == [(610.0, "start m/cpu/2 on n2")]
    assert (result.ready, result.least) == ({"m": 2}, {"m": 1})


def test_what_no_longer_fits_is_said_in_the_end():
    m = model(profiles=[profile(replicas=2, memory_gib=6)])
    at = [replica(f"m/cpu/{n}", m, claim=Claim(6 * GIB, 1)) for n in range(2)]
    seen = Observed((node("n1", at[0], memory_gib=8), node("n2", at[1], memory_gib=8)))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=15, lost={"n1"})

    assert result.ready == {"m": 1}
    assert [h.subject for h in result.unplaced] == ["m/cpu/2"]
    assert "no node has room for it" in result.unplaced[0].why


def test_a_change_is_carried_out_in_its_steps():
    m = model(cpu=3)
    seen = fleet(m, "n1", "n2", cpu=[R])

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=1)

    assert happened(result) == [(0.0, "start m/cpu/1 on n2"), (0.0, "start m/cpu/2 on n1")]
    assert result.least == {"m": 1}
    assert result.ready == {"m": 3}


def test_a_node_that_was_lost_already_stays_so():
    m = model(cpu=1)
    seen = Observed((node("n1", replica("m/cpu/0", m), age_s=None), node("n2")))

    result = rehearse(wanting(m), seen, SETTLED, NOW, minutes=1, lost={"n1"})

    assert happened(result) == [(0.0, "start m/cpu/1 on n2")]
