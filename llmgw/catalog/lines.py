"""Where in the repository each field of a model stands: the file and line that a reader of a plan opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmgw.catalog.check import SERVER
from llmgw.catalog.document import Document
from llmgw.catalog.parse import parse
from llmgw.catalog.problem import Steps
from llmgw.catalog.shared import NO_SHARED, Shared, apply


class Line(NamedTuple):
    """A place in a file. Line 0: the file is known, and the place in it is not."""

    path: str
    line: int


class Lines:
    """The files of one commit, each read when it is first asked for."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._read: dict[str, Document] = {}
        server = self._document(SERVER)
        self._shared = Shared.of(server.value, known=True) if server and server.whole else NO_SHARED

    def of_model(self, path: str, name: str, way: tuple[str, ...]) -> Line:
        """Where a field of a model is written; of one that is not, the nearest thing around it.

        Args:
            path: the model's file.
            name: the model's.
            way: to the field, in which lists go by the names of their entries.
        """
        document = self._document(path)
        if document is None or not document.whole:
            return Line(path, 0)
        base: Steps = ()
        if isinstance(document.value, list):
            found = [i for i, m in enumerate(document.value) if isinstance(m, dict) and m.get("name") == name]
            if not found:
                return Line(path, 0)
            base = (found[0],)
        document, _ = apply(self._shared, document, [base])
        at = (*base, *_steps(document.value_at(base), way))
        if (origin := document.origin(at)) and (server := self._document(SERVER)):
            return Line(SERVER, server.key_place(origin).line)
        return Line(path, _line(document, at))

    def of_server(self, way: tuple[str, ...]) -> Line:
        """Where a field of server.yaml is written."""
        document = self._document(SERVER)
        if document is None or not document.whole:
            return Line(SERVER, 0)
        return Line(SERVER, _line(document, _steps(document.value, way)))

    def _document(self, path: str) -> Document | None:
        if path not in self._files:
            return None
        if path not in self._read:
            self._read[path] = parse(self._files[path])
        return self._read[path]


def _line(document: Document, at: Steps) -> int:
    return (document.key_place(at) if document.spot(at) else document.place(at)).line


def _steps(value: Any, way: tuple[str, ...]) -> Steps:
    """The way as a document has it: entries of lists by their index. It ends where nothing is written any more."""
    steps: list[str | int] = []
    for part in way:
        if isinstance(value, dict) and part in value:
            steps.append(part)
            value = value[part]
        elif isinstance(value, list):
            index = next((i for i, v in enumerate(value) if isinstance(v, dict) and v.get("name") == part), None)
            if index is None:
                break
            steps.append(index)
            value = value[index]
        else:
            break
    return tuple(steps)
