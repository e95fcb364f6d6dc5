"""Step 4 of a pass, before any node is looked at: what an owner or a class may have in all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from llmgw.catalog.model import Model
from llmgw.catalog.policy import Quota
from llmgw.core.actions import Held
from llmgw.core.needs import Need, ask_of
from llmgw.core.replicas import Fleet, Replica, Standing
from llmgw.core.wanted import Wanted
from llmgw.units import GIB, show_gib
from llmgw_agent.protocol import Phase


@dataclass(slots=True)
class _Used:
    """What the models of one quota have."""

    quota: Quota
    has: Counter[str] = field(default_factory=Counter)
    """Cards, bytes of memory and replicas."""

    def covers(self, model: Model) -> bool:
        """Whether a model is one of those it is for."""
        return self.quota.owner in (None, model.owner) and self.quota.class_ in (None, model.class_)

    def over(self, more: Counter[str], less: Counter[str]) -> str:
        """What would be too much with so much more, and so much less: words, or empty."""
        quota, has = self.quota, self.has
        memory = None if quota.memory_gib is None else round(quota.memory_gib * GIB)
        for what, most in (("cards", quota.cards), ("memory", memory), ("replicas", quota.replicas)):
            if most is not None and has[what] - less[what] + more[what] > most:
                if what == "memory":
                    return f"{show_gib(has[what])} of {show_gib(most)} are taken, and it takes {show_gib(more[what])}"
                return f"{has[what]} of {most} {what} are taken, and it takes {more[what]}"
        return ""

    @property
    def whose(self) -> str:
        """Whose quota it is, in words."""
        owner, of_class = self.quota.owner, self.quota.class_
        models = f"{of_class} models" if of_class else "models"
        return f"all {models}" if owner is None else f"the {models} of {owner}"


class Quotas:
    """The quotas of server.yaml, and what is left of each while needs are let through."""

    def __init__(self, wanted: Wanted, fleet: Fleet) -> None:
        """Count what runs. What is leaving counts until it is gone."""
        self._used = [_Used(quota) for quota in wanted.server.policy.quotas]
        if not self._used:
            return
        for name, replicas in fleet.replicas.items():
            entry = wanted.models.get(name)
            mine = [used for used in self._used if entry and used.covers(entry.model)]
            for replica in replicas if mine else ():
                for used in mine:
                    used.has += _taken(replica)

    def admit(self, need: Need, after: Replica | None = None) -> Held | None:
        """Let a need through and count it, or say whose quota keeps it out.

        Args:
            need: what is missing.
            after: a replica of its model that goes first. It still counts, and only what is more is counted as well.
        """
        held = self.full(need, after)
        if held is None:
            more = _asked(need) - (_taken(after) if after else Counter())
            for used in self._of(need):
                used.has += more
        return held

    def full(self, need: Need, after: Replica | None = None) -> Held | None:
        """Whose quota keeps a need out, even once a replica of its model has gone. None: nobody's."""
        for used in self._of(need):
            if over := used.over(_asked(need), _taken(after) if after else Counter()):
                why = f"the quota of {used.whose} is full"
                do = "raise it under policy.quotas, or stop something of theirs"
                return Held(need.id, why, over, do, model=need.model.name, stalled=True)
        return None

    def release(self, need: Need) -> None:
        """Count one no more that was let through."""
        for used in self._of(need):
            used.has.subtract(_asked(need))

    def _of(self, need: Need) -> list[_Used]:
        return [used for used in self._used if used.covers(need.model)]


def _asked(need: Need) -> Counter[str]:
    claim = ask_of(need.model, need.profile).claim(1)
    return Counter(cards=claim.cards, memory=claim.memory_bytes, replicas=1)


def _taken(replica: Replica) -> Counter[str]:
    # What is on a node that is past its grace is replaced elsewhere, and takes nothing twice.
    if replica.phase is Phase.FAILED or replica.standing is Standing.LOST:
        return Counter()
    return Counter(cards=replica.claim.cards, memory=replica.claim.memory_bytes, replicas=1)
