"""What commits ask of simulated fleets, and what must serve where one of them is the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fleets import L40S, model, profile, wanting

from llmgw.catalog.model import Model
from llmgw.core.wanted import Wanted

MIRROR = {
    "base": "http://10.0.0.2:8081",
    "api": "http://10.0.0.2:8082",
    "retain": "20m",
    "reserve": "1GiB",
    "release_for_fetch": True,
}


@dataclass(frozen=True)
class Commit:
    """What is asked from one pass on."""

    wanted: Wanted
    serve: Mapping[str, int] = field(default_factory=dict)
    """Replicas by `model/profile` that serve in the end, where nothing comes after it."""
    asked: Mapping[str, int] = field(default_factory=dict)
    """Requests of each model at any time."""


def counted(big: int, small: int, *, context: int, other: int = 1) -> Commit:
    """Replicas counted per profile, one model beside another."""
    of = model(
        "m",
        profiles=[
            profile("big", replicas=big, memory_gib=2, priority=100),
            profile("small", replicas=small, memory_gib=1, priority=10),
        ],
        context_length=context,
        source={"from": "https://hub.example/m.gguf", "version": "1"},
    )
    o = model("o", cpu=other, context_length=context)
    wanted = wanting(of, o, nodes=("n1", "n2", "n3"), mirror=MIRROR, node_grace="5m")
    return Commit(wanted, {"m/big": big, "m/small": small, "o/cpu": other})


def sharing(guaranteed: int, *, context: int, asked: int = 4, least: int = 0) -> Commit:
    """Models of three classes that do not all fit, one of them on demand, two with a change in common."""
    always = model("always", profiles=[profile(replicas=2, memory_gib=2)], context_length=context)
    other = model("other", profiles=[profile(replicas=1, memory_gib=1)], context_length=context)
    first = model(
        "first",
        profiles=[profile(replicas=guaranteed, memory_gib=4)],
        context_length=context,
        rollout={"strategy": "in_place"},  # one fills a node, and there is no room beside it
        **{"class": "guaranteed"},
    )
    scaling = {"min": least, "max": 3, "window": 0, "target": {"slots": 1}, "down_delay": 60, "idle_timeout": 120}
    scaled = model("asked", profiles=[profile(replicas=None, memory_gib=2)], scaling=scaling, context_length=context)
    policy = {"soak": 60, "quotas": [{"class": "opportunistic", "replicas": 2}]}
    wanted = wanting(always, other, first, scaled, nodes=("n1", "n2", "n3"), node_grace="5m", policy=policy)
    shared = {n: replace(wanted.models[n], shared=f"context {context}") for n in ("always", "other")}
    serve = {"always/cpu": 2, "other/cpu": 1, "first/cpu": guaranteed, "asked/cpu": -(-asked // 2)}
    return Commit(replace(wanted, models={**wanted.models, **shared}), serve, {"asked": asked})


RACKS = {"n1": "a", "n2": "a", "n3": "b", "n4": "b", "n5": "b"}
MODELS = ("chat", "code", "tools", "embed")
RENAMED = "vectors"
"""What one of them is called at times. Its source stays, and so its weights are held under the name before."""


@dataclass(frozen=True)
class Repository:
    """Everything a repository can ask: each commit changes one thing of it."""

    chat: tuple[int, int | None] = (2, 2)
    """On cards, and on CPUs. None: it has no profile for CPUs."""
    code: int = 1
    """On two cards each."""
    tools: int = 2
    """In rack b, no two on one node."""
    embed: int = 1
    embed_name: str = "embed"
    asked: int = 4
    """Requests of the one on demand."""
    context: int = 4096
    code_class: str = "guaranteed"
    quota: int = 9
    gone: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()
    left_out: str = ""
    """A node that is not in server.yaml."""
    drained: str = ""
    card_out: str = ""
    readable: bool = True

    def changed(self, dice: Random) -> Repository:
        """As the next commit has it."""
        one, node = dice.choice(MODELS), dice.choice(["", *RACKS])
        new = {
            "chat": (dice.randint(0, 3), dice.choice([None, 0, 1, 2, 3])),
            "code": dice.randint(0, 1),
            "tools": dice.randint(0, 3),
            "embed": dice.randint(0, 2),
            "embed_name": dice.choice(["embed", RENAMED]),
            "asked": dice.choice([0, 4]),
            "context": dice.choice([4096, 8192]),
            "code_class": dice.choice(["guaranteed", "standard", "opportunistic"]),
            "quota": dice.randint(2, 9),
            "gone": self.gone ^ {one},
            "stopped": self.stopped ^ {one},
            "left_out": node,
            "drained": node,
            "card_out": dice.choice(["", "GPU-n1-0", "GPU-n3-1"]),
            "readable": not self.readable,
        }
        what = dice.choice(sorted(new))
        return replace(self, **{what: new[what]})

    def commit(self) -> Commit:
        nodes = [
            {
                "name": name,
                "address": "10.0.0.1",
                "labels": {"rack": rack},
                "drained": name == self.drained,
                "cards_out": [self.card_out] if f"-{name}-" in self.card_out else [],
            }
            for name, rack in RACKS.items()
            if name != self.left_out
        ]
        quotas = [{"owner": "us", "replicas": self.quota}, {"class": "opportunistic", "memory_gib": 5}]
        models = list(self._models())
        wanted = wanting(
            *models, nodes=nodes, mirror=MIRROR, node_grace="5m", complete=self.readable, policy={"quotas": quotas}
        )
        if renamed := wanted.models.get(RENAMED):
            wanted = replace(wanted, models={**wanted.models, RENAMED: replace(renamed, held_as="embed/1")})
        runs = (m for m in models if m.state == "running" and not m.scaling)
        serve = {f"{m.name}/{p.name}": p.replicas for m in runs for p in m.profiles}
        return Commit(wanted, {**serve, "batch/cpu": self.asked // 2}, {"batch": self.asked})

    def _models(self) -> Iterator[Model]:
        cards, cpus = self.chat
        chat = [profile("gpu", gpu={"class": L40S}, replicas=cards, priority=100)]
        chat += [] if cpus is None else [profile("cpu", replicas=cpus, memory_gib=2, priority=10)]
        code = [profile("gpu", gpu={"class": L40S, "count": 2}, replicas=self.code, memory_gib=2)]
        tools = [profile(replicas=self.tools, node_selector={"rack": "b"}, anti_affinity=["tools"])]
        # There are no two cards beside it for its successor.
        in_place = {"rollout": {"strategy": "in_place"}, "class": self.code_class}
        scaling = {"min": 0, "max": 2, "window": 0, "target": {"slots": 1}, "down_delay": 60, "idle_timeout": 120}
        asked = {
            "chat": self._model("chat", chat, owner="us"),
            "code": self._model("code", code, **in_place),
            "tools": self._model("tools", tools, owner="us"),
            "embed": self._model(self.embed_name, [profile(replicas=self.embed)]),
            "batch": self._model("batch", [profile(replicas=None, memory_gib=2)], scaling=scaling),
        }
        return (m for name, m in asked.items() if name not in self.gone)

    def _model(self, name: str, profiles: list[dict[str, object]], **fields: object) -> Model:
        source = {"from": f"https://hub.example/{name}.gguf", "version": "1"}
        state = "stopped" if name in self.stopped else "running"
        return model(name, profiles=profiles, context_length=self.context, source=source, state=state, **fields)
