"""Fleets and catalogs for tests of the core, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmgw.catalog.fingerprint import fingerprint
from llmgw.catalog.model import Model
from llmgw.catalog.server import Server
from llmgw.core.actions import Fetch, Plan, Remove, Start
from llmgw.core.memory import Memory
from llmgw.core.observed import NodeSeen, Observed
from llmgw.core.wanted import Wanted, WantedModel
from llmgw.units import GIB
from llmgw_agent.protocol import (
    Card,
    Claim,
    Dossier,
    HeldVersion,
    InstalledEngine,
    Inventory,
    Phase,
    ReplicaReport,
    split_id,
)

R, S, F = Phase.READY, Phase.STARTING, Phase.FAILED
NOW = 1_800_000_000.0
SETTLED = Memory(started_at=NOW - 10_000, settled=True, epoch=1)
L40S = "l40s-48g"


def model(name: str = "m", **fields: object) -> Model:
    """A model on cards and on CPUs, read in place so that no weights are in the way."""
    counts: Mapping[str, int] = {p: fields.pop(p) for p in ("gpu", "cpu") if p in fields}  # type: ignore[misc]
    profiles = fields.pop("profiles", None) or [
        profile(p, gpu={"class": L40S} if p == "gpu" else None, replicas=n) for p, n in counts.items()
    ]
    return Model.model_validate(
        {"name": name, "context_length": 4096, "source": {"from": "/m.gguf"}, "profiles": profiles, **fields}
    )


def profile(name: str = "cpu", **fields: object) -> dict[str, object]:
    """One way to run it: a core and a GiB where nothing else is said."""
    given = {"engine": "llamacpp", "memory_gib": 1, "cpu_cores": 1, "replicas": 1, "parallel": 2, **fields}
    return {"name": name, **{k: v for k, v in given.items() if v is not None}}


def wanting(*models: Model, nodes: Iterable[str] = ("n1", "n2"), complete: bool = True, **server: object) -> Wanted:
    """What a commit asks for, of these nodes."""
    entries = [n if isinstance(n, dict) else {"name": n, "address": "10.0.0.1"} for n in nodes]
    fields = {"schema": 1, "cluster": "lab", "nodes": entries, **server}
    asked = {m.name: WantedModel(m, f"catalog/{m.name}.yaml", "c" * 40) for m in sorted(models, key=lambda m: m.name)}
    return Wanted("c" * 40, 0, Server.model_validate(fields), asked, complete=complete)


def card(n: int, *, used_gib: float = 0, card_class: str = L40S) -> Card:
    """One card of 48 GB."""
    return Card(f"GPU-{n}", "NVIDIA L40S", "nvidia", card_class, 45 * GIB, round(used_gib * GIB), "8.9")


LLAMACPP = (InstalledEngine("llamacpp", "b11549", accelerators=("cpu", "nvidia")),)


def node(
    name: str = "n1",
    *replicas: ReplicaReport,
    age_s: float | None = 1.0,
    cores: int = 64,
    memory_gib: float = 256,
    used_gib: float = 0,
    disk_gib: float = 1000,
    cards: Iterable[Card] | int = 8,
    engines: tuple[InstalledEngine, ...] | None = LLAMACPP,
    versions: Iterable[str] = (),
    **more: object,
) -> NodeSeen:
    """A node with room for everything, unless it is told otherwise."""
    inventory = Inventory(
        hostname=name,
        cpu_cores=cores,
        memory_bytes=round(memory_gib * GIB),
        memory_used_by_others_bytes=round(used_gib * GIB),
        disk_free_bytes=round(disk_gib * GIB),
        cards=tuple(card(i) for i in range(cards)) if isinstance(cards, int) else tuple(cards),
        engines=engines,
        allow=("path:/",),
    )
    held = tuple(HeldVersion(*v.split("/"), state="held") for v in versions)
    return NodeSeen(name, age_s, "boot", inventory, tuple(replicas), held, **more)


def replica(
    rid: str, of: Model, phase: Phase = R, *, generation: int = 1, age_s: float = 1000, **fields: object
) -> ReplicaReport:
    """A replica as its node reports it, run as the model asks now unless a fingerprint is given."""
    name = split_id(rid)[1]
    asked = next((p for p in of.profiles if p.name == name), None)
    devices = fields.pop("devices", ())
    claim = Claim(GIB, 1, 1 if asked and asked.gpu else 0)
    if phase is F:
        fields.setdefault("dossier", Dossier("exited", "it ended"))
        fields.setdefault("attempts", 1)
    fields.setdefault("fingerprint", fingerprint(of, asked) if asked else "of a profile that is gone")
    fields.setdefault("claim", claim)
    return ReplicaReport(rid, generation, phase, age_s=age_s, devices=devices, parallel=2, **fields)  # type: ignore[arg-type]


def fleet(of: Model, *names: str, silent: Iterable[str] = (), **phases: Iterable[Phase]) -> Observed:
    """Replicas of one model laid over the named nodes in turn, by profile: `gpu=[R, R], cpu=[S]`."""
    by_node: dict[str, list[ReplicaReport]] = {n: [] for n in names}
    turn = 0
    for name, states in phases.items():
        for ordinal, phase in enumerate(states):
            where = names[turn % len(names)]
            devices = (f"GPU-{turn}",) if name == "gpu" else ()
            by_node[where].append(replica(f"{of.name}/{name}/{ordinal}", of, phase, devices=devices))
            turn += 1
    return Observed(tuple(node(n, *by_node[n], age_s=100.0 if n in set(silent) else 1.0) for n in names))


def moves(plan: Plan) -> list[str]:
    """What a plan does, as a person would write it: `+id`, `-id`, `fetch`, `remove`."""
    lines = []
    for action in plan.actions:
        if isinstance(action, Fetch | Remove):
            lines.append(f"{action.__struct_config__.tag} {action.name}/{action.version}")
        else:
            lines.append(("+" if isinstance(action, Start) else "-") + action.id)
    return sorted(lines)


def held(plan: Plan) -> list[str]:
    """What a plan does not do, and why."""
    return [f"{h.subject}: {h.why}" for h in plan.held]
