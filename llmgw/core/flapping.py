"""What changes to and fro: said to do so, and shown anew every ten minutes, so that a night of it can be read.

A rollout is not that: what it passes through it does not come back to, in the words
that are compared here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec import Struct, structs

from llmgw.core.condition import Condition
from llmgw.core.status import FleetStatus, MirrorStatus, ModelStatus, NodeStatus

WINDOW_S = 600.0
MOST = 3
"""Changes within the window that came back to an earlier form: the fourth of what goes to and fro is the third."""
EVERY_S = 600.0
"""How often what does so is shown as it is: all of it at once."""

T = TypeVar("T")


class Turns(Struct, frozen=True):
    """The forms one thing took, the newest last."""

    forms: tuple[tuple[float, str], ...] = ()
    """Each with when it was taken. All but the newest are within the window."""
    flaps: bool = False

    def taken(self, form: str, now: float) -> Turns:
        """With the form it has now. What flaps does so until it was calm for a whole window."""
        forms = self.forms
        if not forms or forms[-1][1] != form:
            forms = (*forms, (now, form))
        forms = (*(turn for turn in forms[:-1] if now - turn[0] <= WINDOW_S), forms[-1])
        seen = [form for _, form in forms]
        often = sum(form in seen[:at] for at, form in enumerate(seen)) >= MOST
        return Turns(forms, often or (self.flaps and now - forms[-1][0] < WINDOW_S))


class Damping(Struct, frozen=True):
    """What is remembered from one status to the next."""

    turns: dict[str, Turns] = {}
    """By thing: `model m`, `node n1`."""
    shown_at: float = float("-inf")
    """When a commit last had all that flaps as it was."""

    def is_open(self, now: float) -> bool:
        """Whether the next commit has it so."""
        return now - self.shown_at >= EVERY_S

    def written(self, now: float) -> Damping:
        """The same, after a commit."""
        return structs.replace(self, shown_at=now) if self.is_open(now) else self


def damped(
    status: FleetStatus, committed: FleetStatus | None, before: Damping, now: float
) -> tuple[FleetStatus, Damping]:
    """The status with what flaps as it was committed, and what is to be remembered of it.

    Args:
        status: what is.
        committed: what the branch says. None: nothing, so nothing can be kept as it is.
        before: as this gave it for the last status.
        now: seconds that only grow.
    """
    then = committed or structs.replace(status, models=(), nodes=(), mirror=None, trouble=())
    damper = _Damper(before, now)
    known = {m.name: m for m in then.models}
    nodes = {n.name: n for n in then.nodes}
    kept = structs.replace(
        status,
        models=tuple(_model(damper, m, known.get(m.name)) for m in status.models),
        nodes=tuple(damper.shown(f"node {n.name}", _of_node(n), n, nodes.get(n.name)) for n in status.nodes),
        mirror=_mirror(damper, status.mirror, then.mirror),
        trouble=tuple(_trouble(damper, status.trouble, then.trouble)),
    )
    said = structs.replace(kept, trouble=(*kept.trouble, *damper.said()))
    return said, structs.replace(before, turns=damper.turns)


class _Damper:
    """Of one status: what each thing is shown as."""

    def __init__(self, before: Damping, now: float) -> None:
        self.turns: dict[str, Turns] = {}
        """What is remembered for the next one."""
        self._before, self._now = before, now

    def shown(self, key: str, form: str, now: T, was: T | None, *, news: bool = False) -> T:
        """What it is, or was when it was committed.

        Args:
            key: which thing it is.
            form: how it is, in the words that make a rollout no to and fro.
            now: what it is.
            was: what was committed of it. None: nothing.
            news: whether it is shown now in any case.
        """
        turns = self._before.turns.get(key, Turns()).taken(form, self._now)
        self.turns[key] = turns
        as_it_is = not turns.flaps or was is None or news or self._before.is_open(self._now)
        return now if as_it_is or was is None else was

    def known(self, prefix: str) -> Iterator[str]:
        """Things that were looked at before, by the beginning of their keys."""
        return (key.removeprefix(prefix) for key in self._before.turns if key.startswith(prefix))

    def said(self) -> Iterator[Condition]:
        """Everything that flaps."""
        return (
            Condition(key, "it changes to and fro, and is shown anew every ten minutes", _DO, kind="flapping")
            for key, turns in sorted(self.turns.items())
            if turns.flaps
        )


_DO = "see it as it is now: llmgw status --live"


def _model(damper: _Damper, model: ModelStatus, was: ModelStatus | None) -> ModelStatus:
    failed = any(p.failed for p in model.profiles)
    # While it goes from one form to the next, as many more and fewer are ready as that takes.
    ready = [] if model.good else [p.ready for p in model.profiles]
    form = f"{model.state} {bool(model.frozen)} {failed} {ready}"
    # Whoever changed it waits for what came of that.
    return damper.shown(f"model {model.name}", form, model, was, news=was is not None and was.commit != model.commit)


def _of_node(node: NodeStatus) -> str:
    # What a rollout brings has another fingerprint, so it never comes back to what was.
    runs = sorted((r.id, r.phase, r.fingerprint) for r in node.replicas)
    lacks = sorted(v.key for v in node.versions if v.state == "failed")
    return f"{node.standing} {runs} {lacks} {[c.why for c in node.conditions]}"


def _mirror(damper: _Damper, mirror: MirrorStatus | None, was: MirrorStatus | None) -> MirrorStatus | None:
    if mirror is None:
        return None
    before = {f"{h.name}/{h.version}": h for h in (was.holdings if was else ())}
    keyed = ((f"{h.name}/{h.version}", h) for h in mirror.holdings)
    holdings = tuple(damper.shown(f"version {key}", h.state, h, before.get(key)) for key, h in keyed)
    return damper.shown("mirror", str(mirror.reachable), structs.replace(mirror, holdings=holdings), was)


def _trouble(damper: _Damper, now: Iterable[Condition], was: Iterable[Condition]) -> Iterator[Condition]:
    """Of control itself: what comes and goes is there or not."""
    is_now, before = ({c.subject: c for c in found if c.kind != "flapping"} for found in (now, was))
    for subject in sorted({*is_now, *damper.known("control: ")}):
        found = damper.shown(
            f"control: {subject}",
            is_now[subject].why if subject in is_now else "",
            (is_now.get(subject),),
            (before.get(subject),),
        )
        yield from (c for c in found if c is not None)
