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
    reading = Reading()
    for top in (SERVER, *FOLDERS):
        if top.encode() in root:
            _entry(repo, reading, top, *root[top.encode()], known)
    files, bad = reading.result()
    return Snapshot(
        commit=commit.id.decode(),
        committed_at=commit.at,
        author=commit.author,
        subject=commit.subject,
        identity=identity_of(files, bad),
        files=files,
        bad=bad,
    )


def _entry(repo: Repo, reading: Reading, path: str, mode: int, entry_id: ObjectID, known: Mapping[str, Blob]) -> None:
    match reading.kind(path, mode):
        case "folder":
            for name, child_mode, child_id in load(repo, entry_id, Tree).iteritems():
                child = reading.child(path, name)
                if child is not None:
                    _entry(repo, reading, child, child_mode, child_id, known)
        case "file":
            blob_id = entry_id.decode()
            reading.keep(path, known.get(blob_id) or Blob(blob_id, load(repo, entry_id, GitBlob).data))
