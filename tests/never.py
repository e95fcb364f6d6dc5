"""What no pass may do, whatever it was shown: each function names those that did.

The properties ask these of thousands of small worlds, the simulated fleets of
every pass. Each takes the same: what was wanted, the fleet as the pass saw it, and its
plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from llmgw.core.actions import Fetch, Plan, Remove, Start, Stop
from llmgw.core.memory import Memory, Placement
from llmgw.core.observed import Observed
from llmgw.core.replicas import Fleet, Replica, Standing, survey
from llmgw.core.seats import counts
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import Claim, Phase, split_id

SMALL_SHARE = 0.1
"""What others may hold of a card that is free all the same."""


def trouble(wanted: Wanted, seen: Observed, memory: Memory, plan: Plan, now: float) -> list[str]:
    """Everything that a pass did and may not, or did not do and did not say."""
    fleet = survey(wanted, seen, memory, now)
    if not plan.settled:
        return [f"it acts before it knows what runs: {a}" for a in plan.actions]
    rules = (fewer_ready, overfull, taken_cards, asked_of_the_silent, still_referred_to, over_quota, unsaid)
    return [what for rule in rules for what in rule(wanted, fleet, plan)]


def key_of(of: Start | Stop | Placement) -> tuple[str, int, str]:
    """What makes a replica this one and no other."""
    return of.id, of.generation, of.node


def starts(plan: Plan) -> list[Start]:
    return [a for a in plan.actions if isinstance(a, Start)]


def stops(plan: Plan) -> list[Stop]:
    return [a for a in plan.actions if isinstance(a, Stop)]


def placed(plan: Plan) -> list[Placement]:
    """What this plan starts, with what it takes."""
    new = {key_of(a) for a in starts(plan)}
    return [p for p in plan.placements if key_of(p) in new]


def running(fleet: Fleet) -> list[Replica]:
    """What takes memory, cards and quotas: everything but what failed."""
    return [r for replicas in fleet.replicas.values() for r in replicas if r.phase is not Phase.FAILED]


def fewer_ready(wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 1: stops leave as many ready as there were or are asked for, but for one in place beside another."""
    of: dict[str, list[Stop]] = defaultdict(list)
    for stop in stops(plan):
        of[split_id(stop.id)[0]].append(stop)
    for name, mine in of.items():
        entry = wanted.models.get(name)
        serving = {r.key for r in fleet.of(name) if r.serves}
        yields = {key_of(s) for s in mine if "gives way to" in s.why} & serving
        in_place = {key_of(s) for s in mine if "in place" in s.why or "in its place" in s.why} & serving
        left = serving - {key_of(s) for s in mine}
        asked = sum(counts(entry, plan.memory.scales).values())
        by_hand = entry is not None and (
            entry.model.rollout.strategy == "in_place" or not entry.model.rollout.max_surge
        )
        if len(left) + len(in_place) + len(yields) < min(len(serving), asked):
            yield f"{name}: {len(left)} of {len(serving)} serve after this plan, and {asked} are asked for"
        if in_place and not by_hand and (len(in_place) > 1 or not (left or yields)):
            yield f"{name}: {sorted(in_place)} go in place, and {len(left)} others serve"


def overfull(_wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 2: what is started claims no more than what others and what runs there leave."""
    new: dict[str, list[Claim]] = defaultdict(list)
    for placement in placed(plan):
        new[placement.node].append(placement.claim)
    for node, claims in new.items():
        claims += [r.claim for r in running(fleet) if r.node == node]
        has = fleet.nodes[node].seen.inventory
        memory = has.memory_bytes - (has.memory_used_by_others_bytes or 0)
        claimed, cores = sum(c.memory_bytes for c in claims), sum(c.cpu_cores for c in claims)
        if claimed > memory:
            yield f"{node}: {claimed / GIB:.2f} GiB are claimed of {memory / GIB:.2f}"
        if cores > has.cpu_cores:
            yield f"{node}: {cores} cores are claimed of {has.cpu_cores}"


def taken_cards(_wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 2 again: a card is given to one, and none that is in use by others, broken or taken out."""
    new = Counter((p.node, uuid) for p in placed(plan) for uuid in p.devices)
    used = {(r.node, uuid) for r in running(fleet) for uuid in r.devices}
    for (node, uuid), times in new.items():
        where = fleet.nodes[node]
        card = next((c for c in where.seen.inventory.cards if c.uuid == uuid), None)
        whole = card and not card.errors and (card.used_by_others_bytes or 0) <= SMALL_SHARE * card.memory_bytes
        if times > 1 or (node, uuid) in used or not whole or uuid in where.entry.cards_out:
            yield f"{uuid} on {node} is given away and is not free"


def asked_of_the_silent(_wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 5: nothing is asked of a node that does not report, nor a start of one that is drained."""
    for action in (*starts(plan), *stops(plan)):
        node = fleet.nodes[action.node]
        if node.standing is not Standing.USABLE or (isinstance(action, Start) and node.entry.drained):
            yield f"{action} is asked of {node.name}, which is {node.standing}"


def still_referred_to(wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 6: no weights are removed that the commit or a running replica refers to."""
    used = {entry.version_key for entry in wanted.models.values()} | {r.version for r in running(fleet)}
    for action in plan.actions:
        if isinstance(action, Remove) and (f"{action.name}/{action.version}" in used or not wanted.complete):
            yield f"{action} removes what is referred to"


def over_quota(wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """What is started keeps every quota it falls under. What a lost node had is replaced, and not counted twice."""
    for quota in wanted.server.policy.quotas:
        under = {
            name
            for name, entry in wanted.models.items()
            if quota.owner in (None, entry.model.owner) and quota.class_ in (None, entry.model.class_)
        }
        new = [p.claim for p in placed(plan) if split_id(p.id)[0] in under]
        claims = [*new, *(r.claim for r in running(fleet) if r.model in under and r.standing is not Standing.LOST)]
        memory = sum(c.memory_bytes for c in claims) / GIB
        has = {quota.replicas: len(claims), quota.cards: sum(c.cards for c in claims), quota.memory_gib: memory}
        if new and any(most is not None and n > most for most, n in has.items()):
            yield f"{quota} is exceeded by {has}"


def unsaid(wanted: Wanted, fleet: Fleet, plan: Plan) -> Iterator[str]:
    """Rule 7: a model that is not as asked moves, or something says why it does not."""
    moves = {a.name if isinstance(a, Fetch | Remove) else split_id(a.id)[0] for a in plan.actions}
    said = {h.model or h.subject.split("/")[0] for h in plan.held}
    for name in sorted(wanted.models.keys() | fleet.replicas.keys()):
        mine = [r for r in fleet.of(name) if r.standing is not Standing.LOST]
        if name in moves or name in said or any(r.leaving or (r.holds and not r.serves) for r in mine):
            continue
        entry = wanted.models.get(name)
        asked = Counter(counts(entry, plan.memory.scales))
        there = Counter(r.profile for r in mine if r.serves and _as_asked(r, wanted, fleet))
        if there != +asked or len(mine) != there.total():
            yield f"{name}: {dict(there)} of {dict(asked)} are as asked, {len(mine)} are there, and nothing is said"


def _as_asked(replica: Replica, wanted: Wanted, fleet: Fleet) -> bool:
    entry = wanted.models.get(replica.model)
    fits = entry is not None and replica.fingerprint in ("", entry.outcomes.get(replica.profile))
    return fits and not fleet.nodes[replica.node].drains(replica.devices)
