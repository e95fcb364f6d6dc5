"""A fleet that misbehaves on purpose.

Reports arrive late or not at all, orders get lost, nodes go silent with their
engines still running, engines die and fail to come up, other programs take
memory, agents lose their disk, and control loses its memory. Everything random
comes from one seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from fleets import LLAMACPP
from msgspec import structs

from llmgw.actuators.orders import compose
from llmgw.core.actions import Fetch, Plan, Remove
from llmgw.core.decide import decide
from llmgw.core.holdings import Failure, Holding, HoldingState, MirrorSeen
from llmgw.core.memory import Memory
from llmgw.core.observed import DemandSeen, Load, NodeSeen, Observed
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import (
    Action,
    Dossier,
    HeldVersion,
    Inventory,
    Orders,
    Phase,
    ReplicaOrder,
    ReplicaReport,
    WeightFile,
)

TICK_S = 5.0
LIVE = (Phase.FETCHING, Phase.STARTING, Phase.READY, Phase.DRAINING, Phase.STOPPING)


@dataclass
class Engine:
    """One replica on one node, as it really is."""

    order: ReplicaOrder
    phase: Phase = Phase.FETCHING
    since: float = 0.0
    left: float = 0.0
    """Seconds until its phase ends."""
    attempts: int = 0
    cause: str = ""


@dataclass
class Machine:
    """One node, as it really is."""

    name: str
    memory_gib: int
    engines: dict[tuple[str, int], Engine] = field(default_factory=dict)
    obeyed: tuple[int, int] = (0, 0)
    dark_until: float = 0.0
    others_gib: float = 0.0
    versions: set[str] = field(default_factory=set)
    last: NodeSeen | None = None
    """What it last got through to control."""
    reported_at: float | None = None


class World:
    """The fleet, its mirror and its control."""

    def __init__(self, seed: int, nodes: tuple[str, ...], *, memory_gib: int = 8, start: float = 1_000_000.0) -> None:
        self.dice = Random(seed)
        self.now = start
        self.calm = False
        self.machines = {n: Machine(n, memory_gib) for n in nodes}
        self.memory = Memory(started_at=start)
        self.mirror: dict[str, Holding] | None = {}
        self.arriving: dict[str, float] = {}
        self.mirror_dark_until = 0.0
        self.plan: Plan | None = None
        self.removed: list[str] = []
        self.asked: dict[str, int] = {}
        """Requests of each model at any time."""
        self.ended: dict[str, float] = {}
        """When one was last asked."""

    def odds(self, chance: float) -> bool:
        return not self.calm and self.dice.random() < chance

    # What control sees.

    def observe(self) -> Observed:
        nodes = []
        for m in self.machines.values():
            if self.now >= m.dark_until and not self.odds(0.1):
                m.last, m.reported_at = self._report(m), self.now
            seen = m.last or NodeSeen(m.name)
            age = None if m.reported_at is None else self.now - m.reported_at + 0.5
            nodes.append(structs.replace(seen, age_s=age))
        dark = self.now < self.mirror_dark_until
        mirror = None if dark or self.mirror is None else MirrorSeen(tuple(self.mirror[k] for k in sorted(self.mirror)))
        return Observed(tuple(nodes), mirror, self._demand())

    def _demand(self) -> DemandSeen:
        """What gateways say: now and then something else than what is, or nothing."""
        loads = {name: self._load(name) for name in self.asked} if self.asked else {}
        return DemandSeen(loads, ("g1",), whole=False) if self.odds(0.05) else DemandSeen(loads)

    def _load(self, name: str) -> Load:
        active = self.asked[name] if self.calm else self.dice.choice([0, 0, 1, self.asked[name], 9])
        serves = any(rid.startswith(f"{name}/") for rid in self.ready())
        if active:
            self.ended[name] = self.now
        idle = self.now - self.ended[name] if name in self.ended else None
        return Load(0, active, idle) if serves else Load(active, 0, idle)

    def _report(self, m: Machine) -> NodeSeen:
        inventory = Inventory(
            hostname=m.name,
            cpu_cores=64,
            memory_bytes=m.memory_gib * GIB,
            memory_used_by_others_bytes=round(m.others_gib * GIB),
            engines=LLAMACPP,
            allow=("path:/",),
        )
        replicas = tuple(self._replica(e) for _, e in sorted(m.engines.items()))
        held = tuple(HeldVersion(*v.split("/"), state="held") for v in sorted(m.versions))
        return NodeSeen(m.name, 0.0, "boot", inventory, replicas, held, m.obeyed)

    def _replica(self, e: Engine) -> ReplicaReport:
        return ReplicaReport(
            e.order.id,
            e.order.generation,
            e.phase,
            fingerprint=e.order.fingerprint,
            age_s=self.now - e.since,
            claim=e.order.spec.claim if e.order.spec else None,
            version=e.order.version,
            parallel=2,
            attempts=e.attempts,
            dossier=Dossier(e.cause, "it ended") if e.phase is Phase.FAILED else None,
        )

    # What control does.

    def one_pass(self, wanted: Wanted) -> Plan:
        seen = self.observe()
        plan = decide(wanted, seen, self.memory, self.now)
        self.memory = plan.memory
        if plan.settled:
            orders, self.memory = compose(wanted, seen, plan, self.now)
            for name, order in orders.items():
                if self.now >= self.machines[name].dark_until and not self.odds(0.15):
                    self._obey(self.machines[name], order)
            for action in plan.actions:
                self._mirror_does(action)
        self.plan = plan
        return plan

    def lose_memory(self) -> None:
        """Control starts again on an empty disk."""
        self.memory = Memory(started_at=self.now)
        for m in self.machines.values():
            m.last, m.reported_at = None, None

    def _mirror_does(self, action: object) -> None:
        if self.mirror is None or self.now < self.mirror_dark_until or self.odds(0.15):
            return
        if isinstance(action, Fetch):
            key = f"{action.name}/{action.version}"
            if key not in self.mirror or self.mirror[key].state is HoldingState.FAILED:
                self.mirror[key] = Holding(action.name, action.version, HoldingState.FETCHING)
                self.arriving[key] = self.now + self.dice.uniform(1, 40)
        elif isinstance(action, Remove):
            self.mirror.pop(f"{action.name}/{action.version}", None)
            self.removed.append(f"{action.name}/{action.version}")

    def _obey(self, m: Machine, orders: Orders) -> None:
        """As the agent does: what is ordered and not there begins, what is there and not ordered ends."""
        assert (orders.epoch, orders.seq) >= m.obeyed or orders.epoch > m.obeyed[0], "a lower epoch was sent"
        asked = {(r.id, r.generation): r for r in orders.replicas}
        for key, order in asked.items():
            engine = m.engines.get(key)
            if engine is None and order.action is Action.RUN:
                slow = self.dice.uniform(1, 20)
                m.engines[key] = Engine(order, Phase.FETCHING, self.now, slow, attempts=order.attempt)
            elif engine is not None and order.action is Action.DRAIN and engine.phase in LIVE[:3]:
                self._become(engine, Phase.DRAINING, 10)
        for key in [k for k in m.engines if k not in asked]:
            engine = m.engines[key]
            if engine.phase in (Phase.STOPPED, Phase.FAILED):
                del m.engines[key]
            elif engine.phase in LIVE[:3]:
                self._become(engine, Phase.DRAINING, 10)
        m.obeyed = (orders.epoch, orders.seq)

    def _become(self, engine: Engine, phase: Phase, most: float) -> None:
        engine.phase, engine.since, engine.left = phase, self.now, self.dice.uniform(1, most)

    # What happens by itself.

    def tick(self) -> None:
        self.now += TICK_S
        for key, at in list(self.arriving.items()):
            if self.now >= at and self.mirror is not None:
                del self.arriving[key]
                name, version = key.split("/")
                if self.odds(0.3):
                    gone = Failure("unreachable", "the source did not answer", lasting=False)
                    self.mirror[key] = Holding(name, version, HoldingState.FAILED, failure=gone)
                else:
                    files = (WeightFile("m.gguf", 100, "0" * 64),)
                    self.mirror[key] = Holding(name, version, HoldingState.PRESENT, files=files)
        if self.odds(0.01):
            self.mirror_dark_until = self.now + self.dice.uniform(5, 300)
        for m in self.machines.values():
            self._machine(m)

    def _machine(self, m: Machine) -> None:
        if self.odds(0.02):
            m.dark_until = self.now + self.dice.choice([20, 60, 200, 900])
        if self.odds(0.003):
            m.engines.clear()  # the machine was started again
        if self.odds(0.02):
            m.others_gib = self.dice.choice([0, 0, 0, 1, 3])
        if self.calm:
            m.others_gib = 0
            m.dark_until = min(m.dark_until, self.now)
        for engine in m.engines.values():
            engine.left -= TICK_S
            if engine.phase is Phase.READY and self.odds(0.005):
                self._fail(engine)
            elif engine.left <= 0:
                self._next(m, engine)

    def _next(self, m: Machine, engine: Engine) -> None:
        if engine.phase is Phase.FETCHING:
            if engine.order.version:
                m.versions.add(engine.order.version)
            self._become(engine, Phase.STARTING, 30)
        elif engine.phase is Phase.STARTING:
            self._fail(engine) if self.odds(0.2) else self._become(engine, Phase.READY, 0)
        elif engine.phase is Phase.DRAINING:
            self._become(engine, Phase.STOPPING, 5)
        elif engine.phase is Phase.STOPPING:
            self._become(engine, Phase.STOPPED, 0)
        elif engine.phase is Phase.READY and self.now - engine.since >= 600:
            engine.attempts = 0

    def _fail(self, engine: Engine) -> None:
        engine.attempts += 1
        # Never parked for good: a calm fleet must be able to come to what is asked.
        engine.cause = "exited"
        self._become(engine, Phase.FAILED, 0)

    # What is so, whatever control believes.

    def ready(self) -> list[str]:
        """Ids of replicas that serve, one for each."""
        return sorted(e.order.id for m in self.machines.values() for e in m.engines.values() if e.phase is Phase.READY)

    def there(self) -> list[str]:
        """Everything that is on the nodes, failed ones too."""
        return sorted(
            f"{e.order.id}#{e.order.generation} on {m.name} {e.phase}"
            for m in self.machines.values()
            for e in m.engines.values()
        )

    def overfull(self) -> list[str]:
        """Nodes whose live engines claim more than there is."""
        return [
            m.name
            for m in self.machines.values()
            if sum(e.order.spec.claim.memory_bytes for e in m.engines.values() if e.phase in LIVE and e.order.spec)
            > m.memory_gib * GIB
        ]
