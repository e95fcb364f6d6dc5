"""The mirror's part of the README: what is held of each family, for whom, and on how many nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby

from msgspec import UNSET

from llmgw.core.holdings import HoldingState
from llmgw.core.status import FleetStatus, HoldingStatus, MirrorStatus, ModelStatus
from llmgw.sources.markdown import table, text
from llmgw.units import show_bytes

ROWS = 200


def mirror(status: FleetStatus) -> Iterator[str]:
    """The section of the page. Nothing where no mirror is named."""
    if status.mirror is None:
        return
    yield "## Mirror\n"
    yield f"{_whole(status.mirror)}\n"
    if status.mirror.holdings:
        models = {m.name: m for m in status.models}
        at = Counter(v.key for n in status.nodes for v in n.versions if v.state == "held")
        yield table(
            ("family", "version", "state", "files", "size", "used by", "on nodes"),
            _rows(status.mirror, models, at),
            most=ROWS,
            rest="`mirror.yaml`",
        )
    if status.mirror.purges:
        yield "Purges:\n"
        yield "\n".join(f"- {text(purge)}" for purge in status.mirror.purges[:ROWS]) + "\n"


def _whole(mirror: MirrorStatus) -> str:
    known = f"{len(mirror.holdings)} version{'s' * (len(mirror.holdings) != 1)}"
    if not mirror.reachable:
        last = f"When it was last seen it held {known}:" if mirror.holdings else "Nor is it known what it held before."
        return f"**It cannot be reached**, which does not mean that it is empty. {last}"
    size = show_bytes(sum(h.bytes or 0 for h in mirror.holdings if h.state is HoldingState.PRESENT))
    free = "" if mirror.disk_free_gib is UNSET else f", {mirror.disk_free_gib} GiB free"
    return f"It holds {known} of {size}{free}." if mirror.holdings else f"It holds nothing{free}."


def _rows(mirror: MirrorStatus, models: Mapping[str, ModelStatus], at: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    for family, versions in groupby(mirror.holdings, key=lambda h: h.name):
        for number, holding in enumerate(versions):
            key = f"{holding.name}/{holding.version}"
            yield (
                family if number == 0 else "",
                holding.version,
                text(state_of(holding)),
                str(len(holding.files)) if holding.files else "?",
                show_bytes(holding.bytes) if holding.bytes is not None else "?",
                _used(holding, models),
                str(at.get(key, 0)),
            )


def state_of(holding: HoldingStatus) -> str:
    """`present`, `fetching, over 25 %`, or how it failed and what to do."""
    if holding.state is HoldingState.FAILED and holding.failure:
        do = f"; next: {holding.failure.do}" if holding.failure.do else ""
        return f"failed: {holding.failure.message}{do}"
    arrived = f", over {holding.arrived} %" if holding.arrived else ""
    return f"{holding.state}{arrived}"


def _used(holding: HoldingStatus, models: Mapping[str, ModelStatus]) -> str:
    if not holding.models and holding.state is not HoldingState.PRESENT:
        return "not served"
    if not holding.models:
        return f"not served: `llmgw model add mirror:{holding.name}/{holding.version}`"
    return ", ".join(_user(models[name]) if name in models else name for name in holding.models)


def _user(model: ModelStatus) -> str:
    modes = {"idle": "starts when asked", "stopped": "stopped", "leaving": "leaving"}
    ready, wanted = (sum(getattr(p, what) for p in model.profiles) for what in ("ready", "wanted"))
    return f"{model.name} ({modes.get(model.state) or f'{ready} of {wanted} ready'})"
