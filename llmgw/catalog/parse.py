"""Reading one YAML file, and every problem of its writing.

The file is read from the events of PyYAML's C parser, not from its composer:
an anchor, an alias, a tag and a directive are each seen where they are
written, and a hostile file is left at its limit instead of after it. What is
read is YAML 1.2's core schema without what makes a file mean something other
than it says. docs/catalog.md has these rules for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from yaml import CBaseLoader, YAMLError, events

from llmgw.catalog import scalars, syntax
from llmgw.catalog.document import Document, Spot, Value
from llmgw.catalog.problem import Finding, Place, Steps, shorten

MOST_FINDINGS = 100
"""Problems listed of one file. A file of nothing but aliases has tens of thousands."""


class Limits(NamedTuple):
    """How much one file may be."""

    bytes: int = 256 * 1024
    nodes: int = 50_000
    """Mappings, lists, keys and values together."""
    depth: int = 64


MODEL_FILE = Limits()
SERVER_FILE = Limits(bytes=4 * 1024 * 1024, nodes=400_000)
"""Ten thousand nodes with their keys and labels are two megabytes and 200,000 parts."""

# What a file may hold as such. The line breaks that only YAML 1.1 knows (U+0085, U+2028, U+2029)
# are refused: the parser counts them as lines, and editors do not.
_REFUSED = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_MERGE = re.compile(r"^(<{7}|\|{7}|={7}|>{7})(?: [^\r\n]*)?\r?$", re.MULTILINE)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def parse(data: bytes, limits: Limits = MODEL_FILE) -> Document:
    """Read one file. Never raises: what cannot be read is a finding."""
    if len(data) > limits.bytes:
        why = f"it has {len(data)} bytes, and at most {limits.bytes} are read"
        return _unread("the file is too large", why, "split it into several files", Place(1, 1))
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        why = f"the byte 0x{data[e.start]:02x} does not belong to any character of UTF-8"
        return _unread("the file is not UTF-8", why, "save it as UTF-8", _end_of(data[: e.start].decode("utf-8")))
    if odd := _REFUSED.search(text):
        why = f"the character U+{ord(odd[0]):04X} is in it, which editors do not show"
        do = "take it out, or write it as an escape in double quotes"
        return _unread("the file is not text", why, do, _end_of(text[: odd.start()]))
    if merge := _MERGE.search(text):
        why = f"a line begins with `{merge[1]}`, which git writes where two changes meet"
        do = "keep what is meant of both, and take the marker lines out"
        return _unread("the file has an unresolved merge in it", why, do, _end_of(text[: merge.start()]))
    return _Reading(text, limits).document()


def _unread(what: str, why: str, do: str, place: Place) -> Document:
    return Document(None, (Finding((), what, why, do, place),), whole=False)


def _end_of(text: str) -> Place:
    lines = re.split(r"\r\n|\r|\n", text)
    return Place(len(lines), len(lines[-1]) + 1)


def _place(event: Any) -> Place:
    mark = event.start_mark
    return Place(mark.line + 1, mark.column + 1)


class _EndError(Exception):
    """Nothing after this is read."""


@dataclass(slots=True)
class _Open:
    """A mapping or list that is being read."""

    value: dict[str, Any] | list[Any]
    spots: dict[str, Spot] | list[Spot]
    at: Steps
    wants_key: bool
    key: str | None = None
    """Of the value that comes next. None in a mapping: that value is read and dropped."""
    key_place: Place | None = None


@dataclass(slots=True)
class _Reading:
    """The state of reading one file."""

    text: str
    limits: Limits
    value: Value = None
    root: Spot | None = None
    findings: list[Finding] = field(default_factory=list)
    unsure: set[Steps] = field(default_factory=set)
    stack: list[_Open] = field(default_factory=list)
    nodes: int = 0
    documents: int = 0

    def document(self) -> Document:
        whole = True
        try:
            self._read()
        except _EndError:
            whole = False
        return Document(self.value, tuple(self.findings), whole, self.root, frozenset(self.unsure))

    def _read(self) -> None:
        try:
            parser = CBaseLoader(self.text)
            while (event := parser.get_event()) is not None:
                self._take(event)
        except YAMLError as e:
            self.findings.append(syntax.explain(e, self._here()))
            raise _EndError from None

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is events.ScalarEvent:
            self._scalar(event)
        elif kind is events.MappingStartEvent:
            self._open(event, _Open({}, {}, self._here(), wants_key=True))
        elif kind is events.SequenceStartEvent:
            self._open(event, _Open([], [], self._here(), wants_key=False))
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            self.stack.pop()
        elif kind is events.AliasEvent:
            self._alias(event)
        elif kind is events.DocumentStartEvent:
            self._begin(event)

    def _begin(self, event: Any) -> None:
        self.documents += 1
        if event.version or event.tags:
            self._say(
                event, "a directive is in the file", "every file is read as YAML 1.2", "take out the line with `%`"
            )
        if self.documents > 1:
            self._say(
                event, "a second document begins", "a file is one document", "move it to a file of its own", last=True
            )

    def _scalar(self, event: Any) -> None:
        self._count(event)
        # Quotes and blocks make text of whatever is in them; only a plain scalar can be something else.
        raw: str = event.value
        value: scalars.Scalar = raw
        if not event.style:
            try:
                value = scalars.resolve(raw)
            except ValueError as e:
                self._say(
                    event, f"{e} is written", "no field takes one so long", "write a shorter one, or quote the text"
                )
                self.unsure.add(self._here())
        elif event.style == '"' and _CONTROL.search(raw):
            why = "an escape in it stands for one, and it would act on terminals and in logs"
            self._say(event, "the text has a control character", why, "take the escape out")
        if self.stack and self.stack[-1].wants_key:
            self._key(event, value)
        else:
            self._put(value, Spot(_place(event), self._key_place(), raw, None))

    def _key(self, event: Any, key: scalars.Scalar) -> None:
        top = self.stack[-1]
        top.wants_key, top.key, top.key_place = False, None, _place(event)
        if not isinstance(key, str):
            shown = shorten(event.value)
            what = f"the key `{shown}` is not text" if shown else "a key is empty"
            self._say(event, what, "without quotes it is read as something else", f'write "{shown}"')
        elif key == "<<" and not event.style:
            why = "a merge makes a file say something other than what is written in it"
            self._say(event, "a merge key `<<` is in the file", why, "write the keys out")
            self.unsure.add(top.at)
        elif key in top.value:
            what = f"the key `{shorten(key)}` is written twice"
            self._say(event, what, "one of the two would be passed over", "keep one")
        else:
            top.key = key

    def _open(self, event: Any, opened: _Open) -> None:
        self._count(event)
        if len(self.stack) >= self.limits.depth:
            why = f"at most {self.limits.depth} levels are read"
            self._say(event, "the file is too deep", why, "write it flatter", last=True)
        if self.stack and self.stack[-1].wants_key:
            self._no_key(event, "a key is a list or a mapping")
        else:
            self._put(opened.value, Spot(_place(event), self._key_place(), None, opened.spots))
        self.stack.append(opened)

    def _alias(self, event: Any) -> None:
        self._count(event)
        if self.stack and self.stack[-1].wants_key:
            self._no_key(event, "a key is an alias")
            return
        why = "an alias makes a file say something other than what is written in it"
        self._say(event, f"an alias `*{shorten(event.anchor)}` is in the file", why, "write it out")
        self.unsure.add(self._here())
        self._put(None, Spot(_place(event), self._key_place(), None, None))

    def _no_key(self, event: Any, what: str) -> None:
        top = self.stack[-1]
        top.wants_key, top.key = False, None
        self._say(event, what, "keys are text", "write it out as text")

    def _put(self, value: Value, spot: Spot) -> None:
        """Give a value its place in what is open."""
        if not self.stack:
            self.value, self.root = value, spot
            return
        top = self.stack[-1]
        if isinstance(top.value, list) and isinstance(top.spots, list):
            top.value.append(value)
            top.spots.append(spot)
        elif isinstance(top.value, dict) and isinstance(top.spots, dict):
            if top.key is not None:
                top.value[top.key] = value
                top.spots[top.key] = spot
            top.wants_key = True

    def _count(self, event: Any) -> None:
        """Hold the limit of nodes, and refuse what is written before a node."""
        self.nodes += 1
        if self.nodes > self.limits.nodes:
            why = f"at most {self.limits.nodes} keys and values are read"
            self._say(event, "the file has too many parts", why, "split it into several files", last=True)
        if type(event) is events.AliasEvent:
            return
        if event.anchor:
            why = "an anchor is there for aliases, and aliases are not read"
            self._say(event, f"an anchor `&{shorten(event.anchor)}` is in the file", why, "take it out")
        if event.tag:
            why = "a tag makes a value something other than what is written"
            tag = event.tag.replace("tag:yaml.org,2002:", "!!", 1)
            self._say(event, f"a tag `{shorten(tag)}` is in the file", why, "take it out, and quote what is text")

    def _say(self, event: Any, what: str, why: str, do: str, *, last: bool = False) -> None:
        place = _place(event)
        self.findings.append(Finding(self._here(), what, why, do, place))
        if last:
            raise _EndError
        if len(self.findings) >= MOST_FINDINGS:
            why = f"{MOST_FINDINGS} problems were found before this line"
            self.findings.append(Finding((), "the rest of the file is not read", why, "correct these first", place))
            raise _EndError

    def _key_place(self) -> Place | None:
        return self.stack[-1].key_place if self.stack else None

    def _here(self) -> Steps:
        """The way to the value that comes next, or to the mapping whose key comes next."""
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            return (*top.at, len(top.value))
        return top.at if top.key is None else (*top.at, top.key)
