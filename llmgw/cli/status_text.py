"""How a fleet, or one model of it, is told to a person: what is wrong first, on a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from llmgw.cli.plain import WIDTH, para
from llmgw.cli.watch import Transfer
from llmgw.cli.when import utc, utc_s
from llmgw.core.history import Line
from llmgw.core.live import Live
from llmgw.core.model_status import Taken
from llmgw.core.problems import Trouble, problems
from llmgw.core.status import FleetStatus, ModelStatus
from llmgw.core.wanted import WantedModel
from llmgw.sources.readme import headline, ready_of, speed_of, where
from llmgw.units import show_bytes, show_duration, show_gib
from llmgw_agent.protocol import ReplicaReport, split_id

EVENTS = 10
"""Of a model's history on its page."""
SHORTEST = 12
"""Columns that the last cell of a row keeps."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a fleet, and where it came from."""

    status: FleetStatus
    how: str
    """`status branch 4d5e6f7a, written 3m ago`."""
    wanted: dict[str, WantedModel]
    """By name. Empty: only the status is known."""
    lines: tuple[Line, ...] = ()
    """Of history, as the branch has them."""
    live: Live | None = None
    """None: it is of the branch."""
    moving: tuple[tuple[Transfer, float | None], ...] = ()
    """What is fetched, with its bytes a second. None: it was looked at once."""


def fleet_page(look: Look) -> Iterator[str]:
    """All of a fleet."""
    status = look.status
    yield f"{status.cluster}: {headline(status)}"
    yield from para(f"{look.how}; commit {status.observed_commit[:12]}", rest="")
    yield from troubles(problems(status), _details(look))
    if look.live is not None:
        yield from (line for text in look.live.trouble for line in ("", *para(text, first="control: ")))
    models = [(m.name, m.state, ready_of(m), speed_of(m), where(m) or "-") for m in status.models]
    yield ""
    yield from table(("MODEL", "STATE", "READY", "TOKENS/S", "WHERE"), models) if models else ("no models",)
    nodes = [(n.name, n.word, str(len(n.replicas)), n.agent_version or "-") for n in status.nodes]
    yield ""
    yield from table(("NODE", "STATE", "REPLICAS", "AGENT"), nodes) if nodes else ("no nodes",)
    yield from _replicas(look, None)
    yield from _moving(look)


def model_page(look: Look, model: ModelStatus) -> Iterator[str]:
    """All of one model."""
    entry = look.wanted.get(model.name)
    yield f"{model.name}: {model.state}, {ready_of(model)} ready"
    yield from para(f"{look.how}; commit {look.status.observed_commit[:12]}", rest="")
    by = f" by {entry.author}" if entry and entry.author else ""
    yield from para(f"{model.path or 'in no file'}, as of commit {model.commit[:12] or '?'}{by}", rest="")
    aliases = ", ".join(entry.model.aliases) if entry else ""
    source = model.version or (entry.model.source.from_ if entry else "?")
    yield from para(f"weights {source}" + (f"; also called {aliases}" if aliases else ""), rest="")
    if model.frozen:
        yield ""
        yield from para(model.frozen, first="kept: ")
    yield from troubles(of_model(look.status, model.name), _details(look))
    yield ""
    yield from table(("PROFILE", "READY", "STARTING", "FAILED", "TOKENS/S", "ONE TAKES", "WHERE"), _profiles(model))
    yield from _replicas(look, model.name)
    yield from _moving(look, model.version)
    room = [h.sentence for h in model.now.headroom] if model.now is not UNSET else []
    yield from (line for sentence in room for line in ("", *para(sentence)))
    mine = [line for line in look.lines if line.model == model.name][-EVENTS:]
    if mine:
        yield ""
        yield "LAST EVENTS (UTC)"
        for line in reversed(mine):
            yield from para(line.sentence, first=f"{utc_s(line.at)}  ", rest=" " * 21)


def of_model(status: FleetStatus, name: str) -> tuple[Trouble, ...]:
    """What is wrong with one model."""
    return tuple(t for t in problems(status) if t.subject == name or t.subject.startswith(f"{name}/"))


def troubles(found: Sequence[Trouble], details: dict[str, str]) -> Iterator[str]:
    """What needs a person, and what only takes time. A subject's figures are told once."""
    left = dict(details)
    for head, some in (
        ("TO LOOK AT", [t for t in found if not t.waits]),
        ("ON ITS WAY", [t for t in found if t.waits]),
    ):
        if some:
            yield ""
            yield head
        for t in some:
            since = f" (since {utc(t.since)})" if t.since else ""
            detail = f" ({figures})" if (figures := left.pop(t.subject, "")) else ""
            yield from para(f"{t.subject}: {t.why}{detail}{since}", first="- ")
            if t.next:
                yield from para(t.next, first="  next: ", rest="        ")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as what is in them. Where that is wider than a terminal, the last one is cut."""
    every = [tuple(" ".join(cell.split()) for cell in row) for row in (head, *rows)]
    widths = [max(len(row[i]) for row in every) for i in range(len(head))]
    room = max(SHORTEST, WIDTH - sum(widths[:-1]) - 2 * (len(head) - 1))
    for row in every:
        last = row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 1]}…"
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join((*cells, last)).rstrip()


def _details(look: Look) -> dict[str, str]:
    """Figures that move, by what they are of."""
    status = look.status
    found = {f"{m.name}/{s.profile}": s.detail for m in status.models if m.now is not UNSET for s in m.now.unplaced}
    held = look.live.held if look.live is not None else ()
    return {**found, **{h.subject: h.detail for h in held if h.detail}}


def _profiles(model: ModelStatus) -> Iterator[tuple[str, ...]]:
    taken = {t.profile: t for t in model.now.taken} if model.now is not UNSET else {}
    for p in model.profiles:
        one = taken.get(p.name)
        tps = "-" if one is None or one.tps is None else f"{'' if one.measured else '~'}{one.tps:.3g}"
        nodes = ", ".join(f"{p.nodes.count(n)} on {n}" if p.nodes.count(n) > 1 else n for n in dict.fromkeys(p.nodes))
        yield (p.name, f"{p.ready}/{p.wanted}", str(p.starting), str(p.failed), tps, _takes(one), nodes or "-")


def _takes(one: Taken | None) -> str:
    if one is None:
        return "-"
    cards = f" + {one.cards} card{'s' * (one.cards > 1)}" if one.cards else ""
    return f"{show_gib(one.memory_bytes)}{cards}"


def _replicas(look: Look, model: str | None) -> Iterator[str]:
    """Each replica: live with what moves, of the branch only on a model's own page."""
    if look.live is not None:
        rows: list[tuple[str, ...]] = [
            _live_row(node.name, r)
            for node in look.live.observed.nodes
            for r in node.replicas
            if model in (None, split_id(r.id)[0])
        ]
        head: tuple[str, ...] = ("REPLICA", "GEN", "NODE", "STATE", "FOR", "TRIES", "CORES", "MEMORY", "CARDS")
    elif model is not None:
        rows = [
            (r.id, str(r.generation), node.name, str(r.phase), str(r.attempts), ", ".join(r.devices) or "-")
            for node in look.status.nodes
            for r in node.replicas
            if split_id(r.id)[0] == model
        ]
        head = ("REPLICA", "GEN", "NODE", "STATE", "TRIES", "CARDS")
    else:
        return
    if rows:
        yield ""
        yield from table(head, sorted(rows))


def _live_row(node: str, r: ReplicaReport) -> tuple[str, ...]:
    cores = str(r.claim.cpu_cores) if r.claim else "?"
    memory = show_gib(r.memory_bytes) if r.memory_bytes is not None else "?"
    cards = show_gib(r.card_bytes) if r.card_bytes is not None else "-"
    return r.id, str(r.generation), node, str(r.phase), show_duration(r.age_s), str(r.attempts), cores, memory, cards


def _moving(look: Look, version: str | None = None) -> Iterator[str]:
    rows = [
        f"{t.what}: {show_bytes(t.done)} of {show_bytes(t.total)}" + (f", {show_bytes(int(rate))}/s" if rate else "")
        for t, rate in look.moving
        if version is None or t.what.endswith(f" {version}")
    ]
    if rows:
        yield ""
        yield from rows
