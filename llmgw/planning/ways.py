"""Every way that a model's files could run on a fleet, the best first.

A way is one packing of the model, on one engine, on cards of one class or on a
CPU. `llmgw estimate` prints them, `llmgw explore` judges by the first, and a
new model is placed by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as counting

from llmgw.planning import learned
from llmgw.planning.architectures import architecture
from llmgw.planning.cards import Card
from llmgw.planning.claim import rounded
from llmgw.planning.fit import Short
from llmgw.planning.learned import About, Run, card_speed, margin, quicker, raises
from llmgw.planning.llama_options import ALL, LlamaOptions
from llmgw.planning.machines import ASSUMED_GBS, Machine
from llmgw.planning.need import CPU, Files, Need, Place, need
from llmgw.planning.offload import offloads
from llmgw.planning.remedies import Remedy, remedies_of
from llmgw.planning.speed import (
    CPU_SHARE,
    card_tps,
    class_of,
    cpu_bytes,
    host_read_bytes,
    load_s,
    prefill_tps,
    reading_tps,
    tensor_split_tps,
)
from llmgw.planning.way import DIVIDED, State, Way

NAMED = 10
"""Machines that a way names; the others are counted."""
MOST_CARDS = 16
"""Of one machine, that a model is tried on."""


NO_REPLIES = "gives no replies"
"""What is said in place of a speed of a model that gives vectors or ranks."""
RUNS = "runs like it"
"""What a speed rests on once some were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How it is to run."""

    options: LlamaOptions = field(default_factory=LlamaOptions)
    """In llama.cpp's words; `context` is of all slots, 0 what it was trained for."""
    cpu_only: bool = False
    cures: bool = True
    """Whether what would make it fit is looked for: it costs more than all the rest."""
    runs: tuple[Run, ...] = ()
    """What has run, and how it was measured."""


def ways(files: Iterable[Files], machines: Iterable[Machine], wish: Wish) -> tuple[Way, ...]:
    """Every way to run one of several packings of a model, the best first.

    One that does not fit is there with what is short and what would help; of a
    fleet with no machines nothing is said.

    Args:
        files: the packings, each whole.
        machines: the fleet.
        wish: how it is to run.
    """
    packings = sorted(files, key=lambda f: f.name)
    fleet = sorted(machines, key=lambda m: m.name)
    found = [way for packing in packings for way in _of(packing, packings, fleet, wish)]
    return tuple(sorted(found, key=lambda way: way.rank))


def engines_of(files: Files, machines: Iterable[Machine]) -> tuple[str, ...]:
    """The engines that read these files. SGLang is tried only where a machine says that it has it."""
    if files.shape.format == "gguf":
        return ("llamacpp",)
    some = any(m.engines and m.has("sglang") for m in machines)
    return ("vllm", "sglang") if some else ("vllm",)


def _of(files: Files, packings: Sequence[Files], fleet: Sequence[Machine], wish: Wish) -> Iterator[Way]:
    for engine in engines_of(files, fleet):
        for kind in () if wish.cpu_only else _kinds(fleet):
            yield from _on_cards(files, packings, engine, kind, fleet, wish)
        if engine != "sglang" and fleet:
            yield _way(files, packings, engine, CPU, fleet, wish, wish.options)


def _on_cards(
    files: Files, packings: Sequence[Files], engine: str, kind: Place, fleet: Sequence[Machine], wish: Wish
) -> Iterator[Way]:
    """On the fewest cards of one class that hold it; where none do, on as many as there are, and partly."""
    tried: list[tuple[Need, Place]] = []
    for number in counts(engine, kind.count):
        place = replace(kind, count=number)
        taken = need(files, engine, place, wish.options)
        tried.append((taken, place))
        if taken.starts:
            yield _way(files, packings, engine, place, fleet, wish, wish.options)
            return
    _, place = min(tried, key=lambda t: (len(t[0].problems), sum(s.missing for s in t[0].short), t[1].count))
    yield _way(files, packings, engine, place, fleet, wish, wish.options)
    if engine == "llamacpp" and wish.options.gpu_layers == ALL and not wish.options.cpu_moe:
        for options in offloads(files, place, wish.options):
            yield _way(files, packings, engine, place, fleet, wish, options)


def counts(engine: str, most: int) -> Iterator[int]:
    """How many cards are tried, fewest first: powers of two where heads are divided."""
    for number in counting():
        cards = 1 << number if engine in DIVIDED else number + 1
        if cards > min(most, MOST_CARDS):
            return
        yield cards


def _kinds(fleet: Iterable[Machine]) -> list[Place]:
    """Each class of cards, as its smallest card, with the most of them that one machine has."""
    kinds: dict[str, list[Card]] = defaultdict(list)
    most: dict[str, int] = defaultdict(int)
    for machine in fleet:
        here: dict[str, int] = defaultdict(int)
        for cards in machine.cards:
            if cards.count > 0 and cards.card.memory_bytes:
                kinds[cards.card_class].append(cards.card)
                here[cards.card_class] += cards.count
        for name, number in here.items():
            most[name] = max(most[name], number)
    smallest = {
        name: min(cards, key=lambda c: (c.memory_bytes or 0, c.bandwidth_gbs, c.name)) for name, cards in kinds.items()
    }
    return [Place(smallest[name], most[name], name) for name in sorted(smallest)]


def _way(
    files: Files,
    packings: Sequence[Files],
    engine: str,
    place: Place,
    fleet: Sequence[Machine],
    wish: Wish,
    options: LlamaOptions,
) -> Way:
    taken = need(files, engine, place, options)
    if more := raises(wish.runs).get(_about(files, engine, place, None).kind):
        # As much is claimed for it.
        taken = replace(taken, host_bytes=rounded(taken.host_bytes * more))
    could, now, near = holders(taken, place, fleet)
    vendor = place.card.vendor if place.card else ""
    having = [m for m in could if m.has(engine, vendor)]
    free = [m for m in now if m.has(engine, vendor)]
    if free:
        state = State.FREE
    elif having:
        state = State.IN_USE
    else:
        state = State.NO_ENGINE if could else State.NO
    on = free or having or could or near
    quickest = min(on, key=lambda m: (-m.read_gbs(), m.name), default=None)
    tps, basis = speed_of(files, engine, place, options, quickest, runs=wish.runs)
    like = _about(files, engine, place, quickest)
    partly = options.gpu_layers != ALL or options.cpu_moe > 0
    cures: tuple[Remedy, ...] = ()
    if state is State.NO and wish.cures:
        others = [p for p in packings if p.shape.format == files.shape.format and p.name != files.name]

        def fits(packing: Files, there: Place, how: LlamaOptions) -> bool:
            return bool(holders(need(packing, engine, there, how), there, fleet)[0])

        cures = tuple(remedies_of(files, others, engine, place, options, fits))
    loads = load_s(files.bytes, disk_gbs=quickest.disk_gbs or 0.0, mirror_gbs=quickest.mirror_gbs) if quickest else None
    rest = sorted((m for m in having if m not in free), key=lambda m: m.name)
    return Way(
        engine=engine,
        file=files.name,
        file_type=files.shape.file_type,
        file_bytes=files.bytes,
        place=place,
        options=options,
        state=state,
        machines=len(having),
        free_machines=len(free),
        names=tuple(m.name for m in ([*free, *rest] if having else on)[:NAMED]),
        host_bytes=taken.host_bytes,
        card_bytes=taken.card_bytes,
        tps=tps,
        speed_basis=basis,
        load_s=loads,
        prefill_tps=prefill_tps(files.shape, files.bytes, place.card) if place.card and not partly else None,
        short=() if could else _short(taken, near),
        problems=taken.problems,
        remedies=cures,
        host_margin=margin(wish.runs, like, "host"),
        card_margin=margin(wish.runs, like, "card") if place.count else None,
        tps_margin=margin(wish.runs, like, "tps") if tps is not None else None,
    )


def _about(files: Files, engine: str, place: Place, machine: Machine | None) -> About:
    where = place.card_class if place.count else learned.CPU
    return About(engine, files.shape.architecture, where, node=machine.name if machine else "")


def holders(taken: Need, place: Place, fleet: Iterable[Machine]) -> tuple[list[Machine], list[Machine], list[Machine]]:
    """The machines that have room for a need: were nothing else there, now, and those that come nearest.

    Args:
        taken: what it takes of the place.
        place: where.
        fleet: every machine, whatever its engines.
    """
    able, now, near = [], [], []
    for machine in fleet:
        cards = [c for c in machine.cards if c.card_class == place.card_class and place.count]
        if place.count and sum(c.count for c in cards) < place.count:
            continue
        near.append(machine)
        if not taken.starts or machine.memory_bytes < taken.host_bytes:
            continue
        able.append(machine)
        if machine.free_bytes >= taken.host_bytes and sum(c.free for c in cards) >= place.count:
            now.append(machine)
    near.sort(key=lambda m: (-m.memory_bytes, m.name))
    return able, now, near


def _short(taken: Need, near: Sequence[Machine]) -> tuple[Short, ...]:
    host = near[0].memory_bytes if near else 0
    on_host = (Short("host", taken.host_bytes, host),) if near and taken.host_bytes > host else ()
    return (*taken.short, *on_host)


def speed_of(
    files: Files,
    engine: str,
    place: Place,
    options: LlamaOptions,
    machine: Machine | None,
    *,
    cpu_cores: int = 0,
    runs: Sequence[Run] = (),
) -> tuple[float | None, str]:
    """Tokens a second of one reply, and what that rests on. None: it gives none, or nothing is known of its speed.

    Args:
        files: of the model.
        engine: that runs it.
        place: where.
        options: with what of it is left to the CPU.
        machine: whose CPU and memory it is. None: one of which nothing is known.
        cpu_cores: that the engine is given of it; 0: half of them.
        runs: that it is corrected by.
    """
    if options.embeddings or not files.shape.answers:
        return None, NO_REPLIES
    if not files.shape.known and architecture(files.shape.architecture) is None and files.shape.format == "gguf":
        return None, "unknown architecture"
    like = _about(files, engine, place, machine)
    rate, host = CPU_SHARE * ASSUMED_GBS, f"memory assumed to give {ASSUMED_GBS:.0f} GB/s"
    if machine is not None and machine.memory_gbs is not None:
        rate, host = machine.read_gbs(cpu_cores), f"memory measured on {machine.name}"
    if place.card is None:
        tps, off = reading_tps(cpu_bytes(files.shape, files.bytes), rate), quicker(runs, like)
        return (tps, host) if tps is None or off == 1 else (tps * off, RUNS)
    mine, gbs = card_speed(runs, like), place.card.bandwidth_gbs
    speed, card = mine or class_of(place.card), RUNS if mine else "the card's class"
    if engine in DIVIDED and place.count > 1:
        tps = tensor_split_tps(files.shape, files.bytes, speed, bandwidth_gbs=gbs, cards=place.count)
        return tps, card
    left = host_read_bytes(files.shape, files.bytes, options)
    tps = card_tps(files.shape, files.bytes, speed, bandwidth_gbs=gbs, host_bytes=left, host_gbs=rate)
    return tps, f"{card}{f', and {host}' if left else ''}"
