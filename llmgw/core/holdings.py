"""What the mirror holds, and what it is asked to fetch: the types of its management API."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from llmgw_agent.protocol import WeightFile


class HoldingState(StrEnum):
    """Where a version is on its way to being served."""

    QUEUED = "queued"
    FETCHING = "fetching"
    VERIFYING = "verifying"
    PRESENT = "present"
    FAILED = "failed"
    """Stays, with its reason, until it is asked for again or removed."""


class Failure(Struct, frozen=True, omit_defaults=True):
    """Why a version could not be had."""

    cause: str
    """unreachable, not_found, forbidden, digest, size, disk_full, disk, refused, not_weights, upstream."""
    message: str
    do: str = ""
    lasting: bool = True
    """Whether trying again without a change cannot help. Control retries the passing ones."""


class Holding(Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """One version of a model's files on the mirror."""

    name: str
    version: str
    state: HoldingState
    origin: str = "catalog"
    """catalog | hand. What came by hand is never removed automatically."""
    from_: str = ""
    """Where it was had from, without credentials."""
    files: tuple[WeightFile, ...] = ()
    """Sorted by path. Complete only when `present`."""
    total_bytes: int | None = None
    """None while the source has not said."""
    done_bytes: int = 0
    rate_bytes_s: float | None = None
    failure: Failure | None = None

    @property
    def key(self) -> str:
        return f"{self.name}/{self.version}"


class WantedFile(Struct, frozen=True, omit_defaults=True, order=True):
    """One file of a version that is asked for."""

    path: str
    url: str
    """`hf://OWNER/NAME@COMMIT/PATH` too: which hub that is, and with whose token, is the mirror's affair."""
    bytes: int | None = None
    sha256: str | None = None


class FetchRequest(Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """What `POST /v1/models` asks. The same content joins the fetch under way."""

    name: str
    version: str
    origin: str = "catalog"
    files: tuple[WantedFile, ...] = ()
    from_: str = ""
    """In place of `files`: one URL, which is one file named by its last segment."""
    sha256: str | None = None
    """Of that one file."""
    retry: bool = False
    """Try a failed one again."""


class MirrorHealth(Struct, frozen=True, omit_defaults=True):
    """What `GET /v1/health` answers."""

    ok: bool
    boot: str
    """Changes at each start."""
    disk_free_bytes: int | None
    """None: it cannot be asked."""
    holdings: int
    fetching: int
    version: str = ""
    removed_bytes: int = 0
    """Of what was removed and is not deleted yet: they will be free."""


class MirrorSeen(Struct, frozen=True):
    """The whole of what the mirror holds, at one moment."""

    holdings: tuple[Holding, ...]
    disk_free_bytes: int | None = None
    boot: str = ""
    """Of its process."""
    removed_bytes: int = 0
    """Of what was removed and is not deleted yet."""
