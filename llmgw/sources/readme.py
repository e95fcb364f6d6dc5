"""The status branch's README: what a person understands in ten seconds, problems first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import UNSET

from llmgw.core.holdings import HoldingState
from llmgw.core.status import Condition, FleetStatus, MirrorStatus, ModelStatus, NodeStatus
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.planning.learned import Row, Spread, rows
from llmgw.units import show_bytes, show_gib
from llmgw_agent.protocol import Card

ROWS = 200
"""Rows of a table that are shown; the files beside the README have all of them."""
ESTIMATES = 20
"""Of estimates: they are read when one is in doubt, and not each day."""


def readme(status: FleetStatus, wanted: Wanted | None) -> str:
    """The page, in Markdown."""
    parts = [
        f"# {status.cluster}: {headline(status)}\n",
        f"As of commit `{status.observed_commit[:12]}`. Written by llmgw: what is edited here is overwritten.\n",
        *_problems(status),
        *_models(status, wanted.models if wanted else {}),
        *_headroom(status.models),
        *_nodes(status.nodes),
        *_mirror(status.mirror),
        *_estimates(rows(status.estimates.runs)),
    ]
    return "\n".join(parts)


def headline(status: FleetStatus) -> str:
    """How the fleet is, in one line."""
    ready = sum(p.ready for m in status.models for p in m.profiles)
    asked = sum(p.wanted for m in status.models for p in m.profiles)
    if not status.settled:
        return "waiting for its nodes"
    if status.as_asked:
        return f"as asked, {ready} of {asked} replicas ready"
    wrong = _to_look_at(status)
    needs = f", {wrong} thing{'s' if wrong != 1 else ''} to look at" if wrong else ", on its way"
    return f"{ready} of {asked} replicas ready{needs}"


def _to_look_at(status: FleetStatus) -> int:
    """How many things need a person. A file's problem and the model it keeps as it was are one."""
    broken = {p.partition(":")[0] for p in status.problems}
    models = sum(m.state == "stalled" or (bool(m.frozen) and m.path not in broken) for m in status.models)
    nodes = sum(n.standing not in ("usable", "unknown") for n in status.nodes)
    away = status.mirror is not None and not status.mirror.reachable
    return len(status.held) + len(status.problems) + models + nodes + away


def _problems(status: FleetStatus) -> Iterable[str]:
    lines = [f"- **held** {_text(h)}" for h in status.held]
    lines += [f"- **catalog** {_text(p)}" for p in status.problems]
    for model in status.models:
        if model.frozen:
            lines.append(f"- **{model.name}** {_text(model.frozen)}")
        lines += [_told(c.subject, c) for c in model.conditions]
    for node in status.nodes:
        if node.standing != "usable":
            lines.append(f"- **node {node.name}** {node.word}: see whether its agent runs")
        if node.inventory and node.inventory.card_problem:
            lines.append(f"- **node {node.name}** {_text(node.inventory.card_problem)}")
        lines += [_told(f"node {node.name}", c) for c in node.conditions]
    if status.mirror is not None and not status.mirror.reachable:
        lines.append("- **mirror** cannot be reached: what it holds now is not known")
    if lines:
        yield "## To look at\n"
        yield "\n".join(lines[:ROWS]) + "\n"


def _told(subject: str, condition: Condition) -> str:
    do = f"  \n  *next:* {_text(condition.next)}" if condition.next else ""
    return f"- **{_text(subject)}** {_text(condition.why)}{do}"


def _models(status: FleetStatus, wanted: Mapping[str, WantedModel]) -> Iterable[str]:
    yield "## Models\n"
    if not status.models:
        yield "None. Add one as `catalog/NAME.yaml`.\n"
        return
    rows = ["| model | state | ready | where | weights |", "|---|---|---|---|---|"]
    for model in status.models[:ROWS]:
        entry = wanted.get(model.name)
        weights = model.version or (entry.model.source.from_ if entry else "")
        rows.append(f"| {model.name} | {model.state} | {ready_of(model)} | {_text(where(model))} | {_text(weights)} |")
    yield "\n".join(rows) + "\n"
    if len(status.models) > ROWS:
        yield f"{len(status.models) - ROWS} more are in `models/`.\n"


def _headroom(models: Iterable[ModelStatus]) -> Iterable[str]:
    """How many more there would be room for, and why not more."""
    known = [(m.name, h) for m in models if m.now is not UNSET for h in m.now.headroom]
    if not known:
        return
    yield "## Room for more\n"
    rows = ["| model | profile | more | with preempting | why not more |", "|---|---|---|---|---|"]
    rows += [
        f"| {name} | {h.profile} | {'? | ?' if h.more is None else f'{h.more} | {h.by_preempting}'} | {_text(h.why)} |"
        for name, h in known[:ROWS]
    ]
    yield "\n".join(rows) + "\n"


def ready_of(model: ModelStatus) -> str:
    """`7/7 gpu, 4/4 cpu`."""
    return ", ".join(f"{p.ready}/{p.wanted} {p.name}" for p in model.profiles) or "none"


def where(model: ModelStatus) -> str:
    """Nodes of the ready replicas, with how many on each."""
    nodes = sorted(n for p in model.profiles for n in p.nodes)
    return ", ".join(f"{nodes.count(n)} on {n}" if nodes.count(n) > 1 else n for n in dict.fromkeys(nodes))


def _nodes(nodes: Iterable[NodeStatus]) -> Iterable[str]:
    yield "## Nodes\n"
    rows = ["| node | state | cores | memory | cards | engines | replicas |", "|---|---|---|---|---|---|---|"]
    for node in list(nodes)[:ROWS]:
        has = node.inventory
        cards = cards_of(has.cards) if has else ""
        engines = ", ".join(f"{e.name} {e.version}".strip() for e in has.engines or ()) if has else ""
        rows.append(
            f"| {node.name} | {node.word} | {has.cpu_cores if has else '?'} "
            f"| {show_gib(has.memory_bytes) if has else '?'} | {cards or '-'} | {_text(engines) or '-'} "
            f"| {len(node.replicas)} |"
        )
    yield "\n".join(rows) + "\n"


def cards_of(cards: Iterable[Card]) -> str:
    """`2 l40s-48g, 7 a100-80g 1g.10gb`. Of a card that is cut, its slices."""
    listed = list(cards)
    cut = {c.parent for c in listed}
    kinds = Counter(f"{c.card_class} {c.slice}".strip() for c in listed if c.uuid not in cut)
    return ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))


def _mirror(mirror: MirrorStatus | None) -> Iterable[str]:
    if mirror is None:
        return
    yield "## Mirror\n"
    if not mirror.reachable:
        yield "It cannot be reached. When it was last seen it held:\n"
    yield from _holdings(mirror)
    if mirror.purges:
        yield "Purges:\n"
        yield "\n".join(f"- {_text(purge)}" for purge in mirror.purges[:ROWS]) + "\n"


def _holdings(mirror: MirrorStatus) -> Iterable[str]:
    if not mirror.holdings:
        yield "It holds nothing.\n" if mirror.reachable else "nothing that is known.\n"
        return
    rows = ["| version | state | size | used by |", "|---|---|---|---|"]
    for h in mirror.holdings[:ROWS]:
        size = show_bytes(sum(f.bytes for f in h.files)) if h.files else "?"
        state = f"failed: {h.failure.message}" if h.state is HoldingState.FAILED and h.failure else str(h.state)
        rows.append(f"| {h.name}/{h.version} | {_text(state)} | {size} | {', '.join(h.models) or 'not served'} |")
    yield "\n".join(rows) + "\n"


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
        lines.append(f"| {_text(engine)} | {_text(row.architecture)} | {_text(row.place)} | {runs} | {figures} |")
    yield "\n".join(lines) + "\n"
    if len(table) > ESTIMATES:
        yield f"{len(table) - ESTIMATES} more are in `estimates.yaml`.\n"


def _spread(of: Spread | None) -> str:
    return f"{of.p50:.2f}, {of.p90:.2f}, {of.worst:.2f}" if of else "-"


def _text(value: str) -> str:
    """A value that cannot leave its cell or its line, nor be read as markup."""
    line = " ".join(value.split()).replace("@", "@\u200b")
    for mark in ("\\", "`", "*", "[", "]", "<", ">", "|"):
        line = line.replace(mark, f"\\{mark}")
    return line
