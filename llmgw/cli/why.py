"""`llmgw why`: why a model is not as it is asked to be, on one page, or that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from msgspec import UNSET, Struct

from llmgw.cli.look import look_at, model_in
from llmgw.cli.plain import para, say, say_json
from llmgw.cli.render import count
from llmgw.cli.seen import Operator, ask, operator
from llmgw.cli.status_text import Look, of_model, table, troubles
from llmgw.cli.when import utc, utc_s
from llmgw.core.actions import Held
from llmgw.core.history import Kind, Line
from llmgw.core.memory import Failures
from llmgw.core.model_status import ModelStatus, Shortage
from llmgw.core.problems import Trouble
from llmgw.errors import Exit
from llmgw.sources.readme import ready_of
from llmgw.units import show_bytes
from llmgw_agent.protocol import Phase, split_id

ENDS = 5
"""Of replicas that ended, told on the page."""


class Failed(Struct, frozen=True, omit_defaults=True):
    """One replica that failed and is still there to be looked at."""

    id: str
    node: str
    attempts: int
    cause: str
    message: str
    """The first line that tells why."""
    log_tail: tuple[str, ...] = ()
    """The engine's last lines. Empty on the branch: they are asked of control."""


class Why(Struct, frozen=True):
    """All that is known of why a model is as it is."""

    model: str
    state: str
    ready: str
    as_asked: bool
    how: str
    """Where this comes from."""
    troubles: tuple[Trouble, ...]
    held: tuple[Held, ...]
    """With figures that move. Empty on the branch."""
    unplaced: tuple[Shortage, ...]
    failures: dict[str, Failures]
    """By profile: of rounds of starts. Empty on the branch."""
    failed: tuple[Failed, ...]
    fetches: tuple[str, ...]
    gave_way: tuple[str, ...]
    ends: tuple[Line, ...]
    """The last replicas that ended, youngest first, as the status branch has them."""


def why(
    model: Annotated[str, typer.Argument(help="The model.")],
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL. Else the branch.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for control. Or LLMGW_CA_FILE.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say why a model is not as asked: what is missing, what failed, what it waits for, and what helps."""
    who = operator(control, key_file, ca_file)
    look = look_at(repo, cluster, "", who, live=who is not None, whole=True)
    found = _found(look, model_in(look.status, model), who if look.live is not None else None)
    if json:
        say_json(found)
    else:
        say(_page(found))
    raise typer.Exit(Exit.HELD if any(not t.waits for t in found.troubles) else Exit.DONE)


def _found(look: Look, model: ModelStatus, who: Operator | None) -> Why:
    name = model.name
    failures: dict[str, Failures] = {}
    gave: list[str] = []
    if who is not None:
        memory = asyncio.run(ask(who)).memory
        failures = {k.rpartition("/")[2]: f for k, f in memory.failures.items() if k.rpartition("/")[0] == name}
        gave = [f"{name} gave way to {memory.gave_way[name]}"] if name in memory.gave_way else []
        gave += [f"{other} gave way to it" for other, whom in sorted(memory.gave_way.items()) if whom == name]
    trouble = of_model(look.status, name)
    return Why(
        name,
        model.state,
        ready_of(model),
        as_asked=model.state in ("ready", "idle", "stopped") and not model.frozen and not trouble,
        how=look.how,
        troubles=trouble,
        held=tuple(h for h in look.live.held if h.model == name) if look.live is not None else (),
        unplaced=model.now.unplaced if model.now is not UNSET else (),
        failures=failures,
        failed=tuple(_failed(look, name)),
        fetches=tuple(_fetches(look, model)),
        gave_way=tuple(gave),
        ends=tuple(reversed([n for n in look.lines if n.model == name and n.kind in (Kind.STOP, Kind.FAILED)]))[:ENDS],
    )


def _failed(look: Look, model: str) -> Iterator[Failed]:
    if look.live is None:
        for status in look.status.nodes:
            for r in status.replicas:
                if r.phase is Phase.FAILED and split_id(r.id)[0] == model:
                    yield Failed(r.id, status.name, r.attempts, r.cause, r.message)
        return
    for seen in look.live.observed.nodes:
        for report in seen.replicas:
            if report.phase is Phase.FAILED and split_id(report.id)[0] == model:
                d = report.dossier
                said = (d.cause, d.message, d.log_tail) if d is not None else ("", "", ())
                yield Failed(report.id, seen.name, report.attempts, *said)


def _fetches(look: Look, model: ModelStatus) -> Iterator[str]:
    for transfer, rate in look.moving:
        if transfer.what.endswith(f" {model.version}"):
            fast = f", {show_bytes(int(rate))}/s" if rate else ""
            yield f"{transfer.what}: {show_bytes(transfer.done)} of {show_bytes(transfer.total)}{fast}"
    mirror = look.status.mirror
    for h in mirror.holdings if mirror is not None else ():
        if f"{h.name}/{h.version}" == model.version and h.state != "present" and not look.moving:
            yield f"the mirror: {model.version} is {h.state}" + (f": {h.failure.message}" if h.failure else "")


def _page(found: Why) -> Iterator[str]:
    yield f"{found.model}: {'as asked' if found.as_asked else found.state}, {found.ready} ready"
    yield from para(found.how, rest="")
    moving = {h.subject: h.detail for h in found.held if h.detail}
    yield from troubles(found.troubles, moving)
    for table_ in found.unplaced:
        yield ""
        yield from _unplaced(table_)
    if found.failures or found.failed:
        yield ""
        yield "FAILED"
    for profile, f in found.failures.items():
        times = f"{profile}: {count(f.count, 'round')} of starts failed, the last at {utc(f.last_at)} UTC"
        on = f" on {', '.join(f.nodes)}" if f.nodes else ""
        yield from para(f"{times}{on}: {f.words}", first="- ")
    for one in found.failed:
        tried = f", tried {count(one.attempts, 'time')}" if one.attempts else ""
        said = ": ".join(text for text in (one.cause, one.message) if text) or "it did not say why"
        yield from para(f"{one.id} on {one.node}{tried}: {said}", first="- ")
        yield from (f"    | {line}" for line in one.log_tail)
    for head, some in (("WAITS FOR", found.fetches), ("WHO GAVE WAY", found.gave_way)):
        if some:
            yield ""
            yield head
            yield from (line for text in some for line in para(text, first="- "))
    if found.ends:
        yield ""
        yield "LAST ENDS (UTC)"
        for line in found.ends:
            yield from para(line.sentence, first=f"{utc_s(line.at)}  ", rest=" " * 21)


def _unplaced(shortage: Shortage) -> Iterator[str]:
    """The table of a profile: each rule, how many nodes it kept off, and the nearest with what is missing."""
    yield f"NO NODE FOR {shortage.profile}"
    rows = []
    for reason in shortage.reasons:
        for place, near in enumerate(reason.nearest):
            first = (reason.rule, str(reason.nodes)) if place == 0 else ("", "")
            rows.append((*first, near.node, near.missing))
    yield from table(("RULE", "NODES", "NEAREST", "MISSING"), rows)
    for reason in shortage.reasons:
        for near in reason.nearest[:1]:
            if near.changes:
                yield from para(f"would fit on {near.node} {' and '.join(near.changes)}", first="  ", rest="    ")
