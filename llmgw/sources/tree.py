"""The fleet's files as a commit has them, read from the object store: there is no checkout."""

from __future__ import annotations

from collections.abc import Mapping

from dulwich.objects import Blob as GitBlob
from dulwich.objects import ObjectID, Tree
from dulwich.repo import Repo

from llmgw.sources.objects import load, load_commit
from llmgw.sources.scope import FOLDERS, SERVER, Reading
from llmgw.sources.snapshot import Blob, Snapshot, identity_of


def snapshot_of(repo: Repo, commit_id: ObjectID, known: Mapping[str, Blob]) -> Snapshot:
    """What one commit asks for.

    Args:
        repo: where its objects are.
        commit_id: in hex.
        known: blobs by their id that need not be read again.

    Raises:
        Damaged: an object is missing, or is not what its id says.
        Refused: there is too much of it to be a fleet's repository.
    """
    commit = load_commit(repo, commit_id)
    root = load(repo, commit.tree, Tree)
    walk = _Walk(repo, known)
    for top in (SERVER, *FOLDERS):
        if top.encode() in root:
            walk.entry(top, *root[top.encode()])
    files, bad = walk.reading.result()
    return Snapshot(
        commit=commit.id.decode(),
        committed_at=commit.at,
        author=commit.author,
        subject=commit.subject,
        identity=identity_of(files, bad),
        files=files,
        bad=bad,
    )


class _Walk:
    """One walk down the trees. An object that is met again is not read again."""

    def __init__(self, repo: Repo, known: Mapping[str, Blob]) -> None:
        self.reading = Reading()
        self._repo = repo
        self._blobs = dict(known)
        self._trees: dict[ObjectID, Tree] = {}

    def entry(self, path: str, mode: int, entry_id: ObjectID) -> None:
        match self.reading.kind(path, mode):
            case "folder":
                for name, child_mode, child_id in self._tree(entry_id).iteritems():
                    child = self.reading.child(path, name)
                    if child is not None:
                        self.entry(child, child_mode, child_id)
            case "file":
                self.reading.keep(path, self._blob(entry_id))

    def _tree(self, tree_id: ObjectID) -> Tree:
        if tree_id not in self._trees:
            self._trees[tree_id] = load(self._repo, tree_id, Tree)
        return self._trees[tree_id]

    def _blob(self, blob_id: ObjectID) -> Blob:
        name = blob_id.decode()
        if name not in self._blobs:
            self._blobs[name] = Blob(name, load(self._repo, blob_id, GitBlob).data)
        return self._blobs[name]
