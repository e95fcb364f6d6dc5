"""What `llmgw explore` says of models, one row each: the JSON of it, and the lines for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from msgspec import Struct

from llmgw.cli.explore_fit import Judged, Verdict
from llmgw.cli.explore_look import Looked
from llmgw.cli.render import count
from llmgw.sources.hub_text import plain
from llmgw.units import GIB

FORMAT_VERSION = "1.0"
"""Of the JSON: a minor one adds, a major one changes."""
WIDTH = 80
"""Columns of a terminal, the narrowest that people have."""
NAME_WIDTH = 42
"""Of a repository's name beside its figures: a longer one has a line of its own."""
DAY_S = 86_400.0


class Row(Struct, frozen=True):
    """One model that was found. None is unknown."""

    id: str
    verdict: Verdict
    add: str
    """What `llmgw model add` is told for the file set that the verdict is of. Empty: there is none."""
    format: str
    quantisation: str
    bytes: int | None
    architecture: str
    context: int | None
    parameters: int | None
    downloads: int | None
    likes: int | None
    age_days: int | None
    gated: str
    """`auto` or `manual`; empty: everybody may have it."""
    licence: str
    base_model: str
    commit: str
    sets: int
    """Models among its file sets."""


class Listing(Struct, frozen=True):
    """What a search gave."""

    format_version: str
    endpoint: str
    fleet: str
    """How the fleet that the verdicts are of is known."""
    rows: tuple[Row, ...]
    hidden: dict[str, int]
    """By why they do not run. With --all they are among the rows."""
    left_out: dict[str, int]
    """Models that a filter took out here and not on the hub, by which."""
    looked_at: int
    more: bool
    """Whether the hub may have others."""
    notes: tuple[str, ...]


def days_since(then: float | None, now: float) -> int | None:
    """Whole days. A clock that is behind the hub's makes none of them negative."""
    return None if then is None else max(0, int((now - then) // DAY_S))


def row_of(looked: Looked, judged: Judged, now: float) -> Row:
    """One repository, as a row.

    Args:
        looked: what is in it.
        judged: whether it runs here, and which of its file sets.
        now: seconds since 1970.
    """
    found, of, shape = looked.found, judged.file_set, looked.shape
    return Row(
        id=found.id,
        verdict=judged.verdict,
        add=of.added(found.id, looked.models) if of else "",
        format=of.format if of else "",
        quantisation=(of.quantisation if of else "")
        or plain(shape.quantization if shape else "", 20)
        or found.quantisation,
        bytes=of.bytes if of else None,
        architecture=looked.architecture,
        context=(shape.context if shape else 0) or found.context,
        parameters=found.parameters,
        downloads=found.downloads,
        likes=found.likes,
        age_days=days_since(found.created_at, now),
        gated=found.gated,
        licence=found.licence,
        base_model=found.base_model,
        commit=found.commit,
        sets=len(looked.models),
    )


def listing_text(found: Listing, *, every: bool) -> str:
    """A listing for people, at most `WIDTH` wide but for names."""
    return "\n".join(_listing(found, every=every))


def hidden_text(hidden: dict[str, int]) -> str:
    """`12 hidden: 9 too large, 3 unknown architecture; …`. Empty: none are."""
    if not hidden:
        return ""
    parts = [f"{n} {kind}" for kind, n in sorted(hidden.items(), key=lambda item: (-item[1], item[0]))]
    return f"{sum(hidden.values())} hidden: {', '.join(parts)}; --all shows them with why"


def _listing(found: Listing, *, every: bool) -> Iterator[str]:
    if found.rows:
        yield _line("MODEL", ("SIZE", "CONTEXT", "DOWNLOADS", "LIKES", "AGE"))
        for row in found.rows:
            yield from _row(row)
        yield ""
    if not found.looked_at:
        yield "Nothing was found."
    elif not found.rows:
        yield f"Nothing of what was found runs here ({count(found.looked_at, 'model')} looked at)."
    if not every and (text := hidden_text(found.hidden)):
        yield from textwrap.wrap(text, WIDTH)
    if found.left_out:
        parts = [f"{n} by --{name}" for name, n in sorted(found.left_out.items())]
        yield from textwrap.wrap(f"left out: {', '.join(parts)}", WIDTH)
    for note in found.notes:
        yield from textwrap.wrap(note, WIDTH)
    if found.more:
        yield "There may be more: --limit looks further, another word or filter elsewhere."
    yield f"Judged by {found.fleet}."
    if runs := [row for row in found.rows if row.verdict.runs]:
        yield f"next: llmgw explore {runs[0].id}"
        yield f"      llmgw model add {runs[0].add}"


def _row(row: Row) -> Iterator[str]:
    # A name is there to be copied, so it is never cut.
    if len(row.id) >= NAME_WIDTH:
        yield row.id
    yield _line(row.id if len(row.id) < NAME_WIDTH else "", figures(row))
    yield from _wrapped(_about(row))
    yield from _wrapped(row.verdict.text)


def figures(row: Row) -> tuple[str, str, str, str, str]:
    """Size, context, downloads, likes and age, each `-` where it is unknown."""
    return size(row.bytes), tokens(row.context), short(row.downloads), short(row.likes), age(row.age_days)


def _line(name: str, cells: Iterable[str]) -> str:
    widths = (9, 8, 10, 6, 5)
    return name.ljust(NAME_WIDTH) + "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _about(row: Row) -> str:
    """What is said of a model besides its figures."""
    of = f"of {row.base_model}" if row.base_model else ""
    gated = f"gated ({row.gated})" if row.gated else ""
    words = (gated, row.quantisation, row.architecture or "architecture not said", row.licence or "no licence", of)
    return ", ".join(word for word in words if word)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def size(n: int | None) -> str:
    """`4.6 GiB`."""
    if n is None:
        return "-"
    return f"{n / GIB:.1f} GiB" if n >= GIB / 10 else f"{n / (GIB / 1024):.1f} MiB"


def tokens(n: int | None) -> str:
    """`128k`, where k is 1024."""
    if n is None:
        return "-"
    return f"{n // 1024}k" if n >= 1024 else str(n)


def short(n: int | None) -> str:
    """`1.2M`."""
    if n is None:
        return "-"
    for unit, of in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= of:
            return f"{n / of:.1f}{unit}" if n < 10 * of else f"{n // of}{unit}"
    return str(n)


def age(days: int | None) -> str:
    """`5d`, `3mo`, `2y`."""
    if days is None:
        return "-"
    if days < 60:
        return f"{days}d"
    return f"{days // 30}mo" if days < 730 else f"{days // 365}y"
