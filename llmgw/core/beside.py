"""What cards that stay free would do of a model that is asked to run on CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from llmgw.core.paces import files_of
from llmgw.core.wanted import WantedModel
from llmgw.planning.claim import options_of
from llmgw.planning.llama_options import LlamaOptions
from llmgw.planning.machines import Machine
from llmgw.planning.speed import said
from llmgw.planning.way import State
from llmgw.planning.ways import Wish, ways


def free_cards(entry: WantedModel, profiles: Iterable[str], machines: Iterable[Machine]) -> Iterator[str]:
    """For each of some CPU profiles: the cards that would hold it and have nothing to do, and both speeds.

    Args:
        entry: whose profiles they are.
        profiles: those that start, by name.
        machines: as they are once everything has started.
    """
    files, names, fleet = files_of(entry.model, entry.lock), set(profiles), tuple(machines)
    if files is None or entry.model.kind == "embedding":
        return
    for profile in entry.model.profiles:
        if profile.gpu is not None or profile.engine != "llamacpp" or profile.name not in names:
            continue
        plain = LlamaOptions()
        asked = replace(options_of(entry.model, profile), batch=plain.batch, ubatch=plain.ubatch)
        found = ways([files], fleet, Wish(options=asked, cures=False))
        on_cards = next((w for w in found if w.state is State.FREE and w.place.count and w.tps), None)
        on_cpus = next((w for w in found if not w.place.count and w.tps), None)
        if on_cards is not None and on_cards.tps is not None:
            here = f", and CPUs {said(on_cpus.tps)}" if on_cpus is not None and on_cpus.tps is not None else ""
            yield f"{profile.name}: {on_cards.where} would hold it and is free: {said(on_cards.tps)}{here}"
