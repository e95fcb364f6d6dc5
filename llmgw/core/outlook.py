"""What of a status is worked out only when it is written, since it takes longer than a pass may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from msgspec import UNSET, structs

from llmgw.core.headroom import left
from llmgw.core.learning import expected
from llmgw.core.memory import Memory
from llmgw.core.model_status import ModelNow, ModelStatus, Taken
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.replicas import survey
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.learned import Run
from llmgw_agent.protocol import Phase, ReplicaReport, split_id

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


def with_speeds(status: FleetStatus, wanted: Wanted, seen: Observed) -> FleetStatus:
    """The same, which also says of each profile what one of its replicas takes and how fast it answers.

    That moves, too.

    Args:
        status: as it is to be written.
        wanted: what it is of.
        seen: the fleet as the status has it.
    """
    first: dict[str, tuple[NodeSeen, ReplicaReport]] = {}
    for node in sorted(seen.nodes, key=lambda n: n.name):
        for report in node.replicas:
            if report.phase is Phase.READY and report.claim is not None:
                first.setdefault(report.id.rpartition("/")[0], (node, report))
    models = tuple(_with_taken(m, wanted.models.get(m.name), first, status.estimates.runs) for m in status.models)
    return structs.replace(status, models=models)


def _with_taken(
    model: ModelStatus,
    entry: WantedModel | None,
    first: dict[str, tuple[NodeSeen, ReplicaReport]],
    runs: Iterable[Run],
) -> ModelStatus:
    found = [first[key] for p in model.profiles if (key := f"{model.name}/{p.name}") in first]
    if entry is None or not found:
        return model
    taken = tuple(_taken(entry, node, report, runs) for node, report in found)
    return structs.replace(model, now=structs.replace(ModelNow() if model.now is UNSET else model.now, taken=taken))


def _taken(entry: WantedModel, node: NodeSeen, report: ReplicaReport, runs: Iterable[Run]) -> Taken:
    profile, claim = split_id(report.id)[1], report.claim
    assert claim is not None
    foretold = expected(entry, node, report)
    speeds = list(_measured(entry.model.name, profile, runs))
    return Taken(
        profile,
        claim.memory_bytes,
        cards=claim.cards,
        card_bytes=foretold.card_bytes if foretold else None,
        tps=median(speeds) if speeds else foretold.tps if foretold else None,
        measured=bool(speeds),
    )


def _measured(model: str, profile: str, runs: Iterable[Run]) -> Iterator[float]:
    for run in runs:
        if (run.model, run.profile) == (model, profile) and run.tps is not None:
            yield run.tps.measured
