"""What a plan comes to, and what becomes of each model in a word: the lines that are read first, and quoted."""

from __future__ import annotations

from collections.abc import Iterable

from llmgw.catalog.fingerprint import Effect
from llmgw.cli.plan_words import short
from llmgw.cli.render import count
from llmgw.core.model_change import ModelChange
from llmgw.core.preview import Preview
from llmgw_agent.protocol import split_id


def headline(plan: Preview) -> str:
    """What a change comes to, in one line that people quote."""
    if not plan.changes and not plan.held and not plan.problems:
        return "nothing to do"
    starts = sum(len(m.starts) for m in plan.models)
    stops = sum(len(m.stops) for m in plan.models)
    fetches = sum(len(m.fetches) for m in plan.models)
    held = len(plan.held) + sum(len(m.held) for m in plan.models)
    down = sum(bool(m.interruption and not m.interruption.fewest) for m in plan.models)
    parts = [f"{starts} to start", f"{stops} to stop", f"{fetches} to fetch", f"{held} held"]
    if down:
        parts.append(f"{count(down, 'model')} without service for a while")
    if plan.problems:
        parts.append(count(len(plan.problems), "problem"))
    return ", ".join(parts)


def verb(model: ModelChange) -> str:
    """What becomes of a model, in a word or two: the worst that does."""
    if any(h.stalled for h in model.held):
        return "held"
    if model.frozen:
        return "frozen"
    if model.action == "remove":
        return "remove"
    if model.interruption:
        return "roll without service" if not model.interruption.fewest else "roll with less service"
    if model.gives_way_to:
        return "gives way"
    if model.action == "create":
        return "create"
    again = {split_id(a.id)[1] for a in model.starts} & {split_id(a.id)[1] for a in model.stops}
    if again:
        return "move" if model.moves and not model.fields else "roll"
    if model.starts or model.stops:
        return "scale"
    return "waits" if model.held else "in place"


def why(model: ModelChange) -> str:
    """The first thing to know of what becomes of a model."""
    restarts = [f.field for f in model.fields if f.effect == Effect.RESTARTS]
    reasons = (
        *(h.reason for h in model.held),
        model.frozen,
        f"gives way to {model.gives_way_to}" if model.gives_way_to else "",
        short(restarts or [f.field for f in model.fields], 3),
        *(start.why for start in model.starts),
        *(stop.why for stop in model.stops),
    )
    return next(filter(None, reasons), "")


PAIN = (
    "held",
    "frozen",
    "remove",
    "roll without service",
    "roll with less service",
    "gives way",
    "roll",
    "move",
    "waits",
    "scale",
    "create",
    "in place",
)
"""What becomes of models, worst first."""


def worst_first(models: Iterable[ModelChange]) -> list[ModelChange]:
    """As a reader should see them who stops early."""
    return sorted(models, key=lambda m: (PAIN.index(verb(m)), m.name))
