"""Whether what was done is what the plan had said.

When control takes up a commit it works out the plan of it, as `llmgw plan` does, and
keeps that as its promise. Every start and stop from then on is held against it, until
the fleet is at rest; then it is as planned, or each difference has a name.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, structs

from llmgw import __version__
from llmgw.catalog import canonical
from llmgw.catalog.lock import Lock
from llmgw.core.actions import Action, Fetch, Plan, Remove, Start, Stop
from llmgw.core.backoff import LONGEST_S
from llmgw.core.holdings import HoldingState
from llmgw.core.memory import Memory
from llmgw.core.observed import Observed
from llmgw.core.promise import Move, Outcome, Promise
from llmgw.core.simulate import Course, course
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import SILENT_AFTER_S, Phase, split_id
from llmgw_agent.protocol import Action as Ordered

_ON_THE_WAY = (Phase.FETCHING, Phase.STARTING, Phase.DRAINING, Phase.STOPPING)
_ARRIVING = (HoldingState.QUEUED, HoldingState.FETCHING)
_OTHER_TIMES = "what starts and stops beside it took other times than one another, so that other room was free"
RESTLESS = 100_000
"""Starts and stops after which nobody waits for the fleet to come to rest."""
MOST = 50
"""Differences that are said."""


class Difference(Struct, frozen=True, order=True):
    """One thing that went otherwise. Empty: nothing was planned, or nothing done."""

    model: str
    planned: str
    done: str
    why: str

    @property
    def sentence(self) -> str:
        return f"{self.model}: planned was {self.planned or 'nothing'}, done {self.done or 'nothing'}: {self.why}"


def identity(wanted: Wanted) -> str:
    """Of everything that is wanted: equal for two commits that ask for the same."""
    parts = (
        canonical.spec(wanted.server),
        [(name, w.stopped, canonical.spec(w.model), _plain(w.lock)) for name, w in sorted(wanted.models.items())],
        [(k.path, canonical.spec(k.key)) for k in sorted(wanted.keys, key=lambda k: (k.path, k.key.name))],
        sorted(wanted.purged),
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def digest(wanted: str, steps: Iterable[Iterable[Action]]) -> str:
    """Of a plan: what is wanted, what would be done, and who worked it out.

    Args:
        wanted: its identity.
        steps: what would be done. Its order, and the reasons, are no part of it.
    """
    actions = sorted(_named(action) for step in steps for action in step)
    return hashlib.sha256(msgspec.json.encode((__version__, wanted, actions))).hexdigest()[:12]


def promise(wanted: Wanted, seen: Observed, foretold: Course) -> Promise:
    """What is promised of a commit that is taken up.

    Args:
        wanted: what it asks.
        seen: the fleet as it was when it was planned.
        foretold: what comes of it.
    """
    planned: dict[str, list[tuple[Move, ...]]] = {}
    for step in foretold.steps:
        by_model: dict[str, list[Move]] = {}
        for action in step.actions:
            if isinstance(action, Start | Stop):
                by_model.setdefault(split_id(action.id)[0], []).append(_move(action))
        for model, moves in by_model.items():
            planned.setdefault(model, []).append(tuple(sorted(moves)))
    name = identity(wanted)
    return Promise(
        wanted.commit,
        name,
        digest(name, (s.actions for s in foretold.steps)),
        {model: tuple(planned[model]) for model in sorted(planned)},
        others=_others(seen),
    )


def followed(wanted: Wanted, seen: Observed, memory: Memory, plan: Plan, now: float) -> Promise | None:
    """The promise once a pass has been held against it: a new one, where another commit is wanted.

    Args:
        wanted: what is asked.
        seen: what the pass was shown.
        memory: what it began with.
        plan: what it decided.
        now: UTC seconds.
    """
    told = memory.promise
    if not plan.settled:
        return told
    if told is None or told.commit != wanted.commit:
        if told is not None and told.identity == identity(wanted):
            told = structs.replace(told, commit=wanted.commit)
        else:
            told = promise(wanted, seen, course(wanted, seen, memory, now))
    return told if told.over else _held_against(told, wanted, seen, plan, now)


def taken_up(said: Outcome, commit: str) -> Promise:
    """What an earlier control had said. Of one that was under way nobody knows what had been done."""
    lost = ("control was started again while it was carried out: what had been done is not known",)
    differences = lost if said.state == "under way" else said.differences
    return Promise(commit, said.identity, said.digest, over=True, differences=differences)


def _held_against(told: Promise, wanted: Wanted, seen: Observed, plan: Plan, now: float) -> Promise:
    done = {model: dict(moves) for model, moves in told.done.items()}
    for action in plan.actions:
        if isinstance(action, Start | Stop):
            move, key = _move(action), f"{action.id}#{action.generation} on {action.node}"
            done.setdefault(split_id(action.id)[0], {}).setdefault(f"{move.verb} {key}", move)
    new = {subject: why for subject, why in _met(told, wanted, seen, plan) if subject not in told.met}
    told = structs.replace(told, done=done, met={**told.met, **new})
    restless = sum(map(len, done.values())) > RESTLESS
    if not (restless or _quiet(seen, plan)):
        return structs.replace(told, quiet_since=None)
    since = now if told.quiet_since is None else told.quiet_since
    # What is still to come may only wait for its time; nothing waits longer than this.
    longest = max(LONGEST_S, wanted.server.policy.soak)
    if not restless and now - since < longest and _awaits(told):
        return structs.replace(told, quiet_since=since)
    found = [d.sentence for m in sorted({*told.planned, *done}) for d in _differences(told, m, wanted, plan)]
    more = (f"and {len(found) - MOST} more",) if len(found) > MOST else ()
    return Promise(told.commit, told.identity, told.digest, over=True, differences=(*found[:MOST], *more))


def _quiet(seen: Observed, plan: Plan) -> bool:
    """Whether nothing is done and nothing is on its way, as far as anybody is heard of."""
    heard = {n.name: n for n in seen.nodes if n.age_s is not None and n.age_s <= SILENT_AFTER_S}
    reported = {(r.id, r.generation, n.name): r.phase for n in heard.values() for r in n.replicas}
    on_the_way = any(phase in _ON_THE_WAY for phase in reported.values())
    ordered = ((p.id, p.generation, p.node) for p in plan.placements if p.action is Ordered.RUN and p.node in heard)
    stuck = {h.model for h in plan.held if h.stalled}
    tried = any(p is Phase.FAILED and split_id(key[0])[0] not in stuck for key, p in reported.items())
    fetched = any(h.state in _ARRIVING for h in seen.mirror.holdings) if seen.mirror else False
    return not (plan.actions or on_the_way or tried or fetched or any(key not in reported for key in ordered))


def _met(told: Promise, wanted: Wanted, seen: Observed, plan: Plan) -> Iterator[tuple[str, str]]:
    """What happens that no plan can know."""
    for node in seen.nodes:
        if node.age_s is None or node.age_s > SILENT_AFTER_S:
            yield node.name, f"{node.name} was not heard of"
    for name, gib in _others(seen).items():
        if gib > told.others.get(name, gib):
            yield name, f"others took {gib - told.others[name]} GiB more of {name}"
    for key, failed in plan.memory.failures.items():
        yield key, f"{key} failed on {' and '.join(failed.nodes) or 'its node'}: {failed.words}"
    for key, tries in plan.memory.fetches.items():
        if tries.failure:
            yield key, f"{key} could not be fetched: {tries.failure}"
    if seen.mirror is None and wanted.server.mirror is not None:
        yield "mirror", "the mirror was not reached"


def _differences(told: Promise, model: str, wanted: Wanted, plan: Plan) -> Iterator[Difference]:
    """What of one model went otherwise, and what that was due to."""
    steps, done = told.planned.get(model, ()), list(told.done.get(model, {}).values())
    planned = [move for step in steps for move in step]
    missing, extra = _less(planned, done), _less(done, planned)
    near = {move.node for move in (*planned, *done)}
    why = _why(told, model, near, wanted, plan)
    for move in extra:
        instead = next((m for m in missing if (m.verb, m.profile) == (move.verb, move.profile)), None)
        if instead is not None:
            missing.remove(instead)
        yield Difference(model, instead.words if instead else "", move.words, why)
    for move in missing:
        yield Difference(model, move.words, "", why)
    if not (missing or extra) and (swapped := _out_of_order(steps, done)):
        first, second = swapped
        yield Difference(model, f"{first.words} before {second.words}", "the other way round", why)


def _why(told: Promise, model: str, near: set[str], wanted: Wanted, plan: Plan) -> str:
    own = (why for subject, why in told.met.items() if subject in near or subject.startswith(f"{model}/"))
    if why := next(own, ""):
        return why
    entry = wanted.models.get(model)
    if entry is not None and entry.model.scaling is not None:
        return "how many run follows what is asked of it"
    others = next(iter(told.met.values()), _OTHER_TIMES)
    held = next((h.reason for h in plan.held if h.model == model), "")
    return f"{others}; {held}" if held else others


def _out_of_order(steps: Iterable[tuple[Move, ...]], done: Iterable[Move]) -> tuple[Move, Move] | None:
    """Two moves of which the second was planned for after the first, and came before it."""
    left = {n: Counter(step) for n, step in enumerate(steps)}
    latest: tuple[int, Move] | None = None
    for move in done:
        n = next(n for n, step in left.items() if step[move])
        left[n][move] -= 1
        if latest is not None and n < latest[0]:
            return move, latest[1]
        latest = max(latest, (n, move)) if latest else (n, move)
    return None


def _awaits(told: Promise) -> bool:
    """Whether something that was planned has not been done."""
    return any(
        _less((move for step in steps for move in step), told.done.get(model, {}).values())
        for model, steps in told.planned.items()
    )


def _less(moves: Iterable[Move], other: Iterable[Move]) -> list[Move]:
    """Those that the others have not, as often as they lack them, in order."""
    left, found = Counter(other), []
    for move in moves:
        if left[move]:
            left[move] -= 1
        else:
            found.append(move)
    return found


def _others(seen: Observed) -> dict[str, int]:
    """GiB that others hold of each node's memory and cards."""
    found = {}
    for node in seen.nodes:
        if node.inventory is not None:
            cards = sum(c.used_by_others_bytes or 0 for c in node.inventory.cards)
            found[node.name] = round(((node.inventory.memory_used_by_others_bytes or 0) + cards) / GIB)
    return found


def _plain(lock: Lock | None) -> object:
    return lock.model_dump(mode="json") if lock else None


def _move(action: Start | Stop) -> Move:
    return Move(str(action.__struct_config__.tag), action.id.rpartition("/")[0], action.node)


def _named(action: Action) -> tuple[str, str, str]:
    tag = str(action.__struct_config__.tag)
    return (tag, action.name, action.version) if isinstance(action, Fetch | Remove) else (tag, action.id, action.node)
