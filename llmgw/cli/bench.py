"""`llmgw bench`: what a ready model does, through the gateway, beside what was worked out for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Annotated

import typer

from llmgw.cli.bench_result import Bench, Measured, Memory, text, weighed
from llmgw.cli.render import as_json
from llmgw.cli.seen import Operator, operator
from llmgw.cli.streams import Gateway, Model, NotReady, Timed, at_once
from llmgw.core.live import Figures, ReplicaFigures
from llmgw.errors import Exit, Misused, OperatorError, Refused
from llmgw.net.http import Client
from llmgw.planning.learned import Figure

GATEWAY = "LLMGW_GATEWAY"
DEFAULT = "http://127.0.0.1:8080"
MOST_STREAMS = 64
"""At a time: as many as a gateway's line has room for."""
LEAST_TOKENS = 16
"""Of an answer that says how fast it was written."""


def bench(
    model: Annotated[str, typer.Argument(help="The model, or an alias of it.")],
    profile: Annotated[str, typer.Option(help="One of its profiles; else each that is ready.")] = "",
    gateway: Annotated[str | None, typer.Option(help="Where the gateway is. Or LLMGW_GATEWAY.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="A client's key for the gateway.")] = None,
    control: Annotated[str | None, typer.Option(help="Where control is. Or LLMGW_CONTROL.")] = None,
    control_key_file: Annotated[Path | None, typer.Option(help="An operator's key. Or LLMGW_KEY_FILE.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates to trust for both. Or LLMGW_CA_FILE.")] = None,
    requests: Annotated[int, typer.Option(min=1, max=1000, help="Answers that are measured one at a time.")] = 5,
    tokens: Annotated[int, typer.Option(min=LEAST_TOKENS, max=4096, help="Tokens of each answer.")] = 64,
    within: Annotated[float, typer.Option(min=1, max=3600, help="Seconds that all of it may take.")] = 300,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Measure a ready model through the gateway: its speed, its first token, and its memory, beside the estimate."""
    who = operator(control, control_key_file, ca_file)
    at = (gateway or os.environ.get(GATEWAY) or DEFAULT).rstrip("/").removesuffix("/v1")
    if not at.startswith(("http://", "https://")):
        raise Misused(
            f"--gateway {at} cannot be understood", why="it is no http or https URL", do="write http://HOST:8080"
        )
    trusted = ca_file or (who.ca_file if who else None)
    found = asyncio.run(_bench(model, profile, at, key_file, trusted, who, requests, tokens, within))
    print(as_json(found) if json else text(found))
    if found.failed or found.over:
        raise typer.Exit(Exit.PROBLEM)


async def _bench(
    name: str,
    profile: str,
    at: str,
    key_file: Path | None,
    ca_file: Path | None,
    who: Operator | None,
    requests: int,
    tokens: int,
    within_s: float,
) -> Bench:
    async with Client(
        at, name="the gateway", key_file=key_file, ca_file=ca_file, timeout_s=min(within_s, 60.0)
    ) as client:
        asked = Gateway(client, tokens=tokens)
        model = await _ready(asked, name)
        figures = await _figures(who, model.name) if who else None
        work = _Work(asked, model, figures, requests)
        over = False
        try:
            async with asyncio.timeout(within_s):
                for one in _profiles(model.name, profile, figures):
                    await work.measure(one)
        except TimeoutError:
            over = True
            if not work.done:
                raise NotReady(
                    f"{model.name} was not measured",
                    why=f"it did not come to enough answers within {within_s:g} s",
                    do="give it longer (--within), or ask for less (--requests, --tokens)",
                ) from None
        after = await _figures(who, model.name) if who else None
    return Bench(
        model.name,
        at,
        requests,
        tokens,
        tuple(weighed(work.done, figures)),
        None if after is None else tuple(_memory(after, {m.name for m in work.done})),
        tuple(dict.fromkeys(error.sentence for error in work.failed)),
        over,
    )


async def _ready(gateway: Gateway, name: str) -> Model:
    """The model, if something serves it and it writes text."""
    model = await gateway.model(name)
    if not {"chat", "completion"} & set(model.capabilities):
        raise Refused(f"{name} was not measured", why="it writes no text", do="name a model that does")
    if model.status != "ready":
        why = model.why or {"loading": "it loads", "cold": "it is started when it is asked"}.get(
            model.status, "it is not ready"
        )
        raise NotReady(f"{name} was not measured", why=f"nothing serves it: {why}", do="see `llmgw status`")
    return model


async def _figures(who: Operator, model: str) -> Figures:
    async with Client(who.control, name="control", key_file=who.key_file, ca_file=who.ca_file) as client:
        return await client.get(f"/v1/figures/{model}", Figures)


def _profiles(model: str, only: str, figures: Figures | None) -> list[str]:
    """Which ones are measured. Where control was not asked it is whichever the gateway takes."""
    if figures is None:
        return [only]
    ready = sorted({_profile(r.id) for r in figures.replicas})
    if only and only not in figures.weights:
        known = ", ".join(sorted(figures.weights))
        raise OperatorError(f"{model} has no profile {only}", why=f"its file has {known}", do="name one of them")
    if not ready or (only and only not in ready):
        what = f"no replica of its profile {only}" if only else "none of its replicas"
        raise NotReady(f"{model} was not measured", why=f"{what} is ready", do="see `llmgw status`")
    return [only] if only else ready


class _Work:
    """One profile after the other."""

    def __init__(self, gateway: Gateway, model: Model, figures: Figures | None, requests: int) -> None:
        self._gateway, self._model, self._figures, self._requests = gateway, model, figures, requests
        self.done: list[Measured] = []
        self.failed: list[OperatorError] = []

    async def measure(self, profile: str) -> None:
        """One answer that does not count, some alone, and then as many at a time as there are slots."""
        mine = [r for r in (self._figures.replicas if self._figures else ()) if _profile(r.id) == profile]

        async def ask() -> Timed:
            return await self._gateway.ask(self._model, profile)

        # The first one finds the engine cold. If it fails, so would the rest.
        await ask()
        alone, failed = await at_once(ask, 1, self._requests)
        self.failed += failed
        if not alone:
            raise failed[0]
        self.done.append(self._of(profile, alone, mine))
        streams = min(sum(r.parallel for r in mine), MOST_STREAMS)
        if streams:
            # Once to have all slots busy, and once to have them busy again while the last of the first go on.
            together, failed = await at_once(ask, streams, 2)
            self.failed += failed
            self.done[-1] = self._of(profile, alone, mine, together, streams)

    def _of(
        self,
        profile: str,
        alone: list[Timed],
        mine: list[ReplicaFigures],
        together: list[Timed] | None = None,
        streams: int = 0,
    ) -> Measured:
        first = [timed.first_s for timed in alone]
        expected = [r.expected.tps for r in mine if r.expected and r.expected.tps]
        answered = tuple(sorted({t.replica for t in (*alone, *(together or ())) if t.replica}))
        return Measured(
            profile or "+".join(sorted({_profile(r) for r in answered})),
            answered,
            _round(_at(0.5, [t.tps for t in alone if t.tps])),
            streams,
            _round(_rate(together)) if together else None,
            round(_at(0.5, first) or 0.0, 4),
            round(_at(0.9, first) or 0.0, 4),
            _round(_at(0.5, expected)),
            self._figures.weights.get(profile) if self._figures else None,
        )


def _rate(answers: list[Timed]) -> float:
    """Tokens a second of all of them together."""
    took = max(t.ended for t in answers) - min(t.began for t in answers)
    return sum(t.tokens for t in answers) / took if took > 0 else 0.0


def _at(share: float, values: list[float]) -> float | None:
    """The value that so many are at most: in between two where need be. None: there are none."""
    if len(values) < 2:
        return next(iter(values), None)
    return quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _memory(figures: Figures, profiles: set[str]) -> Iterator[Memory]:
    for r in figures.replicas:
        if _profile(r.id) in profiles:
            worked_out = r.expected
            host = _figure(worked_out.host_bytes if worked_out else None, r.host_peak_bytes)
            card = _figure(worked_out.card_bytes if worked_out else None, r.card_peak_bytes)
            yield Memory(r.id, r.node, host, card, r.host_peak_bytes, r.card_peak_bytes)


def _figure(predicted: int | None, measured: int | None) -> Figure | None:
    return Figure(predicted, measured) if predicted and measured else None


def _profile(replica: str) -> str:
    return replica.rsplit("/", 2)[1]
