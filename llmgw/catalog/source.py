"""Where a model's weights come from."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Name, Sha256, Strict, Text


class Source(Strict):
    """Weights the mirror fetches and keeps as `name/version/`, or that are there already."""

    model_config = ConfigDict(title="source")

    from_: Annotated[Text, Field(alias="from", min_length=1, max_length=2048)]
    """Where the mirror gets the files: `hf://OWNER/NAME@REVISION/PATTERN`, `https://…`, `http://…` or
    `file:///…` as the mirror sees it. An absolute path is read in place on the node, and nothing is fetched."""
    version: Name | None = None
    """What the mirror keeps it as. A new build is a new version. Absent only for a path."""
    sha256: Sha256 | None = None
    """Of the one file; what arrives with another is refused. Absent: what arrives is taken as it is."""

    @property
    def is_path(self) -> bool:
        """Whether the weights are on the node already."""
        return self.from_.startswith("/")
