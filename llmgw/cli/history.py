"""`llmgw history`: who served what from when to when, and whether that can be believed."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct, structs

from llmgw.cli.past import Past, past, written
from llmgw.cli.plain import para, say, say_json, visible
from llmgw.cli.render import count
from llmgw.cli.when import asked, utc, utc_s
from llmgw.core.intervals import Interval, joined, within
from llmgw.errors import Exit, Misused, Refused
from llmgw.sources.history_files import iso, month_of
from llmgw.sources.history_proof import Proof
from llmgw.sources.signatures import Signers
from llmgw.sources.status_commits import StatusTree
from llmgw.units import show_duration

LIFE_S = 400 * 86_400.0
"""How far before --since lines are read: what served then may have been started long before."""


class Served(Struct, frozen=True):
    """What `--json` prints."""

    cluster: str
    status_commit: str
    since: str
    until: str
    intervals: tuple[dict[str, object], ...]
    unread: tuple[str, ...]
    """Lines that cannot be read."""


class Verified(Struct, frozen=True):
    """What `--verify --json` prints."""

    cluster: str
    status_commit: str
    commits: int
    signed_by: dict[str, int]
    """Empty: no signers were given, and no signature was looked at."""
    faults: tuple[str, ...]


def history(
    model: Annotated[str | None, typer.Argument(help="One model; else all of them.")] = None,
    since: Annotated[str, typer.Option(help="From when on: 2026-12-01, 2026-12-01T10:00Z, 2d.")] = "",
    until: Annotated[str, typer.Option(help="Up to when.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Check the branch's signatures, and look for gaps.")] = False,
    signers: Annotated[
        list[Path] | None, typer.Option(help="Allowed signers of ssh, or OpenPGP keys: whose signatures count.")
    ] = None,
    repo: Annotated[str, typer.Option(help="The fleet's repository: a path or a URL.")] = ".",
    cluster: Annotated[str | None, typer.Option(help="The fleet; else what server.yaml says.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print it as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Say who served what from when to when: a replica's life an entry."""
    now = time.time()
    begin = asked(since, "--since", now) if since else 0.0
    end = asked(until, "--until", now) if until else float("inf")
    if as_csv and (json or verify):
        raise Misused("it is printed in one form", why="--csv is there beside another", do="leave out one of them")
    if begin > end:
        raise Misused("that is no time", why="--since is later than --until", do="give the earlier one as --since")
    if signers and not verify:
        raise Misused("nothing is checked", why="--signers is there without --verify", do="give --verify too")
    with past(repo, cluster) as branch:
        tree = branch.tip()
        if verify:
            found = _verified(branch, tree, Signers(tuple(signers)) if signers else None)
            say_json(found) if json else say(_verdict(found, signed=bool(signers)))
            raise typer.Exit(Exit.PROBLEM if found.faults else Exit.DONE)
        lines, unread = branch.lines(tree, max(0.0, begin - LIFE_S))
    if model is not None and not any(line.model == model for line in lines):
        known = ", ".join(sorted({line.model for line in lines})) or "of none"
        raise Refused(
            f"there is no history of {model}", why=f"there is one of {known}", do="name one of them, or leave it out"
        )
    lives = joined(line for line in lines if model in (None, line.model)).intervals
    lives = within(lives, begin, end)
    if json:
        rows = tuple(_row(i) for i in lives)
        times = (iso(begin) if since else "", iso(end) if until else "")
        say_json(Served(branch.cluster, tree.commit, *times, rows, tuple(unread)))
    elif as_csv:
        print(_csv(lives), end="")
    else:
        say(_text(lives, f"{branch.cluster}: {model or 'all models'} ({written(tree)}); times are UTC", now))
        say(f"not read: {text}" for text in unread)


def _row(life: Interval) -> dict[str, object]:
    times = {name: getattr(life, name) for name in ("started", "ready", "ended")}
    return {**structs.asdict(life), **{name: None if at is None else iso(at) for name, at in times.items()}}


def _csv(lives: Iterable[Interval]) -> str:
    page = io.StringIO()
    rows = [_row(life) for life in lives]
    writer = csv.DictWriter(page, Interval.__struct_fields__, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return page.getvalue()


def _cell(value: object) -> str:
    """As a spreadsheet may have it: what a node said is never a formula."""
    text = " ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
    text = visible(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def _text(lives: tuple[Interval, ...], head: str, now: float) -> Iterator[str]:
    yield from para(head)
    if not lives:
        yield ""
        yield "nothing was written down of that time"
    for life in lives:
        yield ""
        yield from _life(life, now)


def _life(life: Interval, now: float) -> Iterator[str]:
    begin = life.ready if life.ready is not None else life.began
    end = "now" if life.ended is None else utc(life.ended)
    length = show_duration(max(0.0, (now if life.ended is None else life.ended) - begin))
    what = "served" if life.ready is not None else "never served"
    if life.ready is None and life.ended is None:
        what = "starting"
    yield f"{utc(begin)} to {end}  ({length})  {what}"
    yield from para(
        f"{life.replica}, generation {life.generation}, on {life.node}{_cards(life)}", first="  ", rest="    "
    )
    ran = f"{life.engine} {life.build}".strip()
    of = " ".join(part for part in (life.version, life.digest[:19]) if part)
    if of or ran:
        yield from para(", ".join(part for part in (of, ran) if part), first="  ", rest="    ")
    if life.commit:
        yield from para(f"commit {life.commit[:10]} by {life.author or 'somebody'}", first="  ", rest="    ")
    if life.why:
        yield from para(life.why, first="  started: ", rest="    ")
    if life.end:
        word = {"stop": "stopped", "failed": "failed"}.get(life.end, "ended")
        yield from para(life.how, first=f"  {word}: ", rest="    ")


def _cards(life: Interval) -> str:
    return f" ({', '.join(life.cards)})" if life.cards else ""


def _verified(branch: Past, tree: StatusTree, signers: Signers | None) -> Verified:
    proof = branch.prove(tree, signers)
    lines, unread = branch.lines(tree)
    lives = joined(lines)
    faults = [f"commit {f.commit[:10]} of {utc_s(f.at)}: {f.what}" for f in proof.faults]
    faults += _missing(branch.months(tree), proof)
    faults += unread
    faults += [f"{utc_s(at)}: {text}" for at, text in zip(lives.gaps_at, lives.gaps, strict=True)]
    return Verified(branch.cluster, tree.commit, proof.commits, dict(proof.signed_by), tuple(faults))


def _missing(names: Iterable[str], proof: Proof) -> list[str]:
    """Months without a file, where no commit that is held shows that nothing happened in them."""
    months = sorted({month_of(name) for name in names})
    missing = []
    for before, after in pairwise(months):
        month = _next(before)
        while month < after:
            if not proof.whole and month <= iso(proof.back_to)[:7]:
                missing.append(f"history/{month}.jsonl is missing, and no commit is held that shows it never was")
            month = _next(month)
    return missing


def _next(month: str) -> str:
    year, number = int(month[:4]), int(month[5:])
    return f"{year + number // 12:04d}-{number % 12 + 1:02d}"


def _verdict(found: Verified, *, signed: bool) -> Iterator[str]:
    yield f"{found.cluster}: {count(found.commits, 'commit')} of its status branch, to {found.status_commit[:10]}"
    if signed:
        yield from (f"signed by {name}: {n}" for name, n in found.signed_by.items())
    else:
        yield "no signature was looked at: name whose count with --signers FILE"
    for fault in found.faults:
        yield from para(fault, first="- ")
    yield f"{count(len(found.faults), 'fault')} found" if found.faults else "nothing is missing"
