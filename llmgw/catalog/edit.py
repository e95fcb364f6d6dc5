"""Changing one value of a file and no other byte of it.

A change is made in the text, where the value stands, and is then read back: the
parser that reads the catalog has to find exactly what was asked for, and nothing
else moved. Where a file is written in a way in which that cannot be done, it is
refused with the line to edit by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from llmgw.catalog import splice
from llmgw.catalog.document import Document, Value
from llmgw.catalog.parse import MODEL_FILE, SERVER_FILE, parse
from llmgw.catalog.problem import Steps, label
from llmgw.catalog.shape import Shaper
from llmgw.catalog.spans import Lines, Span, follow, spans
from llmgw.errors import Refused

_BOM = "\ufeff"
_GONE = object()
"""In place of the value of a key that is taken out."""


# A command asks a file for several things, and one of ten thousand nodes takes half a second to read.
_parsed = lru_cache(8)(parse)


@dataclass(frozen=True, slots=True)
class File:
    """One file of the repository."""

    path: str
    """From the top of the repository."""
    data: bytes

    def read(self) -> Document:
        """What it says. The value is shared: it is read, and never changed."""
        return _parsed(self.data, SERVER_FILE if self.path == "server.yaml" else MODEL_FILE)


def put(file: File, at: Steps, value: Value, *, order: Sequence[str] = ()) -> File:
    """The file with `value` at `at`, whether or not something was there.

    Args:
        file: as it is.
        at: the way to the value. Mappings that are missing on it are made; items of lists are not.
        value: of plain mappings, lists and scalars.
        order: of the keys beside it: a new one goes after the last one there that comes before it.

    Raises:
        Refused: it cannot be done without touching something else; says what to edit by hand.
    """
    here, wanted = at, value
    before = good(file)
    while here[:-1] and not isinstance(_at(before, here[:-1]), dict | list):
        # What is missing on the way is written with it.
        here, wanted = here[:-1], {str(here[-1]): wanted}
    holder = _at(before, here[:-1])
    if here and isinstance(holder, list) is isinstance(here[-1], str):
        noun = "a list" if isinstance(holder, list) else "a mapping"
        text = file.data.decode("utf-8").removeprefix(_BOM)
        raise _by_hand(file, text, here, wanted, f"{noun} is there, and it is not what belongs there")
    return _edited(file, before, here, wanted, order if here == at else ())


def drop(file: File, at: Steps) -> File:
    """The file without the key or the item at `at`, which is there.

    Raises:
        Refused: it cannot be done without touching something else; says what to edit by hand.
    """
    return _edited(file, good(file), at, _GONE, ())


def append(file: File, at: Steps, value: Value, *, order: Sequence[str] = ()) -> File:
    """The file with one more item in the list at `at`, which is made where it is missing.

    Raises:
        Refused: it cannot be done without touching something else; says what to edit by hand.
    """
    old = _at(good(file), at)
    return put(file, at, [*(old if isinstance(old, list) else ()), value], order=order)


def good(file: File) -> Document:
    """What a file says that can be edited.

    Raises:
        Refused: it cannot be read as a person means it; says what to mend first.
    """
    document = file.read()
    if document.findings:
        first = document.findings[0]
        place = first.place or document.place(first.at)
        raise Refused(
            f"{file.path} was not edited",
            why=f"line {place.line}: {first.what}, so it is not clear what a change of it would mean",
            do=f"mend {file.path}:{place.line} first: {first.do}",
        )
    return document


def _edited(file: File, before: Document, at: Steps, value: Any, order: Sequence[str]) -> File:
    text = file.data.decode("utf-8")
    bom = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    try:
        changed = _assign(text, at, value, order)
    except splice.Unclear:
        raise _by_hand(file, text, at, value, "what stands around it is written in an unusual way") from None
    after = replace(file, data=(bom + changed).encode("utf-8"))
    said, wanted = after.read(), deepcopy(before.value)
    wanted = _with(wanted, at, value)
    if said.findings or not same(said.value, wanted):
        raise _by_hand(
            file,
            text,
            at,
            value,
            "the change would alter more of the file than was asked",
        )
    return after


def _assign(text: str, at: Steps, value: Any, order: Sequence[str]) -> str:
    """The text with the value at `at`; parts that stay the same stay as they are written."""
    root = _spans(text)
    owner, old = (follow(root, at[:-1]) if at else None), follow(root, at)
    style = Shaper.of(text, root)
    if value is _GONE:
        assert owner is not None, "a whole file is removed, not edited"
        return _dropped(text, style, at, owner)
    if old is None:
        assert owner is not None, "the root is always there"
        return splice.apply(text, _added(style, owner, at[-1], value, order))
    now = _value(text, at)
    if same(now, value):
        return text
    if isinstance(now, dict) and isinstance(value, dict) and now and value:
        return _merged(text, at, now, value)
    if isinstance(now, list) and isinstance(value, list) and now and value:
        return _matched(text, at, now, value)
    entry = owner.entry(at[-1]) if owner and isinstance(at[-1], str) else None
    inside = any(span.flow for span in _around(root, at))
    return splice.apply(
        text,
        splice.replace(style, old, value, entry.key if entry else None, flow=inside),
    )


def _added(style: Shaper, owner: Span, last: str | int, value: Any, order: Sequence[str]) -> list[splice.Cut]:
    if isinstance(last, int):
        return splice.add_item(style, owner, value, last - 1)
    earlier = order[: order.index(last)] if last in order else ()
    # The one written last, of those that come before it: people keep orders of their own.
    after = next((e for e in reversed(owner.entries or ()) if e.name in earlier), None)
    return splice.add_entry(style, owner, last, value, after)


def _merged(text: str, at: Steps, now: dict[str, Any], value: dict[str, Any]) -> str:
    for key, part in value.items():
        text = _assign(text, (*at, key), part, tuple(value))
    for key in now.keys() - value.keys():
        text = _assign(text, (*at, key), _GONE, ())
    return text


def _matched(text: str, at: Steps, now: list[Any], value: list[Any]) -> str:
    """A list made into another: what both begin and end with is not touched."""
    shorter = min(len(now), len(value))
    head = next((i for i in range(shorter) if not same(now[i], value[i])), shorter)
    tail = next(
        (i for i in range(shorter - head) if not same(now[-1 - i], value[-1 - i])),
        shorter - head,
    )
    middle, others = now[head : len(now) - tail], value[head : len(value) - tail]
    for index, (_, new) in enumerate(zip(middle, others, strict=False), head):
        text = _assign(text, (*at, index), new, ())
    for index in reversed(range(head + len(others), head + len(middle))):
        text = _assign(text, (*at, index), _GONE, ())
    for index in range(head + len(middle), head + len(others)):
        text = _inserted(text, at, index, value[index])
    return text


def _inserted(text: str, at: Steps, index: int, value: Any) -> str:
    root = _spans(text)
    owner = follow(root, at)
    if owner is None or index == 0:
        raise splice.Unclear
    return splice.apply(text, splice.add_item(Shaper.of(text, root), owner, value, index - 1))


def _dropped(text: str, style: Shaper, at: Steps, owner: Span) -> str:
    last = at[-1]
    if len(owner.parts) == 1 and not owner.flow:
        # The last of a block leaves nothing that could stand for an empty one.
        return _assign(text, at[:-1], {} if owner.entries is not None else [], ())
    if isinstance(last, int):
        return splice.apply(text, splice.drop_item(style, owner, last))
    entry = owner.entry(last)
    assert entry is not None, "what is taken out is there"
    return splice.apply(text, splice.drop_entry(style, owner, entry))


def _around(root: Span, at: Steps) -> list[Span]:
    found = (follow(root, at[:end]) for end in range(len(at)))
    return [span for span in found if span is not None]


def _spans(text: str) -> Span:
    """Those of a text in which some of the change is made already."""
    if _parsed(text.encode("utf-8"), SERVER_FILE).findings:
        raise splice.Unclear
    return spans(text)


def _value(text: str, at: Steps) -> Any:
    return _parsed(text.encode("utf-8"), SERVER_FILE).value_at(at)


def _at(document: Document, at: Steps) -> Any:
    return document.value_at(at) if document.spot(at) is not None else None


def _with(whole: Any, at: Steps, value: Any) -> Any:
    """A plain value with another at `at`."""
    if not at:
        return value
    holder = whole
    for step in at[:-1]:
        holder = holder[step]
    last = at[-1]
    if value is _GONE:
        del holder[last]
    elif isinstance(holder, list) and last == len(holder):
        holder.append(value)
    else:
        holder[last] = value
    return whole


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are one: `1`, `1.0` and `true` are three."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)  # noqa: PLR0124 - .nan is not equal to itself


def _by_hand(file: File, text: str, at: Steps, value: Any, why: str) -> Refused:
    root = spans(text)
    near = next(span for end in range(len(at), -1, -1) if (span := follow(root, at[:end])) is not None)
    where = f"{file.path}:{Lines(text).number(near.start)}"
    if value is _GONE:
        do = f"take `{label(at)}` out by hand at {where}"
    else:
        style = Shaper.of(text, root)
        do = f"edit {where} by hand: write `{at[-1]}: {style.inline(value, flow=True)}`"
    return Refused(f"`{label(at)}` was not changed", why=why, do=do)
