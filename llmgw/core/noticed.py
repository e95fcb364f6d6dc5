"""What people who call a model notice of a change, and what in it is not fixed."""

from __future__ import annotations

from collections.abc import Iterator

from llmgw.catalog.lock import Lock, asked
from llmgw.catalog.origin import Place, origin
from llmgw.core.seats import counts
from llmgw.core.wanted import WantedModel


def noticed(before: WantedModel | None, after: WantedModel | None) -> tuple[str, ...]:
    """Sentences on what clients will see, in the order in which it hurts.

    Args:
        before: the model as it is carried out now; None: it is new.
        after: as the change asks for it; None: it goes.
    """
    if before is None or after is None:
        return tuple(_come_or_gone(before, after))
    return (*_names(before, after), *_limits(before, after), *_answers(before, after))


def _come_or_gone(before: WantedModel | None, after: WantedModel | None) -> Iterator[str]:
    if before is not None:
        names = ", ".join((before.model.name, *before.model.aliases))
        more = f"; it names {before.model.replaced_by} as what to use" if before.model.replaced_by else ""
        yield f"requests for {names} get 404: there is no such model any more{more}"
    elif after is not None:
        yield f"{', '.join((after.model.name, *after.model.aliases))} can be asked for"


def _names(before: WantedModel, after: WantedModel) -> Iterator[str]:
    was, will = before.model, after.model
    if gone := sorted({*was.aliases} - {*will.aliases}):
        yield f"requests for {', '.join(gone)} get 404: the alias is gone"
    if new := sorted({*will.aliases} - {*was.aliases}):
        yield f"{', '.join(new)} can be asked for"
    if not before.stopped and after.stopped:
        yield "requests are refused: it is stopped"
    if before.stopped and not after.stopped:
        yield "it answers again"
    if was.unlisted != will.unlisted:
        yield "it is not in the list of models any more" if will.unlisted else "it is in the list of models"
    if will.replaced_by and will.replaced_by != was.replaced_by:
        yield f"the list of models says to use {will.replaced_by} in its place"


def _limits(before: WantedModel, after: WantedModel) -> Iterator[str]:
    was, will = before.model, after.model
    if was.context_length != will.context_length:
        less = will.context_length < was.context_length
        what = "shorter: a longer request gets 400" if less else "longer"
        yield f"one request may use {will.context_length} tokens and not {was.context_length}: {what}"
    if was.max_output != will.max_output:
        yield f"one answer may have {_most(will.max_output)}, before {_most(was.max_output)}"
    had, has = _slots(before), _slots(after)
    if not after.stopped and has < had and was.scaling is None and will.scaling is None:
        yield f"{has} requests are answered at the same time and not {had}: the others wait"


def _answers(before: WantedModel, after: WantedModel) -> Iterator[str]:
    was, will = before.model, after.model
    if was.kind != will.kind:
        yield f"it is a model of the kind {will.kind} and not {was.kind}: other paths of the API answer"
    if lost := sorted({*was.capabilities} - {*will.capabilities}):
        yield f"the list of models does not say {', '.join(lost)} of it any more"
    old, new = _quantisation(before.lock), _quantisation(after.lock)
    moved = (was.source.version, was.source.from_) != (will.source.version, will.source.from_)
    if old and new and old != new:
        yield f"its weights are {new} and not {old}: answers differ"
    elif moved and (was.source.version != will.source.version or will.source.is_path):
        yield "its weights are others: answers may differ" + (
            "" if old and new else "; how they are quantised is not known"
        )


def _most(tokens: int | None) -> str:
    return "what is left of the context" if tokens is None else f"{tokens} tokens"


def _slots(entry: WantedModel) -> int:
    counted = counts(entry, {})
    return sum(p.parallel * counted.get(p.name, 0) for p in entry.model.profiles)


def _quantisation(lock: Lock | None) -> str:
    return str(lock.facts.get("file_type", "")) if lock else ""


def unpinned(entry: WantedModel) -> tuple[str, ...]:
    """What of a model's source may be another thing tomorrow, a sentence each."""
    source, name = entry.model.source, entry.model.name
    if entry.model.source_ is None or source.is_path:
        return ()
    found = origin(asked(source))
    pin = f"llmgw lock {name}"
    if entry.lock is None:
        if found is not None and found.moves:
            return (f"its revision {found.revision} moves, and there is no lock: {pin}",)
        if source.sha256 or source.checksums or (found is not None and found.place is Place.MIRROR):
            return ()
        return (f"it has no lock and no sha256, so what arrives is taken as it is: {pin}",)
    bare = [file.path for file in entry.lock.files if file.sha256 is None]
    if bare and not source.sha256:
        more = f" and {len(bare) - 3} more" if len(bare) > 3 else ""
        return (f"its lock has no sha256 of {', '.join(bare[:3])}{more}: what arrives is taken as it is",)
    return ()
