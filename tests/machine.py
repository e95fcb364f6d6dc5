"""One node of a simulated fleet, as it really is: its engines, and what goes wrong on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from fleets import LLAMACPP, card
from msgspec import structs

from llmgw.core.observed import NodeSeen
from llmgw.units import GIB
from llmgw_agent.protocol import (
    Action,
    Card,
    Dossier,
    HeldVersion,
    Inventory,
    Orders,
    Phase,
    ReplicaOrder,
    ReplicaReport,
)

WEIGHTS_BYTES = 2 * GIB
"""Of every version."""
STARTED = (Phase.FETCHING, Phase.STARTING, Phase.READY)
LIVE = (*STARTED, Phase.DRAINING, Phase.STOPPING)


@dataclass
class Luck:
    """All that is random, of one seed."""

    dice: Random
    calm: bool = False
    """Whether nothing goes wrong any more."""
    whole: bool = False
    """Whether nothing breaks: what is said may still be late, or lost."""

    def odds(self, chance: float) -> bool:
        return not self.whole and self.astray(chance)

    def astray(self, chance: float) -> bool:
        """Whether something that is said comes late, or not at all."""
        return not self.calm and self.dice.random() < chance

    def mixed(self, items: tuple) -> tuple:
        """The same in another order."""
        return tuple(self.dice.sample(items, len(items)))


@dataclass
class Engine:
    """One replica."""

    order: ReplicaOrder
    phase: Phase = Phase.FETCHING
    since: float = 0.0
    left: float = 0.0
    """Seconds until its phase ends."""
    attempts: int = 0
    cause: str = ""
    more_bytes: int = 0
    """What it takes above its claim once it serves."""

    def report(self, now: float, busy: int) -> ReplicaReport:
        serves = self.phase is Phase.READY
        claim = self.order.spec.claim
        return ReplicaReport(
            self.order.id,
            self.order.generation,
            self.phase,
            fingerprint=self.order.fingerprint,
            age_s=now - self.since,
            claim=claim,
            devices=self.order.devices,
            memory_bytes=claim.memory_bytes + self.more_bytes if serves and self.more_bytes else None,
            version=self.order.version,
            parallel=2,
            busy=busy if serves else 0,
            attempts=self.attempts,
            dossier=Dossier(self.cause, "it ended") if self.phase is Phase.FAILED else None,
        )


@dataclass
class Machine:
    """One node. What it is told it does, and it says what is so, as an agent does."""

    name: str
    memory_gib: float = 8
    cards: int = 0
    disk_gib: float = 1000
    engines: dict[tuple[str, int], Engine] = field(default_factory=dict)
    obeyed: tuple[int, int] = (0, 0)
    versions: set[str] = field(default_factory=set)
    ahead: dict[str, float] = field(default_factory=dict)
    """Seconds until a version that is fetched ahead is there, by its key."""
    spare: tuple[str, ...] = ()
    """Versions that may go where room is needed, the first of them first."""
    dark_until: float = 0.0
    """It is not heard of before, and hears nothing."""
    others_gib: float = 0.0
    others_disk_gib: float = 0.0
    others_cards: dict[str, float] = field(default_factory=dict)
    """GiB that other programs hold, by card."""
    errors: dict[str, str] = field(default_factory=dict)
    """What is wrong with a card, by card."""
    late: Orders | None = None
    """Orders that are still on their way."""
    last: NodeSeen | None = None
    """What it last got through to control."""
    reported_at: float | None = None
    wrong: list[str] = field(default_factory=list)
    """What it was told and must never be, in words."""

    @property
    def uuids(self) -> list[str]:
        """Of its cards."""
        return [f"GPU-{self.name}-{n}" for n in range(self.cards)]

    @property
    def live(self) -> list[Engine]:
        """What takes memory and cards now."""
        return [e for e in self.engines.values() if e.phase in LIVE]

    @property
    def arriving(self) -> list[HeldVersion]:
        """Half of each version that is being fetched."""
        keys = {*self.ahead, *(e.order.version for e in self.engines.values() if e.phase is Phase.FETCHING)}
        keys -= {"", *self.versions}
        return [HeldVersion(*k.split("/"), "arriving", WEIGHTS_BYTES // 2, WEIGHTS_BYTES) for k in sorted(keys)]

    @property
    def disk_free_bytes(self) -> int:
        there = len(self.versions) * WEIGHTS_BYTES + sum(v.bytes for v in self.arriving)
        return round((self.disk_gib - self.others_disk_gib) * GIB) - there

    def report(self, now: float, busy: dict[str, int]) -> NodeSeen:
        """All that is so.

        Args:
            now: by its own clock.
            busy: requests on each replica, by model.
        """
        inventory = Inventory(
            hostname=self.name,
            cpu_cores=64,
            memory_bytes=round(self.memory_gib * GIB),
            memory_used_by_others_bytes=round(self.others_gib * GIB),
            disk_free_bytes=self.disk_free_bytes,
            cards=tuple(map(self._card, self.uuids)),
            engines=LLAMACPP,
            allow=("path:/",),
        )
        replicas = tuple(e.report(now, busy.get(key[0].split("/")[0], 0)) for key, e in sorted(self.engines.items()))
        held = (HeldVersion(*v.split("/"), state="held") for v in sorted(self.versions))
        return NodeSeen(self.name, 0.0, "boot", inventory, replicas, (*held, *self.arriving), self.obeyed)

    def _card(self, uuid: str) -> Card:
        errors = (self.errors[uuid],) if uuid in self.errors else ()
        return structs.replace(card(0, used_gib=self.others_cards.get(uuid, 0)), uuid=uuid, errors=errors)

    def obey(self, orders: Orders, now: float, luck: Luck) -> None:
        """What is ordered and not there begins, what is there and not ordered ends."""
        if (orders.epoch, orders.seq) <= self.obeyed:
            return  # they are what it has obeyed, or older
        self.obeyed = (orders.epoch, orders.seq)
        asked = {(r.id, r.generation): r for r in orders.replicas}
        for key, order in asked.items():
            engine = self.engines.get(key)
            if engine is None and order.action is Action.RUN:
                more = GIB // 4 if luck.odds(0.1) else 0
                self.engines[key] = Engine(
                    order, Phase.FETCHING, now, luck.dice.uniform(1, 20), order.attempt, "", more
                )
            elif engine is not None and order.action is Action.DRAIN and engine.phase in STARTED:
                self._become(engine, Phase.DRAINING, now, luck.dice.uniform(1, 10))
        for key in [k for k in self.engines if k not in asked]:
            if self.engines[key].phase in (Phase.STOPPED, Phase.FAILED):
                del self.engines[key]
            elif self.engines[key].phase in STARTED:
                self._become(self.engines[key], Phase.DRAINING, now, luck.dice.uniform(1, 10))
        self._stock({v.key: v.action for v in orders.versions}, luck)

    def _stock(self, told: dict[str, str], luck: Luck) -> None:
        """Fetch ahead what it is told to, and let go of what may go."""
        self.spare = tuple(key for key, action in told.items() if action == "spare")
        for key in {key for key, action in told.items() if action == "may_remove"}:
            self.versions.discard(key)
        for key in {*told} & {e.order.version for e in self.live}:
            if told[key] in ("may_remove", "spare"):
                self.wrong.append(f"{self.name} is told that {key} {told[key]}, which runs there")
        ahead = {key for key, action in told.items() if action == "prefetch"} - self.versions
        self.ahead = {key: self.ahead.get(key, luck.dice.uniform(1, 20)) for key in sorted(ahead)}

    def _has_room(self) -> bool:
        """Whether the other half of a version finds room, once what is spare has gone for it."""
        for key in self.spare:
            if self.disk_free_bytes < WEIGHTS_BYTES // 2:
                self.versions.discard(key)
        return self.disk_free_bytes >= WEIGHTS_BYTES // 2

    def mend(self, now: float) -> None:
        """Everything that went wrong by itself ends."""
        self.others_gib = self.others_disk_gib = 0.0
        self.others_cards, self.errors = {}, {}
        self.dark_until = min(self.dark_until, now)
        for engine in self.engines.values():
            engine.more_bytes = 0

    def suffer(self, now: float, luck: Luck) -> None:
        """What goes wrong by itself."""
        dice, odds = luck.dice, luck.odds
        if odds(0.02):
            self.dark_until = now + dice.choice([20, 60, 200, 900])
        if odds(0.003):
            self.engines.clear()  # it was started again, and did not hear what was being said
            self.late = None
            if odds(0.5):
                self.versions, self.ahead, self.obeyed = set(), {}, (0, 0)  # and its disk was lost
        if odds(0.02):
            self.others_gib = dice.choice([0, 0, 0, 1, 3])
        if odds(0.02):
            self.others_disk_gib = dice.choice([0, 0, self.disk_gib / 2, self.disk_gib])
        for uuid in self.uuids:
            if odds(0.02):
                self.others_cards[uuid] = dice.choice([0, 0, 1, 30])
            if odds(0.005):
                self.errors[uuid] = "xid 79"

    def go_on(self, now: float, passed: float, luck: Luck) -> None:
        """Let its engines come to their next phase, or to a bad end, and weights arrive."""
        for key in list(self.ahead):
            self.ahead[key] -= passed
            if self.ahead[key] <= 0 and self._has_room():
                del self.ahead[key]
                self.versions.add(key)
        for engine in self.engines.values():
            engine.left -= passed
            if engine.phase is Phase.READY and luck.odds(0.005):
                self._fail(engine, now, luck)
            elif engine.left <= 0:
                self._next(engine, now, luck)

    def _next(self, engine: Engine, now: float, luck: Luck) -> None:
        version = engine.order.version
        if engine.phase is Phase.FETCHING:
            if version and version not in self.versions and not self._has_room():
                self._fail(engine, now, luck, "disk")
                return
            self.versions |= {version} - {""}
            self._become(engine, Phase.STARTING, now, luck.dice.uniform(1, 30))
        elif engine.phase is Phase.STARTING:
            self._fail(engine, now, luck) if luck.odds(0.2) else self._become(engine, Phase.READY, now)
        elif engine.phase is Phase.DRAINING:
            self._become(engine, Phase.STOPPING, now, luck.dice.uniform(1, 5))
        elif engine.phase is Phase.STOPPING:
            self._become(engine, Phase.STOPPED, now)
        elif engine.phase is Phase.READY and now - engine.since >= 600:
            engine.attempts = 0

    def _fail(self, engine: Engine, now: float, luck: Luck, cause: str = "") -> None:
        engine.attempts += 1
        engine.cause = cause or luck.dice.choice(["exited", "exited", "exited", "killed", "out_of_memory"])
        self._become(engine, Phase.FAILED, now)

    def _become(self, engine: Engine, phase: Phase, now: float, left: float = 0.0) -> None:
        engine.phase, engine.since, engine.left = phase, now, left

    def overfull(self) -> Iterator[str]:
        """Whether its live engines claim more than there is, or two of them the same card."""
        claimed = sum(e.order.spec.claim.memory_bytes for e in self.live)
        if claimed > self.memory_gib * GIB:
            yield f"{self.name} is overfull: {claimed / GIB:.1f} of {self.memory_gib} GiB"
        for uuid, n in Counter(d for e in self.live for d in e.order.devices).items():
            if n > 1:
                yield f"{uuid} was given to {n}"
