"""How a replica is found to be well."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import Flag, Seconds, Strict, Text, Whole
from llmgw.catalog.forms import URL_PATH


class Health(Strict):
    """How a replica is found to be ready, and to be dead."""

    model_config = ConfigDict(title="health")

    path: Annotated[Text, Field(pattern=URL_PATH, max_length=200)] = "/health"
    """The path that answers 200 when the engine has loaded: the one all three engines have."""
    inference: Flag = True
    """Whether it is ready only once one token has come: an engine can answer `path` and serve nothing."""
    interval: Seconds = 5.0
    """Time between two looks at a replica that serves: often enough to find it dead within a minute."""
    timeout: Seconds = 10.0
    """How long one look may take: a busy engine answers late."""
    failures: Annotated[Whole, Field(ge=1, le=1000)] = 3
    """Looks that fail one after the other before a replica gets no new requests: one can be chance."""
    no_progress_timeout: Seconds = 180.0
    """How long slots may work and get nowhere before a replica is dead: a long prompt takes a minute."""
    expect_gpu: Flag = True
    """Whether a profile with cards fails when its engine came up on the CPU: it would serve, far too slowly."""
