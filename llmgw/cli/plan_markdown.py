"""A plan as Markdown: the comment of a pull request, in which nothing of the files is read as markup.

Its first line is how the comment is found again. What does not fit goes by whole
sections, so that no fence and no `<details>` is cut open.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from llmgw.cli import plan_outline as outline
from llmgw.cli import plan_words as words
from llmgw.cli.render import count
from llmgw.core.changed import FieldChange
from llmgw.core.model_change import ModelChange
from llmgw.core.preview import Preview

MOST = 60_000
"""Characters of a comment: GitHub refuses more than 65,536."""

MOST_ROWS = 25
LONGEST_LINE = 400
"""Characters of what is said above the table, of each: it is never left out."""
MOST_LINES = 40
"""Of one section: a thousand starts are a number."""

_MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|~>-])")


def plan_markdown(plan: Preview) -> str:
    """What `llmgw plan --format markdown` prints, at most `MOST` characters long."""
    head, foot = "\n".join(_head(plan)), _foot(plan)
    left = MOST - len(head) - len(foot) - 200
    shown, missing = [], 0
    for section in _sections(plan):
        if len(section) + 2 <= left:
            shown.append(section)
            left -= len(section) + 2
        else:
            missing += 1
    if missing:
        shown.append(f"{count(missing, 'section')} more did not fit: the job's log and `llmgw plan` have them.")
    return "\n\n".join((head, *shown, foot))


def _head(plan: Preview) -> Iterator[str]:
    yield f"<!-- llmgw-plan:{plan.cluster} -->"
    yield f"### llmgw plan: {_text(outline.headline(plan))}"
    yield ""
    yield f"{count(len(plan.models), 'model')} to look at, {plan.unchanged} unchanged. Seen: {_text(plan.observed)}."
    if plan.observed == "nothing":
        yield "Nothing is known of the fleet, so nothing is placed: only what is asked is compared."
    for kind, lines in (("Problem", plan.problems), ("Held", [h.sentence for h in plan.held])):
        for line in lines[:MOST_ROWS]:
            yield f"\n**{kind}**: {_text(words.clipped(line, LONGEST_LINE))}"
        if len(lines) > MOST_ROWS:
            yield f"\n**{kind}**: and {len(lines) - MOST_ROWS} more"
    models = outline.worst_first(plan.models)
    if models:
        yield "\n| model | what | replicas | service | why |\n|---|---|---|---|---|"
        yield from (f"| {' | '.join(map(_text, _row(model)))} |" for model in models[:MOST_ROWS])
        if len(models) > MOST_ROWS:
            yield f"\n{len(models) - MOST_ROWS} models more are in the sections below, as far as they fit."


def _foot(plan: Preview) -> str:
    commits = (
        f"base {plan.base[:12] or 'none'}, head {plan.head[:12]}{' and uncommitted changes' if plan.dirty else ''}"
    )
    return (
        f"<sub>{_text(plan.cluster)}: {_text(commits)}; plan {plan.digest} by llmgw {_text(plan.version)}. "
        "It is void once the branch or the fleet has moved.</sub>\n"
    )


def _row(model: ModelChange) -> tuple[str, ...]:
    service = {"create": "new", "remove": "ends"}.get(model.action, "as before")
    if model.interruption:
        service = words.interrupted(model.interruption)
    return model.name, outline.verb(model), words.counted(model), service, words.clipped(outline.why(model), 200)


def _sections(plan: Preview) -> Iterator[str]:
    """Everything below the table, the most wanted first, each whole by itself."""
    if plan.warnings:
        yield _details("Warnings", _list(plan.warnings))
    if plan.server or plan.keys:
        yield _details("server.yaml and keys", [*_fields(plan.server), *_list(words.shared(plan))])
    for rolled in plan.engines:
        first, *rest = words.roll(rolled)
        yield _details(f"engine {first}", _list(rest))
    for model in outline.worst_first(plan.models):
        yield _details(f"{model.name}: {outline.verb(model)}", list(_model(model)))
    if plan.own_steps:
        numbered = [f"{n}. {words.step(step)}" for n, step in enumerate(plan.own_steps, 1)]
        yield _details("Steps, each when the one before it is done", _fence(_most(numbered)))
    uses = [*map(words.card_use, plan.cards), *map(words.memory_use, plan.memory), *map(words.disk, plan.disks)]
    uses += [f"removed from the mirror: {r.name}/{r.version}: {r.why}" for r in plan.removals]
    if uses:
        yield _details("Cards, memory and disks", _list(uses))
    drift = plan.drift
    if drift.models or drift.held:
        lines = [h.sentence for h in drift.held]
        lines += [line for model in drift.models for line in words.drifting(model)]
        yield _details("Drift: amiss with or without this change, and not counted above", _list(lines))


def _model(model: ModelChange) -> Iterator[str]:
    if model.path:
        yield f"{_text(model.path)}: {_text(words.counted(model))}\n"
    yield from _fields(model.fields)
    lines = [model.frozen] if model.frozen else []
    lines += [f"clients: {sentence}" for sentence in model.noticed]
    lines += [f"service: {service}"] if (service := words.service(model)) else []
    lines += [f"loses its place to {model.gives_way_to}"] if model.gives_way_to else []
    lines += [f"fetch: {words.download(d)}" for d in model.downloads]
    lines += [f"pin: {sentence}" for sentence in model.unpinned]
    lines += [f"moves: one of {m.profile} from {m.from_} to {m.to}" for m in model.moves]
    now = {e.profile: e for e in model.estimates_before}
    lines += [f"expect: {words.foretold(one, now.get(one.profile))}" for one in model.estimates]
    if model.starts and not model.estimates:
        lines.append(f"not estimated: llmgw lock {model.name}")
    lines += model.notes
    lines += [f"held: {words.held(h)}" + (f"; {h.next}" if h.next else "") for h in model.held]
    yield from _list(lines)
    fits = {f.id: words.fit(f) for f in model.fits}
    moves = [f"start {s.id} on {s.node}  {fits.get(s.id, '')}".rstrip() for s in model.starts]
    moves += [f"stop {s.id} on {s.node}  {s.why}" for s in model.stops]
    if moves:
        yield from ("", *_fence(_most(moves)))


def _fields(fields: Iterable[FieldChange]) -> list[str]:
    rows = [(words.place(f), f.field, *words.values(f), f.effect) for f in fields]
    if not rows:
        return []
    table = ["| where | field | before | after | effect |", "|---|---|---|---|---|"]
    table += [f"| {' | '.join(map(_text, row))} |" for row in rows[:MOST_LINES]]
    return [*table, *([f"\nand {len(rows) - MOST_LINES} more fields"] if len(rows) > MOST_LINES else []), ""]


def _details(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"<details><summary>{_text(title)}</summary>\n\n{body}\n\n</details>"


def _list(lines: Iterable[str]) -> list[str]:
    return [f"- {_text(line)}" for line in _most(list(lines))]


def _fence(lines: Iterable[str]) -> list[str]:
    """A block that is shown as it is, in a fence longer than any in it."""
    body = "\n".join(_no_mention(_plain(line)) for line in lines)
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", body, fence]


def _most(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"and {len(lines) - MOST_LINES} more"]


def _text(of: str) -> str:
    """Text that is read as text: no markup, no HTML, nobody called, no number made a link."""
    plain = _plain(of).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _no_mention(_MARKUP.sub(_escaped, plain))


def _escaped(found: re.Match[str]) -> str:
    # A pipe would end the cell of a table even behind a backslash in some readers.
    return "&#124;" if found[0] == "|" else f"\\{found[0]}"


def _no_mention(text: str) -> str:
    """With nothing after an `@` that a server would take for somebody."""
    return re.sub("@(?=\\w)", "@\u200b", text)


def _plain(text: str) -> str:
    """On one line, and without what a terminal or a reader would obey."""
    return "".join(c if c.isprintable() else " " for c in text)
