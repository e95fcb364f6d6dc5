"""An estimate and its ways as people and as programs read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from typing import Any

from llmgw.cli.plain import visible
from llmgw.cli.render import columns, count
from llmgw.planning.estimate import Estimate
from llmgw.planning.explained import keys_of
from llmgw.planning.fit import Short, shortages
from llmgw.planning.learned import Margin
from llmgw.planning.shape import ModelShape
from llmgw.planning.speed import reply, said
from llmgw.planning.way import State, Way
from llmgw.planning.ways import NO_REPLIES
from llmgw.units import GIB, MIB, show_duration

SHOWN = 12
"""Ways that the text has; the JSON has all."""


def as_json(found: Estimate, shape: ModelShape, ways: Iterable[Way], *, explain: bool) -> str:
    """For programs: the keys are documented in docs/estimates.md, and are only added to."""
    terms = []
    for term in found.terms:
        plain: dict[str, Any] = {"term": term.term, "where": term.where, "bytes": term.bytes, "basis": term.basis}
        if explain:
            plain |= {"because": term.why, "keys": list(keys_of(term.term, shape))}
        terms.append(plain)
    whole = {
        "architecture": found.architecture,
        "context": found.context,
        "parallel": found.parallel,
        "terms": terms,
        "totals": {"host_bytes": found.host_bytes, "card_bytes": found.card_bytes},
        "ways": [_way(way) for way in ways],
    }
    return dumps(whole, indent=2)


def _way(way: Way) -> dict[str, Any]:
    return {
        "state": str(way.state),
        "engine": way.engine,
        "file": way.file,
        "file_type": way.file_type,
        "where": way.where,
        "card_class": way.place.card_class,
        "cards": way.place.count,
        "profile": way.profile,
        "machines": way.machines,
        "free_machines": way.free_machines,
        "names": list(way.names),
        "host_bytes": way.host_bytes,
        "card_bytes": way.card_bytes,
        "tps": None if way.tps is None else round(way.tps, 2),
        "pace": way.pace,
        "speed_basis": way.speed_basis,
        "prefill_tps": None if way.prefill_tps is None else round(way.prefill_tps, 1),
        "load_s": None if way.load_s is None else round(way.load_s, 1),
        "short": [{"where": s.where, "missing_bytes": s.missing} for s in way.short],
        "problems": list(way.problems),
        "margins": {
            name: {"percent": m.percent, "runs": m.runs}
            for name, m in (("host", way.host_margin), ("card", way.card_margin), ("tps", way.tps_margin))
            if m is not None
        },
        "remedies": [{"kind": r.kind, "value": r.value, "sentence": r.sentence} for r in way.remedies],
    }


def as_text(
    found: Estimate, shape: ModelShape, cards: tuple[int, ...], ways: Sequence[Way], how: str, *, explain: bool
) -> str:
    """For people: the terms, what they come to, and the ways."""
    kind = f" {shape.file_type}" if shape.file_type else ""
    lines = [
        f"{visible(found.architecture) or 'unknown'}{visible(kind)}  context {found.context}  slots {found.parallel}",
        "",
        _terms(found, shape, explain=explain),
        "",
        f"host   {found.host_bytes / GIB:.2f} GiB",
    ]
    lines += [f"card {n} {size / GIB:.2f} GiB" for n, size in enumerate(found.by_card)]
    lines += [f"does not fit: {short}" for short in shortages(found, cards=cards)] if cards else []
    lines += [f"note: {note}" for note in found.notes]
    lines += ["", *_ways(ways, how)] if ways else ["", f"ways on {how}: no machine can be used"]
    # Names of architectures and types are what somebody wrote into a header.
    return "\n".join(visible(line) for part in lines for line in part.split("\n"))


def _terms(found: Estimate, shape: ModelShape, *, explain: bool) -> str:
    head = ("term", "where", "MiB", "basis", *(("because", "keys") if explain else ()))
    rows = [
        (
            term.term,
            term.where,
            f"{term.bytes / MIB:,.2f}",
            term.basis,
            *((term.why, "; ".join(keys_of(term.term, shape))) if explain else ()),
        )
        for term in found.terms
    ]
    return columns([head, *rows])


def _ways(ways: Sequence[Way], how: str) -> Iterator[str]:
    yield f"ways on {how}"
    yield ""
    several = len({way.file for way in ways}) > 1
    rows = [_row(way, several=several) for way in ways[:SHOWN]]
    head = ("state", "where", *(("file",) if several else ()), "engine", "host GiB", "card GiB", "speed", "machines")
    yield columns([head, *rows])
    if len(ways) > SHOWN:
        yield f"and {count(len(ways) - SHOWN, 'way')} more: --json has all"
    if any(way.host_margin or way.card_margin or way.tps_margin for way in ways[:SHOWN]):
        yield "note: ± is what nine of ten runs like it were off by"
    best = ways[0]
    if best.tps is not None and best.fits and best.pace:
        yield f"note: {reply(best.tps)} at the best of these"
    for way in ways[:SHOWN]:
        yield from _unfit(way, several=several)


def _row(way: Way, *, several: bool) -> tuple[str, ...]:
    unsaid = NO_REPLIES if way.speed_basis == NO_REPLIES else "not known"
    speed = said(way.tps) if way.tps is not None else unsaid
    loads = f", loads in {show_duration(way.load_s)}" if way.load_s is not None else ""
    of = f"{way.free_machines} of {way.machines}" if way.fits else "none"
    named = f": {', '.join(way.names[:3])}{', …' if len(way.names) > 3 else ''}" if way.fits and way.names else ""
    return (
        str(way.state),
        way.where,
        *((way.file,) if several else ()),
        way.engine,
        f"{way.host_bytes / GIB:.2f}{_off(way.host_margin)}",
        f"{way.card_bytes / GIB:.2f}{_off(way.card_margin)}" if way.card_bytes else "",
        f"{speed}{_off(way.tps_margin)} ({way.speed_basis}{loads})" if way.tps is not None else speed,
        f"{of}{named}",
    )


def _off(margin: Margin | None) -> str:
    return f" ± {margin.percent} %" if margin else ""


def _unfit(way: Way, *, several: bool) -> Iterator[str]:
    if way.state is State.NO_ENGINE:
        yield f"{way.where}: no machine that has room has {way.engine}"
    if way.state is not State.NO:
        return
    file = f"{way.file} on {way.where}" if several else way.where
    why = [*way.problems, *(_missing(short, way.names) for short in way.short[:1])]
    yield f"{file} does not hold it: {'; '.join(why) or 'no machine is known'}"
    yield from (f"    {remedy.sentence}" for remedy in way.remedies)


def _missing(short: Short, names: Sequence[str]) -> str:
    at = f" of {names[0]}, the nearest" if names and short.where == "host" else ""
    return f"{short.missing / GIB:.1f} GiB short on {short.where}{at} ({short})"
