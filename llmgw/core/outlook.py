"""What of a status is worked out only when it is written, since it takes longer than a pass may."""

from __future__ import annotations

from msgspec import UNSET, structs

from llmgw.core.headroom import left
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.replicas import survey
from llmgw.core.status import FleetStatus, ModelNow
from llmgw.core.wanted import Wanted

SETTLED = Memory(started_at=0.0, settled=True)


def with_headroom(status: FleetStatus, wanted: Wanted, seen: Observed) -> FleetStatus:
    """The same, which also says of its models how many more replicas would fit.

    That moves: it never makes a status differ from the last one.

    Args:
        status: as it is to be written.
        wanted: what it is of.
        seen: the fleet as the status has it.
    """
    if not status.settled:
        return status
    holdings = status.mirror.holdings if status.mirror else ()
    sizes = {f"{h.name}/{h.version}": sum(f.bytes for f in h.files) for h in holdings}
    found = left(wanted, survey(wanted, seen, SETTLED, 0.0), sizes)
    models = tuple(
        structs.replace(m, now=structs.replace(ModelNow() if m.now is UNSET else m.now, headroom=found[m.name]))
        if m.name in found
        else m
        for m in status.models
    )
    return structs.replace(status, models=models)
