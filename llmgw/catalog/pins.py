"""Locks and the models they are of: which belong together, and what is wrong where they do not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from llmgw.catalog.lock import Lock, asked, lock_path, written_sum
from llmgw.catalog.model import Model
from llmgw.catalog.origin import origin
from llmgw.catalog.problem import Finding, Place, Problem


class LockEntry(NamedTuple):
    """A lock that can be read, and where its parts are."""

    lock: Lock
    path: str
    places: Mapping[str, Place]
    """Of its keys at the top."""


class LockFile(NamedTuple):
    """What one file under locks/ says."""

    path: str
    entry: LockEntry | None
    problems: tuple[Problem, ...]

    @property
    def model(self) -> str:
        """Whose it is by its name, readable or not."""
        return self.path.removeprefix("locks/").removesuffix(".yaml")


def lock_problems(lock: Lock) -> Iterator[Finding]:
    """What is wrong with a lock by itself."""
    seen: set[str] = set()
    for index, file in enumerate(lock.files):
        if file.path.casefold() in seen:
            why = "two files of one version have two names on every disk"
            yield Finding(("files", index, "path"), f"{file.path} is there twice", why, f"llmgw lock {lock.model}")
        seen.add(file.path.casefold())


def model_problems(model: Model) -> Iterator[Finding]:
    """What a model lacks that has no lock."""
    # Asked of every model in every pass: only a repository can lack a lock.
    found = origin(asked(model.source)) if model.source.from_.startswith("hf:") else None
    if found is None or not found.needs_lock:
        return
    do = f"pin it: llmgw lock {model.name}"
    if found.moves:
        why = f"{found.revision} may be another commit tomorrow, and nothing says which one was meant"
        yield Finding(("source", "from"), f"the revision of {model.name} moves", why, do)
    else:
        why = "nothing says which files these are"
        yield Finding(("source", "from"), f"the files of {model.name} are not known", why, do)


def memory_problems(model: Model, lock: Lock | None) -> Iterator[Finding]:
    """Profiles whose memory is neither written nor to be worked out: no floor is made up for them."""
    known = lock is not None and lock.facts and lock.total_bytes is not None
    for index, profile in enumerate(model.profiles):
        if profile.memory_gib is None and (not known or profile.engine == "command"):
            why = "it is not written, and its lock has no header to work it out from"
            do = f"give memory_gib, or run llmgw lock {model.name}"
            if profile.engine == "command":
                why, do = "it is not written, and what a command takes cannot be worked out", "give memory_gib"
            at = ("profiles", index, "memory_gib")
            yield Finding(at, f"the memory of profile {profile.name} of {model.name} is not known", why, do)


def stale(entry: LockEntry, model: Model) -> Problem | None:
    """A lock that is of an earlier source of its model, or None."""
    lock = entry.lock
    if lock.belongs(model.source):
        return _other_sum(entry, model)
    now = asked(model.source)
    key = next((k for k in (*now, *lock.source) if now.get(k) != lock.source.get(k)), "from")
    was, wrote = lock.source.get(key, "nothing"), now.get(key, "nothing")
    return Problem(
        entry.path,
        *entry.places.get("source", Place(1, 1)),
        f"the lock of {model.name} is of another source",
        f"`{key}` was {was} when it was locked and is {wrote} now",
        f"llmgw lock {model.name}",
        model.name,
    )


def orphan(entry: LockEntry, what: str = "") -> Problem:
    """A lock that no model is left of, or one that has nothing to lock."""
    return Problem(
        entry.path,
        *entry.places.get("model", Place(1, 1)),
        what or f"no model is called {entry.lock.model}",
        "a lock is of the model that its file is called after",
        f"remove {entry.path}, or bring the model back",
    )


def misplaced(entry: LockEntry) -> Problem | None:
    """A lock in a file that is called after another model, or None."""
    if entry.path == lock_path(entry.lock.model):
        return None
    return Problem(
        entry.path,
        *entry.places.get("model", Place(1, 1)),
        f"the lock of {entry.lock.model} is in {entry.path}",
        "a lock is found by its file's name",
        f"rename it to {lock_path(entry.lock.model)}, or lock again",
    )


def joined(
    files: Iterable[LockFile], models: Iterable[Model], claimed: Container[str] | None
) -> tuple[dict[str, Lock], set[str], list[Problem]]:
    """The locks that count, the models whose lock does not, and what is wrong with the files.

    Args:
        files: every file under locks/.
        models: every model that is good in itself.
        claimed: the names of all models there are, good or not; None where they cannot be known.
    """
    by_name = {model.name: model for model in models}
    good: dict[str, Lock] = {}
    broken: set[str] = set()
    problems: list[Problem] = []
    for file in files:
        problems += file.problems
        entry, model = file.entry, by_name.get(file.model)
        if entry is None:
            broken.add(file.model)
        elif model is not None and model.source_ is None:
            problems.append(orphan(entry, f"{model.name} is served elsewhere, and has no source to lock"))
        elif found := misplaced(entry) or (stale(entry, model) if model else None):
            problems.append(found)
            broken.add(file.model)
        elif model:
            good[model.name] = entry.lock
        elif claimed is not None and file.model not in claimed:
            problems.append(orphan(entry))
    return good, broken, problems


def _other_sum(entry: LockEntry, model: Model) -> Problem | None:
    """A model that writes a sum, and a lock that was given another."""
    files = entry.lock.files
    for file in files:
        said = written_sum(model.source, file.path, len(files))
        if said and file.sha256 and said != file.sha256:
            return Problem(
                entry.path,
                *entry.places.get("files", Place(1, 1)),
                f"the lock of {model.name} has another sha256 than its source",
                f"the source says {said[:12]}… of {file.path}, and the lock {file.sha256[:12]}…",
                f"llmgw lock {model.name}",
                model.name,
            )
    return None
