"""What has become of a purge: of each version, on the mirror and on every node, in one of three words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from llmgw.core.holdings import Holding
from llmgw.core.memory import Memory, Purge
from llmgw.core.replicas import Fleet, Standing
from llmgw.core.retention import unseen
from llmgw.core.wanted import Wanted

MIRROR = "the mirror"

At = tuple[str, str]
"""A version, by its key, and where it is."""


def purges(wanted: Wanted, holdings: Mapping[str, Holding] | None, fleet: Fleet, memory: Memory) -> tuple[Purge, ...]:
    """Each version of a purged model: removed, kept for whom, or waiting for what.

    Args:
        wanted: names what is purged.
        holdings: on the mirror, by key; None: it is not seen.
        fleet: the settled fleet.
        memory: of the last pass: what was there then and is seen not to be there now was removed.
    """
    if not wanted.purged:
        return ()
    users, runs = _references(wanted, fleet)
    found = {}
    for at in _there(wanted, holdings or {}, fleet):
        key, where = at
        by_hand = where == MIRROR and holdings is not None and holdings[key].origin != "catalog"
        if running := [*runs[key], *runs[_model_of(key)]]:
            found[at] = Purge(*at, "waiting for", tuple(sorted(running)))
        elif users[key] or by_hand:
            found[at] = Purge(*at, "kept for", tuple(sorted(users[key])) or ("who put it there by hand",))
        else:
            found[at] = Purge(*at, "waiting for", unseen(fleet) or (where,))
    for before in memory.purges:
        at = before.version, before.where
        if at not in found and _model_of(before.version) in wanted.purged:
            found[at] = Purge(*at, "removed") if _seen(before.where, holdings, fleet) else before
    return tuple(found[at] for at in sorted(found))


def _references(wanted: Wanted, fleet: Fleet) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Models that ask for each version, and replicas that run on it."""
    users: dict[str, list[str]] = defaultdict(list)
    runs: dict[str, list[str]] = defaultdict(list)
    for name, entry in wanted.models.items():
        users[entry.version_key].append(name)
    for replicas in fleet.replicas.values():
        for replica in replicas:
            # Of one that does not say which, it may be any of its model.
            runs[replica.version or replica.model].append(f"{replica.id} on {replica.node}")
    return users, runs


def _there(wanted: Wanted, holdings: Mapping[str, Holding], fleet: Fleet) -> Iterator[At]:
    """Where versions of purged models are."""
    for key in holdings:
        if _model_of(key) in wanted.purged:
            yield key, MIRROR
    for name, node in fleet.nodes.items():
        for version in node.seen.versions:
            if version.name in wanted.purged:
                yield version.key, name


def _seen(where: str, holdings: Mapping[str, Holding] | None, fleet: Fleet) -> bool:
    """Whether what is not there is seen not to be."""
    if where == MIRROR:
        return holdings is not None
    return where not in fleet.nodes or fleet.nodes[where].standing is Standing.USABLE


def _model_of(key: str) -> str:
    return key.partition("/")[0]
