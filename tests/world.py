"""A fleet that misbehaves on purpose.

Reports arrive late, in any order or not at all, orders get lost or come when they are
old, nodes go silent with their engines still running, engines die, fail to come up
and take more than they said, other programs take memory, cards and disk, cards break,
agents and the mirror lose their disks, and control loses its memory. Everything
random comes from one seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from machine import WEIGHTS_BYTES, Luck, Machine
from msgspec import structs

from llmgw.actuators.orders import compose
from llmgw.core.actions import Fetch, Plan, Remove
from llmgw.core.decide import decide
from llmgw.core.holdings import Failure, Holding, HoldingState, MirrorSeen
from llmgw.core.memory import Memory
from llmgw.core.observed import DemandSeen, Load, NodeSeen, Observed
from llmgw.core.wanted import Wanted
from llmgw.units import GIB
from llmgw_agent.protocol import Orders, Phase, WeightFile

UNKIND_TICKS_S = (2.0, 5.0, 5.0, 10.0, 30.0)
"""Between two passes, where much happens."""
CALM_TICK_S = 30.0
"""Where nothing happens a pass comes at least this often."""


class World:
    """The fleet, its mirror and its control."""

    def __init__(self, seed: int, machines: Iterable[Machine], *, start: float = 1_000_000.0) -> None:
        self.luck = Luck(Random(seed))
        self.now = start
        self.machines = {m.name: m for m in machines}
        self.memory = Memory(started_at=start)
        self.mirror: dict[str, Holding] = {}
        self.arriving: dict[str, float] = {}
        """When what the mirror fetches is there, by version."""
        self.mirror_dark_until = 0.0
        self.mirror_gib = 1000.0
        """Of its disk, less what others have there."""
        self.seen = Observed()
        """What the last pass was shown."""
        self.before = self.memory
        """What it remembered."""
        self.plan: Plan | None = None
        self.said: set[str] = set()
        """Why anything was done or not."""
        self.removed: list[str] = []
        self.wrong: list[str] = []
        """What control said and must never say, in words."""
        self.asked: dict[str, int] = {}
        """Requests of each model at any time."""
        self.ended: dict[str, float] = {}
        """When one was last asked."""

    # What control sees.

    def observe(self, wanted: Wanted) -> Observed:
        """The last reports of the nodes that are listed, the mirror's and the gateways'."""
        nodes = []
        for name in sorted(n.name for n in wanted.server.nodes):
            m = self.machines[name]
            if self.now >= m.dark_until and not self.luck.astray(0.1):
                busy = {model: self.luck.dice.randint(0, 2) if n else 0 for model, n in self.asked.items()}
                m.last, m.reported_at = m.report(self.now, busy), self.now
            age = None if m.reported_at is None else self.now - m.reported_at + 0.5
            nodes.append(structs.replace(m.last or NodeSeen(name), age_s=age))
        mirror = None
        if self.now >= self.mirror_dark_until:
            free = round(self.mirror_gib * GIB) - WEIGHTS_BYTES * len(self.mirror)
            mirror = MirrorSeen(tuple(self.mirror[key] for key in sorted(self.mirror)), free)
        return Observed(tuple(nodes), mirror, self._demand())

    def _mixed(self, seen: Observed) -> Observed:
        """The same, as it might have come in."""
        mixed = self.luck.mixed
        nodes = (structs.replace(n, replicas=mixed(n.replicas), versions=mixed(n.versions)) for n in seen.nodes)
        return structs.replace(seen, nodes=mixed(tuple(nodes)))

    def _demand(self) -> DemandSeen:
        """What gateways say: now and then something else than what is, or nothing."""
        loads = {name: self._load(name) for name in self.asked} if self.asked else {}
        return DemandSeen(loads, ("g1",), whole=False) if self.luck.odds(0.05) else DemandSeen(loads)

    def _load(self, name: str) -> Load:
        active = self.asked[name] if self.luck.calm else self.luck.dice.choice([0, 0, 1, self.asked[name], 9])
        serves = any(rid.startswith(f"{name}/") for rid in self.ready())
        if active:
            self.ended[name] = self.now
        idle = self.now - self.ended[name] if name in self.ended else None
        return Load(0, active, idle) if serves else Load(active, 0, idle)

    # What control does.

    def one_pass(self, wanted: Wanted) -> Plan:
        in_order = self.observe(wanted)
        self.before, self.seen = self.memory, self._mixed(in_order)
        plan = decide(wanted, self.seen, self.memory, self.now)
        if self.luck.odds(0.1) and decide(wanted, in_order, self.memory, self.now) != plan:
            self.wrong.append("another order of the same reports makes another plan")
        self.memory = plan.memory
        if plan.settled:
            orders, self.memory = compose(wanted, plan)
            for name, order in orders.items():
                self._send(self.machines[name], order)
            for action in plan.actions:
                self._mirror_does(action)
        self.said |= {h.reason for h in plan.held} | {a.why for a in plan.actions}
        self.plan = plan
        return plan

    def lose_memory(self) -> None:
        """Control starts again on an empty disk; what it was saying is cut off."""
        self.memory = Memory(started_at=self.now)
        for m in self.machines.values():
            m.last, m.reported_at, m.late = None, None, None

    def _send(self, m: Machine, orders: Orders) -> None:
        """Orders come at once, after the next ones, or never."""
        if m.last and orders.epoch < m.last.obeyed[0]:
            self.wrong.append(f"{m.name} is sent a lower epoch than it has obeyed")
        now, m.late = [m.late] if m.late else [], None
        if self.luck.astray(0.1):
            m.late = orders
        elif not self.luck.astray(0.15):
            now.insert(0, orders)
        for each in now if self.now >= m.dark_until else ():
            m.obey(each, self.now, self.luck)

    def _mirror_does(self, action: object) -> None:
        if self.now < self.mirror_dark_until or self.luck.astray(0.15):
            return
        if isinstance(action, Fetch):
            key = f"{action.name}/{action.version}"
            if key not in self.mirror or self.mirror[key].state is HoldingState.FAILED:
                self.mirror[key] = Holding(action.name, action.version, HoldingState.FETCHING)
                self.arriving[key] = self.now + self.luck.dice.uniform(1, 40)
        elif isinstance(action, Remove):
            key = f"{action.name}/{action.version}"
            self.mirror.pop(key, None)
            self.arriving.pop(key, None)
            self.removed.append(key)
            if on := [m.name for m in self.machines.values() if any(e.order.version == key for e in m.live)]:
                self.wrong.append(f"the mirror is told to remove {key}, which runs on {', '.join(on)}")

    # What happens by itself.

    def tick(self) -> None:
        passed = CALM_TICK_S if self.luck.calm else self.luck.dice.choice(UNKIND_TICKS_S)
        self.now += passed
        for key in [key for key, at in self.arriving.items() if self.now >= at]:
            del self.arriving[key]
            self.mirror[key] = self._fetched(*key.split("/"))
        if self.luck.odds(0.01):
            self.mirror_dark_until = self.now + self.luck.dice.uniform(5, 300)
        if self.luck.odds(0.02) or self.luck.calm:
            self.mirror_gib = 1000.0 if self.luck.calm else self.luck.dice.choice([1000.0, 1000.0, 9.0, 0.0])
        if self.luck.odds(0.002):
            self.mirror, self.arriving = {}, {}  # its disk was lost
        for m in self.machines.values():
            if self.luck.calm:
                m.mend(self.now)
            m.suffer(self.now, self.luck)
            m.go_on(self.now, passed, self.luck)

    def _fetched(self, name: str, version: str) -> Holding:
        if self.luck.odds(0.3):
            gone = Failure("unreachable", "the source did not answer", lasting=False)
            return Holding(name, version, HoldingState.FAILED, failure=gone)
        files = (WeightFile("m.gguf", WEIGHTS_BYTES, "0" * 64),)
        return Holding(name, version, HoldingState.PRESENT, files=files)

    # What is so, whatever control believes.

    def trouble(self) -> list[str]:
        """What was said and must never be, and what two replicas share and must never."""
        told = [what for m in self.machines.values() for what in m.wrong]
        return [*self.wrong, *told, *(what for m in self.machines.values() for what in m.overfull())]

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
