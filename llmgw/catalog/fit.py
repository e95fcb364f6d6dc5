"""Whether one value of a file fits its type and its rules, and everything in which it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import Any, TypeVar

from pydantic import ValidationError

from llmgw.catalog.document import Document
from llmgw.catalog.explain import explain
from llmgw.catalog.fields import Strict
from llmgw.catalog.problem import Finding, Steps

T = TypeVar("T", bound=Strict)


def fit(
    kind: type[T], document: Document, base: Steps, rules: Callable[[T], Iterable[Finding]], most: int
) -> tuple[T | None, list[Finding]]:
    """The value at `base` as its type, or None and what is wrong with it.

    Args:
        kind: what it should be.
        document: the file it is in.
        base: the way to it.
        rules: what is wrong with one that fits the type, by ways that begin at it.
        most: findings wanted; with 0 none are looked for.
    """
    raw = document.value_at(base)
    try:
        # by_name: `class_` is how Python spells the field, and no key of a file.
        value = kind.model_validate(raw, by_name=False)
    except ValidationError as error:
        return None, list(_findings(kind, document, base, rules, error, most))[:most]
    found = [*_from(base, rules(value))]
    return (None if found else value), found[:most]


def _findings(
    kind: type[T],
    document: Document,
    base: Steps,
    rules: Callable[[T], Iterable[Finding]],
    error: ValidationError,
    most: int,
) -> Iterator[Finding]:
    if most <= 0:
        return
    yield from explain(kind, error, document, base, most)
    refused = [flaw["loc"] for flaw in error.errors(include_url=False)[:most]]
    try:
        rest = kind.model_validate(_without(document.value_at(base), refused), by_name=False)
    except ValidationError:
        return
    # What was refused for its type is not judged by the rules as well.
    for finding in rules(rest):
        if not any(_touch(finding.at, at) for at in refused):
            yield finding._replace(at=(*base, *finding.at))


def _from(base: Steps, findings: Iterable[Finding]) -> Iterator[Finding]:
    return (finding._replace(at=(*base, *finding.at)) for finding in findings)


def _touch(one: Steps, other: Steps) -> bool:
    """Whether one is on the way to the other."""
    return one[: len(other)] == other[: len(one)]


def _without(raw: Any, refused: Iterable[Steps]) -> Any:
    """A copy without what was refused: the rules find the rest of its problems in the same run."""
    copy = deepcopy(raw)
    for at in refused:
        here, holder, key = copy, None, None
        for step in at:
            if isinstance(here, dict) and step in here:
                holder, key, here = here, step, here[step]
            elif isinstance(here, list) and isinstance(step, int) and step < len(here):
                here = here[step]
            else:
                # A key that is missing, or one whose value is out already.
                break
        else:
            if holder:
                holder.pop(key)
    return copy
