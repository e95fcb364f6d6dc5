"""inventory.yaml: all that is llmgw's own on the machines, on one page: what it would clean up, and nothing else."""

from __future__ import annotations

from msgspec import Struct

from llmgw.core.status import FleetStatus


class OwnedModel(Struct, frozen=True, omit_defaults=True):
    """A model, and where in the repository it is from."""

    name: str
    path: str = ""
    commit: str = ""


class OwnedOnNode(Struct, frozen=True, omit_defaults=True):
    """What was started and fetched on one node."""

    node: str
    replicas: tuple[str, ...] = ()
    """`model/profile/ordinal@generation`."""
    versions: tuple[str, ...] = ()


class Owned(Struct, frozen=True, omit_defaults=True):
    """The whole of it, sorted."""

    models: tuple[OwnedModel, ...]
    nodes: tuple[OwnedOnNode, ...]
    mirror: tuple[str, ...] = ()
    """Versions that were fetched because the catalog asked; what came by hand is not ours to remove."""


def owned(status: FleetStatus) -> Owned:
    """What of a status is ours."""
    return Owned(
        tuple(OwnedModel(m.name, m.path, m.commit) for m in status.models),
        tuple(
            OwnedOnNode(
                n.name,
                tuple(f"{r.id}@{r.generation}" for r in n.replicas),
                tuple(v.key for v in n.versions),
            )
            for n in status.nodes
        ),
        tuple(
            f"{h.name}/{h.version}" for h in (status.mirror.holdings if status.mirror else ()) if h.origin == "catalog"
        ),
    )
