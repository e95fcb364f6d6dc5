"""Which files of a repository are the model that is asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypeVar

from llmgw.catalog.origin import Origin
from llmgw.errors import Refused

T = TypeVar("T")

MOST_FILES = 10_000
"""What one version on the mirror may have."""

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.[a-z]+)")
"""One of several files that are one: `model-00001-of-00003.gguf`."""

_MADE_OF = (".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja", ".tiktoken")
"""What an engine reads. The rest of a repository is for people, or can run code."""
_BESIDE = re.compile(r"(^|/)(original|onnx|openvino|\.[^/]*)/|(^|/)\.|(^|/)consolidated[^/]*\.safetensors$")
"""The same weights once more in another form, and what is hidden."""


PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Weights whose loading runs whatever code is in them."""


class Several(Refused):
    """What is asked for are several models, of which one has to be named."""

    def __init__(self, what: str, *, why: str, do: str, models: tuple[str, ...]) -> None:
        super().__init__(what, why=why, do=do)
        self.models = models
        """A pattern for each."""


def chosen(asked: Origin, files: Mapping[str, T]) -> list[T]:
    """The files that are asked for; without a pattern, those that an engine reads.

    Raises:
        Several: they are several models.
        Refused: there are none, or a part is missing.
    """
    if asked.patterns:
        taken = {path for path in files if asked.takes(path)}
    else:
        taken = {p for p in files if p.endswith(_MADE_OF) and not _BESIDE.search(p) and asked.takes(p)}
    at = f"hf://{asked.at}@{asked.revision}"
    if not any(weights(path) for path in taken):
        what = "matches" if asked.patterns else "has"
        near = ", ".join(sorted(p for p in files if weights(p))[:5]) or "none"
        pickled = sorted(p for p in files if p.endswith(PICKLED))
        if near == "none" and pickled:
            raise Refused(
                f"{at} has pickled weights only",
                why=f"{', '.join(pickled[:3])}: loading such a file runs whatever code is in it, and no node does that",
                do="name a repository that has the model as safetensors or GGUF; many were made from this one",
            )
        raise Refused(
            f"{at} {what} no weights" + (f" of {', '.join(asked.patterns)}" if asked.patterns else ""),
            why=f"the GGUF and safetensors files there are: {near}",
            do="correct the pattern, or name another repository",
        )
    if len(taken) > MOST_FILES:
        raise Refused(f"{at} has {len(taken)} files", why=f"a version has at most {MOST_FILES}", do="write a pattern")
    _complete(at, taken)
    _one_model(at, taken)
    return [files[path] for path in sorted(taken)]


def weights(path: str) -> bool:
    """Whether it holds numbers, by its name."""
    return path.endswith((".gguf", ".safetensors"))


def beside(path: str) -> bool:
    """Whether a file is the same weights once more in another form, or hidden."""
    return _BESIDE.search(path) is not None


def projector(path: str) -> bool:
    """Whether a GGUF file belongs to another: what turns images into tokens for it."""
    return "mmproj" in PurePosixPath(path).name.lower()


def main_file(paths: list[str]) -> str | None:
    """The file whose header says what the model is: the first part of the first GGUF, else of the first safetensors."""
    ranked = sorted((p for p in paths if weights(p) and not projector(p)), key=lambda p: (not p.endswith(".gguf"), p))
    return ranked[0] if ranked else None


def _complete(at: str, taken: set[str]) -> None:
    for path in sorted(taken):
        if found := PART.fullmatch(path):
            stem, _, total, suffix = found.groups()
            missing = [p for n in range(1, int(total) + 1) if (p := f"{stem}-{n:05d}-of-{total}{suffix}") not in taken]
            if missing:
                raise Refused(
                    f"{at} would be had in part",
                    why=f"{path} is one of {int(total)}, and {missing[0]} is not among what is asked for",
                    do="widen the pattern to every part, or name a repository that is whole",
                )


def _one_model(at: str, taken: set[str]) -> None:
    """A directory of three quantisations is no model: an engine would take the first, or none."""
    stems = sorted(
        {(f[1] if (f := PART.fullmatch(p)) else p) for p in taken if p.endswith(".gguf") and not projector(p)}
    )
    if len(stems) > 1:
        raise Several(
            f"{at} has several models",
            why=f"{', '.join(stems[:6])}{' …' if len(stems) > 6 else ''} are one model each",
            do=f"write a pattern that takes one: {at}/*Q4_K_M*.gguf",
            models=tuple(stem if stem.endswith(".gguf") else f"{stem}-*.gguf" for stem in stems),
        )
