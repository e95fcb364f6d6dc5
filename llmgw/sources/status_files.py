"""The status as files of its branch, and back: `resumed.py` says what a restart and a plan in CI make of them.

    README.md                     for people (`readme.py`)
    summary.yaml                  the commit, the guards, the problems, the server as last good
    models/<shard>/<name>.yaml    one a model, with its spec as last good
    nodes/<shard>/<name>.yaml     one a node, with what it has and what is on it
    inventory.yaml                what is ours: models, what runs where, what is held where
    problems.yaml                 what is not as it should be, and since when
    mirror.yaml                   what is held, and since when nothing refers to it
    estimates.yaml                what was predicted of replicas, and what was measured

Nothing secret is in any of them: an engine's key stays out, whatever is added later.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import Struct, structs

from llmgw.catalog import canonical
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.server import Server
from llmgw.core import lastgood
from llmgw.core.problems import Trouble, problems
from llmgw.core.promise import Outcome
from llmgw.core.references import other_key
from llmgw.core.replicas import Standing
from llmgw.core.status import (
    Condition,
    FleetStatus,
    MirrorStatus,
    ModelStatus,
    NodeStatus,
)
from llmgw.core.wanted import Wanted, WantedKey, WantedModel
from llmgw.errors import OperatorError
from llmgw.planning.learned import Estimates, rows
from llmgw.sources.owned import owned
from llmgw.sources.readme import readme

ESTIMATES = "estimates.yaml"
PROBLEMS = "problems.yaml"
FORMAT = 1
"""Raised when an older llmgw could not read what is written."""

LARGEST = 2**53
"""Of the numbers that are counted on from: a larger one was written by hand."""

UNREADABLE = (
    yaml.YAMLError,
    # What a value that only looks like a number or a date is to the library's constructors.
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Everything that reading YAML was seen to raise."""

T = TypeVar("T")
U = TypeVar("U")


class Summary(Struct, frozen=True):
    """summary.yaml."""

    format: int
    llmgw: str
    """The version that wrote it."""
    cluster: str
    observed_commit: str
    applied_commit: str
    """The last commit that nothing was held of."""
    settled: bool
    as_asked: bool
    held: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    server: dict[str, Any] = {}
    """server.yaml as last good, in canonical form."""
    keys: tuple[dict[str, Any], ...] = ()
    """Client keys by hash as last good, each with its `path`."""
    trouble: tuple[Condition, ...] = ()
    """Of control itself."""
    plan: Outcome | None = None
    """Whether what was done about the commit is what its plan had said."""


class Problems(Struct, frozen=True):
    """problems.yaml: what `core.problems` makes of the rest, for programs, and since when each is one."""

    problems: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a status commit recorded."""

    summary: Summary
    status: FleetStatus
    wanted: Wanted | None
    """The models as last good, and the server. None: no server.yaml had been good."""
    problems: tuple[str, ...] = ()
    """Files that were left out, a sentence each."""


class _Kept(Struct, frozen=True):
    """What a model's file has besides its status."""

    since: int = 0
    author: str = ""
    shared: str = ""
    spec: dict[str, Any] | None = None


def shard(name: str) -> str:
    """The folder of a name: two hex digits, so that no folder grows past a few hundred."""
    return hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:2]


def to_files(status: FleetStatus, wanted: Wanted | None, *, version: str) -> dict[str, bytes]:
    """Every file of a status commit, by path. `wanted` is None while no server.yaml has been good."""
    summary = Summary(
        FORMAT,
        version,
        status.cluster,
        status.observed_commit,
        wanted.applied if wanted else "",
        status.settled,
        status.as_asked,
        status.held,
        status.problems,
        canonical.spec(wanted.server) if wanted else {},
        tuple({"path": k.path, **canonical.spec(k.key)} for k in wanted.keys) if wanted else (),
        status.trouble,
        status.promise,
    )
    files = {
        "README.md": readme(status, wanted).encode(),
        "summary.yaml": _dump(summary),
        "inventory.yaml": _dump(owned(status)),
        PROBLEMS: _dump(Problems(problems(status))),
    }
    for model in status.models:
        entry = wanted.models.get(model.name) if wanted else None
        extra = {"since": entry.since, "spec": canonical.spec(entry.model)} if entry else {}
        extra |= {"shared": entry.shared} if entry and entry.shared else {}
        extra |= {"author": entry.author} if entry and entry.author else {}
        files[f"models/{shard(model.name)}/{model.name}.yaml"] = _dump(model, extra)
    for node in status.nodes:
        files[f"nodes/{shard(node.name)}/{node.name}.yaml"] = _dump(node)
    if status.mirror is not None:
        files["mirror.yaml"] = _dump(status.mirror)
    if status.estimates.runs:
        files[ESTIMATES] = _dump(status.estimates, {"rows": msgspec.to_builtins(rows(status.estimates.runs))})
    return files


def from_files(files: Mapping[str, bytes], *, whole: bool = True) -> Recorded:
    """Read a status commit back.

    Args:
        files: of the commit, by path.
        whole: whether all of it has to be good. If not, a file of a model, of a node or of
            the mirror, and a key, that cannot be read is left out and said in `problems`.

    Raises:
        OperatorError: it was written by a later version, or by hand.
    """
    left_out: list[str] = []

    def each(read: Callable[[U], T], of: Iterable[U]) -> list[T]:
        good = []
        for one in of:
            try:
                good.append(read(one))
            except OperatorError as e:
                if whole:
                    raise
                left_out.append(e.sentence)
        return good

    summary = _load(files, "summary.yaml", Summary)
    if summary.format > FORMAT:
        raise OperatorError(
            f"the status branch has format {summary.format}",
            why=f"it was written by llmgw {summary.llmgw}, and this one reads format {FORMAT}",
            do="use that version or a later one",
        )
    models = each(lambda p: _model(files, p), (p for p in sorted(files) if p.startswith("models/")))
    nodes = each(lambda p: _node_status(files, p), (p for p in sorted(files) if p.startswith("nodes/")))
    mirror = next(iter(each(lambda p: _load(files, p, MirrorStatus), files.keys() & {"mirror.yaml"})), None)
    estimates = next(iter(each(lambda p: _load(files, p, Estimates), files.keys() & {ESTIMATES})), Estimates())
    told = next(iter(each(lambda p: _load(files, p, Problems), files.keys() & {PROBLEMS})), Problems())
    status = FleetStatus(
        summary.cluster,
        summary.observed_commit,
        summary.settled,
        tuple(m for m, _ in models),
        tuple(sorted(nodes, key=lambda n: n.name)),
        mirror,
        summary.problems,
        summary.held,
        estimates,
        summary.trouble,
        summary.plan,
        {t.key: t.since for t in told.problems if 0 < t.since < LARGEST},
    )
    entries = {w.model.name: w for _, w in sorted(models, key=lambda m: m[0].name) if w is not None}
    wanted = None
    if summary.server:
        wanted = Wanted(
            summary.observed_commit,
            0,
            _server(summary),
            entries,
            tuple(each(_key, summary.keys)),
            held=summary.held,
            # What is no commit's id leads nowhere: then only the newest commit's own lines count.
            applied=summary.applied_commit if re.fullmatch("[0-9a-f]{40}", summary.applied_commit) else "",
        )
    return Recorded(summary, status, wanted, tuple(left_out))


def _server(summary: Summary) -> Server:
    try:
        return Server.model_validate(summary.server)
    except UNREADABLE as e:
        raise _by_hand("summary.yaml", str(e)) from None


def _key(raw: Mapping[str, Any]) -> WantedKey:
    try:
        return WantedKey(
            ClientKey.model_validate({k: v for k, v in raw.items() if k != "path"}), str(raw.get("path", ""))
        )
    except UNREADABLE as e:
        raise _by_hand("summary.yaml", str(e)) from None


def _node_status(files: Mapping[str, bytes], path: str) -> NodeStatus:
    node = _load(files, path, NodeStatus)
    _expect_path("nodes", node.name, path)
    if node.standing not in set(Standing):
        raise _by_hand(path, f"{node.standing!r} is no standing of a node")
    if any(not (0 <= r.generation < LARGEST and 0 <= r.attempts < LARGEST) for r in node.replicas):
        raise _by_hand(path, "it has a generation or a count of attempts that cannot be")
    return node


def _expect_path(folder: str, name: str, path: str) -> None:
    expected = f"{folder}/{shard(name)}/{name}.yaml"
    if path != expected:
        raise _by_hand(path, f"the file of {name} is {expected}")


def _model(files: Mapping[str, bytes], path: str) -> tuple[ModelStatus, WantedModel | None]:
    raw = _parse(files, path)
    status, kept = _convert(raw, path, ModelStatus), _convert(raw, path, _Kept)
    _expect_path("models", status.name, path)
    if kept.spec is None:
        return status, None
    try:
        model = canonical.from_spec(kept.spec)
        status = structs.replace(status, good=lastgood.kept(status.good, status.name))
    except UNREADABLE as e:
        raise _by_hand(path, str(e)) from None
    if model.name != status.name:
        raise _by_hand(path, f"its spec is of {model.name}")
    since = kept.since if 0 <= kept.since < LARGEST else 0
    return status, WantedModel(
        model,
        status.path,
        status.commit,
        since,
        status.frozen,
        shared=kept.shared,
        author=kept.author,
        held_as=other_key(model, status.version),
    )


def _dump(value: Struct, extra: Mapping[str, Any] | None = None) -> bytes:
    plain = {**msgspec.to_builtins(value), **(extra or {})}
    text = yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=1000)
    return str(text).encode()


def _load(files: Mapping[str, bytes], path: str, kind: type[T]) -> T:
    return _convert(_parse(files, path), path, kind)


def _parse(files: Mapping[str, bytes], path: str) -> dict[str, Any]:
    if path not in files:
        raise _by_hand(path, "it is missing")
    try:
        value = yaml.load(files[path], Loader=yaml.CSafeLoader)
    except UNREADABLE as e:
        raise _by_hand(path, str(e)) from None
    if not isinstance(value, dict):
        raise _by_hand(path, "it is not a mapping")
    return value


def _convert(value: dict[str, Any], path: str, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except UNREADABLE as e:
        raise _by_hand(path, str(e)) from None


def _by_hand(path: str, why: str) -> OperatorError:
    return OperatorError(
        f"{path} of the status branch cannot be read",
        why=why.replace("\n", " ")[:300],
        do="leave the branch to llmgw: delete it, and the next pass writes it anew",
    )
