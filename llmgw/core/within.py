"""Where all replicas of a profile are, where its `keep_within` asks for one node, rack, row, room or site.

It is chosen once for all that are missing, before any is placed: where some run already,
else where most of them fit. What runs elsewhere is not moved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from llmgw.core.needs import Domain, Need, ask_of
from llmgw.core.rooms import Rooms, domain_of
from llmgw.core.rules import Rules


def kept_within(needs: Iterable[Need], rooms: Rooms) -> list[Need]:
    """The same needs, in their order, each with the place it is kept within."""
    alike: dict[tuple[str, str], list[Need]] = defaultdict(list)
    listed = list(needs)
    for need in listed:
        if need.profile.keep_within:
            alike[need.model.name, need.profile.name].append(need)
    chosen = {key: _of(of, rooms) for key, of in alike.items()}
    return [replace(n, within=chosen[n.model.name, n.profile.name]) if n.profile.keep_within else n for n in listed]


def domain_for(
    rules: Rules, key: str, level: str, rooms: Rooms, count: int, *, version: str = "", avoid: Iterable[str] = ()
) -> Domain:
    """The place of a profile's replicas, the first of those that are as good by name.

    Args:
        rules: of what one replica asks.
        key: the profile, `model/profile`.
        level: `node`, `rack`, `row`, `room` or `site`.
        rooms: what is left.
        count: how many are missing.
        version: the key of their weights.
        avoid: nodes that are tried last.
    """
    found: dict[tuple[str, ...], list[int]] = {}
    last = {*avoid, *rooms.suspects}
    for room in rooms.all.values():
        if at := domain_of(room, level):
            times = rules.times(room, key.partition("/")[0])
            held = bool(times) and version in room.held
            mine = (room.models[key], 0 if room.name in last else times, times, rules.admits(room), held)
            found[at] = [a + b for a, b in zip(found.get(at, [0] * len(mine)), mine, strict=True)]

    def liking(at: tuple[str, ...]) -> tuple[int, int, int, int, int, int, tuple[str, ...]]:
        running, well, fits, there, held = found[at]
        # Where it fits as often as it should, the smallest of those is enough.
        return -running, -min(well, count), -min(fits, count), -min(there, 1), -held, fits, at

    return Domain(level, min(found, key=liking, default=()))


def _of(needs: list[Need], rooms: Rooms) -> Domain:
    first = needs[0]
    ask = ask_of(
        first.model, first.profile, version=first.version, weights_bytes=first.weights_bytes, shunned=first.shunned
    )
    level, key = first.profile.keep_within or "node", f"{first.model.name}/{first.profile.name}"
    return domain_for(Rules(ask), key, level, rooms, len(needs), version=first.version, avoid=first.avoid)
