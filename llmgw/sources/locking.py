"""From a model and what its source was found to be, its lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from llmgw.catalog.lock import Lock, asked, write, written_sum
from llmgw.catalog.model import Model
from llmgw.catalog.origin import pinned
from llmgw.catalog.parse import MODEL_FILE
from llmgw.core.resolved import Resolved
from llmgw.errors import Refused

Look = Callable[[Mapping[str, Any]], Resolved]
"""Finds what a source holds. Raises OperatorError."""


def locked(model: Model, look: Look, known: Lock | None = None) -> Lock:
    """The lock of a model, found anew.

    A lock that is of the model's source stays at its commit: a source moves when
    somebody asks for that, and not because a lock was written again.

    Args:
        model: whose.
        look: finds what its source holds.
        known: its lock, whether or not that is of its source still.

    Raises:
        OperatorError: the source cannot be looked at, or holds what no version can be.
    """
    words = asked(model.source)
    kept = known.commit if known is not None and known.belongs(model.source) else None
    return lock_of(model, look(pinned(words, kept) if kept else words))


def lock_of(model: Model, found: Resolved) -> Lock:
    """What was found, as the lock of a model.

    Raises:
        Refused: no version can be that.
    """
    files = [{"path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in found.files]
    for file in files:
        said = written_sum(model.source, str(file["path"]), len(files))
        if said and file["sha256"] not in {None, said}:
            raise Refused(
                f"{model.name} was not locked",
                why=f"its source says sha256 {said[:12]}… of {file['path']}, and what is there has "
                f"{str(file['sha256'])[:12]}…",
                do="compare with the sum its publisher names, and correct the source",
            )
        file["sha256"] = said or file["sha256"]
    try:
        lock = Lock.model_validate(
            {
                "model": model.name,
                "source": asked(model.source),
                "commit": found.commit or None,
                "license": found.license,
                "gated": found.gated,
                "base_model": found.base_model,
                "files": files,
                "facts": found.facts,
            }
        )
    except ValidationError as e:
        flaw = e.errors(include_url=False)[0]
        at = ".".join(str(step) for step in flaw["loc"])
        raise Refused(
            f"{model.name} was not locked",
            why=f"what was found is no version: {at}: {flaw['msg'][:200]}",
            do="take what does not belong out with a pattern",
        ) from None
    if len(write(lock)) > MODEL_FILE.bytes:
        raise Refused(
            f"{model.name} was not locked",
            why=f"its {len(lock.files)} files do not fit into one lock",
            do="take what the engine does not read out with a pattern",
        )
    return lock
