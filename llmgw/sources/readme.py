"""The status branch's README: what a person understands in ten seconds, problems first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET

from llmgw.core.problems import Trouble, problems
from llmgw.core.status import FleetStatus, ModelStatus, NodeStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.learned import Row, Spread, rows
from llmgw.sources.markdown import table, text
from llmgw.sources.picture import picture
from llmgw.sources.readme_mirror import mirror
from llmgw.units import show_bytes, show_gib
from llmgw_agent.protocol import Card

ROWS = 200
"""Rows of a table that are shown; the files beside the README have all of them."""
ON_THEIR_WAY = 20
"""Things that only take time: of a fleet that starts there is one for each replica."""
DOWN = 10
"""Models that are named in the line below the first."""
ESTIMATES = 20
"""Of estimates: they are read when one is in doubt, and not each day."""

_STATES = {"idle": "starts when asked"}
_WORST = ("stalled", "reconciling")


def readme(status: FleetStatus, wanted: Wanted | None) -> str:
    """The page, in Markdown."""
    parts = [
        f"# {status.cluster}: {headline(status)}\n",
        f"As of commit `{status.observed_commit[:12]}`. Written by llmgw: what is edited here is overwritten.\n",
        *_promise(status),
        *_down(status.models),
        *_problems(status),
        *_models(status, wanted.models if wanted else {}),
        *_headroom(status.models),
        *_nodes(status.nodes),
        *mirror(status),
        *picture(status),
        *_estimates(rows(status.estimates.runs)),
    ]
    return "\n".join(parts)


def _promise(status: FleetStatus) -> Iterator[str]:
    """Whether the commit was carried out as its plan had said."""
    if status.promise is not None:
        yield f"Carried out: {status.promise.sentence}.\n"
        told = "\n".join(f"- {text(difference)}" for difference in status.promise.differences)
        yield from (f"{part}\n" for part in (told,) if part)


def _down(models: Iterable[ModelStatus]) -> Iterator[str]:
    """What nobody can ask just now, though it should be there: what somebody who was woken looks for."""
    down = [m.name for m in models if any(p.wanted for p in m.profiles) and not any(p.ready for p in m.profiles)]
    if down:
        more = f" and {len(down) - DOWN} more" if len(down) > DOWN else ""
        yield f"**Nothing of {', '.join(down[:DOWN])}{more} is ready.**\n"


def headline(status: FleetStatus) -> str:
    """How the fleet is, in one line."""
    ready = sum(p.ready for m in status.models for p in m.profiles)
    asked = sum(p.wanted for m in status.models for p in m.profiles)
    if not status.settled:
        return "waiting for its nodes"
    wrong = sum(not t.waits for t in problems(status))
    if status.as_asked and not wrong:
        return f"as asked, {ready} of {asked} replicas ready"
    needs = f", {wrong} thing{'s' if wrong != 1 else ''} to look at" if wrong else ", on its way"
    return f"{ready} of {asked} replicas ready{needs}"


def _problems(status: FleetStatus) -> Iterator[str]:
    found = problems(status)
    details = {f"{m.name}/{s.profile}": s.detail for m in status.models if m.now is not UNSET for s in m.now.unplaced}
    grave = [t for t in found if not t.waits]
    if grave:
        yield "## To look at\n"
        yield "\n".join(_told(t, details.get(t.subject, "")) for t in grave[:ROWS]) + "\n"
        if len(grave) > ROWS:
            yield f"{len(grave) - ROWS} more are in `problems.yaml`.\n"
    if len(found) > len(grave):
        yield "## On its way: nobody has to do anything\n"
        some = found[len(grave) :][:ON_THEIR_WAY]
        yield "\n".join(_told(t, details.get(t.subject, "")) for t in some) + "\n"
        if len(found) - len(grave) > ON_THEIR_WAY:
            yield f"{len(found) - len(grave) - ON_THEIR_WAY} more are in `problems.yaml`.\n"


def _told(problem: Trouble, detail: str) -> str:
    since = f" (since {utc(problem.since)})" if problem.since else ""
    more = f" ({text(detail)})" if detail else ""
    do = f"  \n  *next:* {text(problem.next)}" if problem.next else ""
    return f"- **{text(problem.subject)}** {text(problem.why)}{more}{since}{do}"


def utc(at: int) -> str:
    """`2026-12-01 02:48 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def _models(status: FleetStatus, wanted: Mapping[str, WantedModel]) -> Iterator[str]:
    yield "## Models\n"
    if not status.models:
        yield "None. Add one as `catalog/NAME.yaml`.\n"
        return
    yield table(
        ("model", "state", "ready", "tokens a second", "one takes", "where", "weights"),
        (
            (
                model.name,
                _state(model),
                ready_of(model),
                speed_of(model),
                _taken(model),
                text(where(model)) or "-",
                text(model.version or (wanted[model.name].model.source.from_ if model.name in wanted else "")),
            )
            for model in sorted(status.models, key=lambda m: (m.state not in _WORST, m.state != "stalled", m.name))
        ),
        most=ROWS,
        rest="`models/`",
    )


def _state(model: ModelStatus) -> str:
    return _STATES.get(model.state, model.state) + (", kept as it was" if model.frozen else "")


def speed_of(model: ModelStatus) -> str:
    """`31 gpu, about 8 cpu`: what was measured, and what was only worked out."""
    taken = model.now.taken if model.now is not UNSET else ()
    known = (f"{'' if t.measured else 'about '}{t.tps:.3g} {t.profile}" for t in taken if t.tps is not None)
    return ", ".join(known) or "-"


def _taken(model: ModelStatus) -> str:
    parts = []
    for t in model.now.taken if model.now is not UNSET else ():
        of_cards = f" and {show_gib(t.card_bytes)}" if t.card_bytes is not None else ""
        cards = f"{of_cards} on {t.cards} card{'s' * (t.cards > 1)}" if t.cards else ""
        parts.append(f"{show_gib(t.memory_bytes)}{cards} {t.profile}")
    return ", ".join(parts) or "-"


def _headroom(models: Iterable[ModelStatus]) -> Iterator[str]:
    """How many more there would be room for, and why not more."""
    known = [(m.name, h) for m in models if m.now is not UNSET for h in m.now.headroom]
    if not known:
        return
    yield "## Room for more\n"
    yield table(
        ("model", "profile", "more", "with preempting", "why not more"),
        (
            (name, h.profile, *(("?", "?") if h.more is None else (str(h.more), str(h.by_preempting))), text(h.why))
            for name, h in known
        ),
        most=ROWS,
        rest="`models/`",
    )


def ready_of(model: ModelStatus) -> str:
    """`7/7 gpu, 4/4 cpu`."""
    return ", ".join(f"{p.ready}/{p.wanted} {p.name}" for p in model.profiles) or "none"


def where(model: ModelStatus) -> str:
    """Nodes of the ready replicas, with how many on each."""
    nodes = sorted(n for p in model.profiles for n in p.nodes)
    return ", ".join(f"{nodes.count(n)} on {n}" if nodes.count(n) > 1 else n for n in dict.fromkeys(nodes))


def _nodes(nodes: Iterable[NodeStatus]) -> Iterator[str]:
    yield "## Nodes\n"
    yield table(
        ("node", "state", "agent", "cores", "memory", "cards", "engines", "replicas", "weights"),
        (_node(node) for node in sorted(nodes, key=lambda n: (n.standing == "usable", n.name))),
        most=ROWS,
        rest="`nodes/`",
    )


def _node(node: NodeStatus) -> tuple[str, ...]:
    has = node.inventory
    engines = ", ".join(f"{e.name} {e.version}".strip() for e in has.engines or ()) if has else ""
    return (
        node.name,
        node.word,
        text(node.agent_version) or "?",
        str(has.cpu_cores) if has else "?",
        show_gib(has.memory_bytes) if has else "?",
        (cards_of(has.cards) if has else "") or "-",
        text(engines) or "-",
        str(len(node.replicas)),
        _weights(node),
    )


def _weights(node: NodeStatus) -> str:
    held = {v.key: v.bytes for v in node.versions if v.state == "held"}
    size = sum(held.get(key, 0) for key in node.unwanted)
    spare = f", {len(node.unwanted)} for no model" + (f" ({show_bytes(size)})" if size else "")
    return f"{len(held)} held{spare if node.unwanted else ''}" if held else "-"


def cards_of(cards: Iterable[Card]) -> str:
    """`2 l40s-48g, 7 a100-80g 1g.10gb`. Of a card that is cut, its slices."""
    listed = list(cards)
    cut = {c.parent for c in listed}
    kinds = Counter(f"{c.card_class} {c.slice}".strip() for c in listed if c.uuid not in cut)
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def _estimates(table: Sequence[Row]) -> Iterable[str]:
    if not table:
        return
    yield "## Estimates: how wrong\n"
    yield "Measured over predicted, so 1 came true: the middle, what nine of ten were no further off than, the worst.\n"
    lines = [
        "| engine | architecture | where | runs | memory | on cards | tokens a second |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table[:ESTIMATES]:
        runs = max(spread.count for spread in row.spreads.values()) if row.spreads else 0
        figures = " | ".join(_spread(spread) for spread in (row.host, row.card, row.tps))
        engine = f"{row.engine} {row.version}".strip()
        lines.append(f"| {text(engine)} | {text(row.architecture)} | {text(row.place)} | {runs} | {figures} |")
    yield "\n".join(lines) + "\n"
    if len(table) > ESTIMATES:
        yield f"{len(table) - ESTIMATES} more are in `estimates.yaml`.\n"


def _spread(of: Spread | None) -> str:
    return f"{of.p50:.2f}, {of.p90:.2f}, {of.worst:.2f}" if of else "-"
