"""The catalog of a commit: every file of it, read and checked."""

from __future__ import annotations

from dataclasses import replace

from llmgw.catalog.check import SERVER, Catalog, read_fleet
from llmgw.catalog.problem import Problem
from llmgw.sources.snapshot import Snapshot


def catalog_of(snapshot: Snapshot, *, cluster: str = "") -> Catalog:
    """What a commit asks for, and all that is wrong with it. A file that is as it was is not read again.

    Args:
        snapshot: the files of the commit.
        cluster: the fleet it must be of; empty: any.
    """
    others = [Problem(b.path, 0, 0, f"{b.path} cannot be read as a file", b.why, b.do) for b in snapshot.bad]
    catalog = read_fleet({path: blob.data for path, blob in snapshot.files.items()}, others)
    if not cluster or catalog.server is None or catalog.server.cluster == cluster:
        return catalog
    wrong = Problem(
        SERVER,
        0,
        0,
        f"this repository is of the fleet {catalog.server.cluster}",
        f"this control is for {cluster}",
        f"write cluster: {cluster}, or start control with --cluster {catalog.server.cluster}",
    )
    return replace(catalog, server=None, problems=tuple(sorted((*catalog.problems, wrong))))
