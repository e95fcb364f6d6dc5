"""One way that a model's files could run on a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from llmgw.planning.fit import Short
from llmgw.planning.learned import Margin
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.need import Place
from llmgw.planning.remedies import Remedy
from llmgw.planning.speed import pace, said
from llmgw.units import show_gib

DIVIDED = ("vllm", "sglang")
"""Engines that split every tensor over their cards, and so want a number of them that heads divide into."""


class State(StrEnum):
    """Whether it can be done."""

    FREE = "free now"
    IN_USE = "in use"
    """A machine has what it takes, and others have that now."""
    NO_ENGINE = "no engine"
    """A machine has what it takes, but for the engine."""
    NO = "does not fit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run it."""

    engine: str
    file: str
    file_type: str
    """How it is quantised. Empty: unknown."""
    file_bytes: int
    place: Place
    options: LlamaOptions
    """With what of it is moved off the cards."""
    state: State
    machines: int
    """That could, were nothing else on them."""
    free_machines: int
    """Of those, that could now."""
    names: tuple[str, ...]
    """Of at most ten: those that could, or the nearest to it; free ones first."""
    host_bytes: int
    """That a replica claims of the machine's memory."""
    card_bytes: int
    """Of the fullest card. 0: it is on none."""
    tps: float | None
    """Tokens a second of one reply, on the quickest machine that could. None: nothing is known of its speed."""
    speed_basis: str
    load_s: float | None
    """Seconds until the weights are in memory. None: the rates were not measured."""
    prefill_tps: float | None = None
    """Tokens a second of a prompt. None: nobody has measured the card, or not all of the model is on it."""
    short: tuple[Short, ...] = ()
    """What is too small, on the nearest machine."""
    problems: tuple[str, ...] = ()
    """Why it would not start, whatever is free."""
    remedies: tuple[Remedy, ...] = ()
    """What would make it fit. Only of one that does not."""
    host_margin: Margin | None = None
    """How far off its memory may be. None: nothing like it has run."""
    card_margin: Margin | None = None
    tps_margin: Margin | None = None

    @property
    def fits(self) -> bool:
        """Whether some machine could run it, were nothing else there."""
        return self.state in (State.FREE, State.IN_USE)

    @property
    def pace(self) -> str:
        """Empty, `slow` or `very slow`."""
        return "" if self.tps is None else pace(self.tps)

    @property
    def where(self) -> str:
        """Its place in words: `2 l40s-48g`, `CPU`, `one l40s-48g, 20 of 33 layers`."""
        if self.options.cpu_moe and self.place.count:
            return f"{self.place}, experts of {min(self.options.cpu_moe, ALL)} layers on the CPU"
        return f"{self.place}, {self.options.gpu_layers} layers" if self.is_partial else str(self.place)

    @property
    def is_partial(self) -> bool:
        """Whether layers are left to the CPU of a machine with cards."""
        return self.place.count > 0 and self.options.gpu_layers != ALL

    @property
    def profile(self) -> dict[str, Any]:
        """The fields of a profile that runs it like that."""
        if not self.place.count:
            return {"engine": self.engine}
        gpu: dict[str, Any] = {"class": self.place.card_class, "count": self.place.count}
        fields: dict[str, Any] = {"engine": self.engine, "gpu": gpu}
        if self.engine in DIVIDED and self.place.count > 1:
            fields["tp"] = self.place.count
        if self.is_partial:
            fields["gpu_layers"] = self.options.gpu_layers
        if self.options.cpu_moe:
            fields["cpu_moe"] = self.options.cpu_moe
        return fields

    @property
    def sentence(self) -> str:
        """A verdict in one line."""
        speed = f", {said(self.tps)}" if self.tps is not None else ""
        if self.state is State.FREE:
            return f"fits now on {self.where} ({self.free_machines} free){speed}"
        if self.state is State.IN_USE:
            return f"fits on {self.where}, in use now{speed}"
        if self.state is State.NO_ENGINE:
            return f"fits on {self.where}, and no machine there has {self.engine}{speed}"
        why = self.problems or tuple(f"{show_gib(s.missing)} short on {s.where}" for s in self.short[:1])
        cure = f"; {self.remedies[0].sentence}" if self.remedies else ""
        return f"does not fit {self.where}: {why[0] if why else 'no machine is known'}{cure}"

    @property
    def rank(self) -> tuple[object, ...]:
        """What is free first, then the quickest, then the most bits a weight."""
        order = list(State).index(self.state)
        return (
            order,
            -(self.tps or 0.0),
            sum(s.missing for s in self.short),
            -self.file_bytes,
            self.file,
            self.place.count,
            self.place.card_class,
            self.engine,
            self.options.gpu_layers,
        )
