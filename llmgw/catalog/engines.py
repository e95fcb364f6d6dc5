"""Builds of engines that nodes may be given."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, Sha256, Strict, Text, Word
from llmgw.catalog.forms import PLATFORM


class EngineBuild(Strict):
    """One build of an engine."""

    model_config = ConfigDict(title="engine build")

    name: Literal["llamacpp", "vllm", "sglang"]
    """The engine."""
    version: Word
    """What `engine_version` of a profile calls it: `b11549`."""
    platform: Annotated[Text, Field(pattern=PLATFORM, max_length=40)] = "linux-x86_64"
    """The system and processor it is for: what most servers are."""
    backend: Literal["cpu", "cuda", "rocm", "vulkan", "sycl"] = "cpu"
    """What it computes on: the one that is everywhere."""
    from_: Annotated[Text, Field(alias="from", min_length=1, max_length=2048)]
    """Where the mirror gets it: an archive by its URL."""
    sha256: Sha256
    """Of the archive: a program that cannot be told from another is not run."""


class EngineChoice(Strict):
    """An engine that a node is to have."""

    model_config = ConfigDict(title="node engine")

    name: Name
    """The engine."""
    version: Word | None = None
    """Which of the builds. Absent: the newest that fits the node."""
