"""What commands that look at sources are told, and what they found: without a line that needs a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from llmgw.catalog.problem import Problem

HubUrl = Annotated[str | None, typer.Option("--hub", help="Where hf:// leads. Or HF_ENDPOINT; else Hugging Face.")]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="Holds a token for the hub. Or HF_TOKEN, or HF_TOKEN_PATH.", show_default=False),
]
Via = Annotated[
    str | None,
    typer.Option("--via", help="mirror, or the URL of a mirror's API: it looks, with its own token and reach."),
]
MirrorKey = Annotated[
    Path | None, typer.Option("--mirror-key-file", help="Holds the key for the mirror's API.", show_default=False)
]


@dataclass(frozen=True, slots=True)
class Reach:
    """From where sources are looked at, and as whom."""

    via: str | None = None
    hub: str | None = None
    token_file: Path | None = None
    mirror_key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What asking for every source gave."""

    problems: tuple[Problem, ...] = ()
    away: tuple[Problem, ...] = ()
    """Those of them that waiting may help."""
    summary: str = ""
