"""Where a model's weights come from, and what belongs to them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from llmgw.catalog.fields import Alias, Name, Path, Paths, Seconds, Sha256, Strict, Text, Word
from llmgw.catalog.planned import Planned

LATER = r"(modelscope|s3|gs|oci|mirror):|(https?|file)://.*(/$|[*])"

_From = Annotated[Text, Field(min_length=1, max_length=2048)]


class Adapter(Strict):
    """A LoRA adapter that is loaded beside the weights."""

    model_config = ConfigDict(title="adapter")

    name: Alias
    """What clients ask for to use it. Unique in the fleet, as a model's name is."""
    source: _From
    """Where it comes from, in any form that `source.from` has."""
    scale: Annotated[float, Field(strict=True, ge=-100, le=100, allow_inf_nan=False)] = 1.0
    """How strongly it acts: 1 is as it was trained."""


class Source(Strict):
    """Weights the mirror fetches and keeps as `name/version/`, or that are there already."""

    model_config = ConfigDict(title="source")

    from_: Annotated[
        _From,
        Field(alias="from"),
        Planned(LATER, "`modelscope`, `s3`, `gs`, `oci` and `mirror`, and URLs of patterns and folders"),
    ]
    """Where the mirror gets the files: `hf://OWNER/NAME@REVISION/PATTERN`, `https://…`, `http://…` or
    `file:///…` as the mirror sees it. `modelscope://…`, `s3://…`, `gs://…` and `oci://…` name files where others
    keep them, `mirror:NAME/VERSION/` what the mirror holds already, and a URL that ends in `/` all files below it.
    An absolute path is read in place on the node, and nothing is fetched."""
    version: Name | None = None
    """What the mirror keeps it as. A new build is a new version. Absent only for a path."""
    sha256: Sha256 | None = None
    """Of the one file; what arrives with another is refused. Absent: what arrives is taken as it is."""
    checksums: Annotated[
        dict[Path, Sha256], Field(max_length=256), AfterValidator(lambda sums: dict(sorted(sums.items())))
    ] = {}
    """The sha256 of each file of several, by its path; what arrives with another is refused."""
    revision: Word | None = None
    """A branch, a tag or a commit of a repository of models. Absent: what `from` has after its `@`, or the
    default branch as `llmgw lock` finds it."""
    files: Paths = ()
    """Patterns of the files to take: `*Q4_K_M*.gguf`. Absent: all that the engine needs."""
    ignore: Paths = ()
    """Patterns of files to leave, of those that `files` takes."""
    format: Annotated[Literal["gguf", "safetensors", "other"] | None, Planned()] = None
    """How the weights are written. Absent: as their files' names say."""
    mmproj: Annotated[Path | None, Planned()] = None
    """The projector of a model that sees or hears, by its file's name in the source. Absent: the one there is."""
    draft: Annotated[Path | None, Planned()] = None
    """The small model that guesses ahead, in any form that `from` has. Absent: none."""
    chat_template: Annotated[Path | None, Planned()] = None
    """A template of conversations, by its file's name in the source. Absent: the model's own."""
    adapters: Annotated[tuple[Adapter, ...], Field(max_length=64), Planned()] = ()
    """LoRA adapters, each asked for by its own name."""
    token_ref: Annotated[Name | None, Planned()] = None
    """The name of a file beside the mirror that holds the token to fetch with. Absent: no token."""
    prefetch: Annotated[bool, Field(strict=True)] = False
    """Nodes that a profile fits fetch the weights before a replica is placed there: as many as it may have replicas,
    at most eight a profile, and only while nothing that is to run waits to be fetched."""
    retain: Seconds | None = None
    """How long this version is kept once nothing refers to it. Absent: `mirror.retain` of the fleet."""

    @property
    def is_path(self) -> bool:
        """Whether the weights are on the node already."""
        return self.from_.startswith("/")

    @property
    def is_later(self) -> bool:
        """Whether `from` has a form that nobody fetches yet."""
        return re.match(LATER, self.from_) is not None
