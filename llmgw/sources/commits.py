"""Making trees and commits in memory, without an index or a work tree."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence

from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tree
from dulwich.repo import Repo

from llmgw.sources.objects import load

FILE = stat.S_IFREG | 0o644
FOLDER = stat.S_IFDIR


class Edit:
    """A tree that is another one with some files put, and some taken out.

    Args:
        repo: where the other tree is read from; None where that is an empty one.
        base: the other tree; None is an empty one.
        changes: content by path; None takes the file out, and it need not be there.
        clear: entries of the top folder that are emptied first.
    """

    def __init__(
        self,
        repo: Repo | None,
        base: ObjectID | None,
        changes: Mapping[str, bytes | None],
        clear: Sequence[str] = (),
    ) -> None:
        self._repo = repo
        self._made: dict[ObjectID, ShaFile] = {}
        top = self._copy(base)
        for name in clear:
            if name.encode() in top:
                del top[name.encode()]
        self._apply(top, _nested(changes))
        self.tree = self._keep(top)
        """Its id."""

    def new_objects(self, old: ObjectID | None) -> list[ShaFile]:
        """What a repository that has the tree `old` lacks of this one."""
        found: dict[ObjectID, ShaFile] = {}
        pairs: list[tuple[ObjectID | None, ObjectID]] = [(old, self.tree)]
        while pairs:
            there, here = pairs.pop()
            made = self._made.get(here)
            if here == there or made is None or here in found:
                continue
            found[here] = made
            if isinstance(made, Tree):
                before = self._copy(there)
                for name, _, child in made.iteritems():
                    mode, same = _at(before, name)
                    pairs.append((same if mode == FOLDER or same == child else None, child))
        return list(found.values())

    def _apply(self, tree: Tree, changes: _Nested) -> None:
        for name, change in changes.items():
            key = name.encode()
            if isinstance(change, dict):
                mode, child_id = _at(tree, key)
                child = self._copy(child_id if mode == FOLDER else None)
                self._apply(child, change)
                if len(child):
                    tree[key] = (FOLDER, self._keep(child))
                elif mode == FOLDER:
                    del tree[key]
            elif change is not None:
                tree[key] = (FILE, self._keep(Blob.from_string(change)))
            elif key in tree:
                del tree[key]

    def _copy(self, tree_id: ObjectID | None) -> Tree:
        return Tree() if tree_id is None or self._repo is None else load(self._repo, tree_id, Tree)

    def _keep(self, made: ShaFile) -> ObjectID:
        self._made[made.id] = made
        return made.id


def commit_of(tree: ObjectID, parent: ObjectID | None, *, message: str, author: str, now: float) -> Commit:
    """A commit, in UTC.

    Args:
        tree: what it holds.
        parent: the one before it.
        message: subject, and after a blank line the rest.
        author: `Name <address>`, who is the committer too.
        now: UTC seconds.
    """
    commit = Commit()
    commit.tree = tree
    commit.parents = [parent] if parent is not None else []
    commit.author = commit.committer = " ".join(author.split()).encode("utf-8", "replace")
    commit.author_time = commit.commit_time = int(now)
    commit.author_timezone = commit.commit_timezone = 0
    commit.encoding = b"UTF-8"
    commit.message = (message.strip() + "\n").encode("utf-8", "replace")
    return commit


_Nested = dict[str, "bytes | _Nested | None"]


def _at(tree: Tree, name: bytes) -> tuple[int, ObjectID | None]:
    return tree[name] if name in tree else (0, None)  # noqa: SIM401 - a Tree has no get


def _nested(changes: Mapping[str, bytes | None]) -> _Nested:
    """`{"a/b": x}` as `{"a": {"b": x}}`."""
    top: _Nested = {}
    for path, content in changes.items():
        *folders, name = path.split("/")
        if not name or any(part in ("", ".", "..", ".git") for part in (*folders, name)):
            raise ValueError(f"{path!r} is not a path in a repository")
        here = top
        for folder in folders:
            inside = here.setdefault(folder, {})
            if not isinstance(inside, dict):
                raise ValueError(f"{path!r} is below a file")  # noqa: TRY004 - a wrong value
            here = inside
        here[name] = content
    return top
