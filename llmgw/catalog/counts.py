"""How many replicas a model has: counted for each of its profiles, or scaled as a whole.

The rules of `llmgw model replicas` and `llmgw model scale`. Both are values:
a model as it is written comes in, and one comes out with what there is to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmgw.catalog.fit import fit
from llmgw.catalog.flags import named
from llmgw.catalog.problem import Steps
from llmgw.catalog.profile import Profile
from llmgw.catalog.written import DEFAULT_PRIORITY, Written
from llmgw.errors import Misused, Refused

CPU = "cpu"
"""The profile that a count adds where a model has none for CPUs."""

_KEPT = (
    *("engine", "engine_version", "binary", "parallel", "context"),
    *("kv_type_k", "kv_type_v", "flash_attention", "mmap", "batch"),
)
_KEPT_AFTER = ("env", "env_from", "node_selector", "start_timeout")
"""What the CPU profile takes from the one it is made of; `args` and its own fields stand between."""

CARD_FLAGS = frozenset(
    (
        "--n-gpu-layers",
        "--gpu-layers",
        "-ngl",
        "--split-mode",
        "-sm",
        "--tensor-split",
        "-ts",
        "--main-gpu",
        "-mg",
    )
)
"""Flags of llama.cpp that concern cards. Each has a value."""


class Counted(NamedTuple):
    """A model with other counts, and what to say of it."""

    model: Written
    said: tuple[str, ...]


class CpuNeed(NamedTuple):
    """What one replica of a CPU profile that is added reserves."""

    memory_gib: float | None = None
    cores: int | None = None


def replicas(model: Written, counts: Mapping[str, int], cpu: CpuNeed) -> Counted:
    """The model with these counts. Profiles that are not named stay as they are.

    Args:
        model: as it is written.
        counts: by the name of a profile.
        cpu: what a CPU profile reserves, where one is added.

    Raises:
        Refused: a profile is unknown, every count would be 0, or the model is scaled.
    """
    said = []
    names = {str(p.get("name", "")) for p in model.profiles}
    model, told = _unscaled(model, counts, names)
    said += told
    for name, count in counts.items():
        if count and name == CPU and CPU not in names and not any(_is_cpu(p) for p in model.profiles):
            model = model.append(("profiles",), _cpu_profile(model, count, cpu))
            if not _is_cpu(model.profiles[-1]):
                # Every profile is read with a card, and this one says that it has none.
                model = model.put(("profiles", len(model.profiles) - 1, "gpu"), None)
            said.append(f"The profile {CPU} is added: {model.name} had none for CPUs.")
        else:
            model = model.put(("profiles", model.profile(name), "replicas"), count)
    if sum(model.counts.values()) == 0:
        raise Refused(
            f"{model.name} would run nowhere",
            why="every count would be 0",
            do=f"llmgw model stop {model.name} keeps it without",
        )
    if model.stopped:
        said.append(f"{model.name} is stopped and stays so; llmgw model start {model.name} starts it.")
    return Counted(model, tuple(said))


def _unscaled(model: Written, counts: Mapping[str, int], names: set[str]) -> tuple[Written, list[str]]:
    """A scaled model is counted from now on, once every profile has a count."""
    if "scaling" not in model.merged:
        return model, []
    left = sorted(names - set(counts))
    if left:
        raise Refused(
            f"{model.name} is scaled, not counted",
            why=f"its replicas are chosen by `scaling`, and {', '.join(left)} would have no count",
            do=f"count every profile, or change the total: llmgw model scale {model.name} TOTAL",
        )
    if "scaling" in model.raw:
        return model.drop(("scaling",)), [f"`scaling` is taken out: {model.name} is counted from now on."]
    where = model.inherited(("scaling",))
    return model, [f"`{where}` of server.yaml no longer scales {model.name}: it is counted from now on."]


def scale(model: Written, least: int, most: int) -> Counted:
    """The model with a total that is chosen for it. A stopped model is started.

    Args:
        model: as it is written.
        least: replicas it always has; 0 is on demand.
        most: replicas it may have.

    Raises:
        Misused: there would be fewer at most than at least.
        Refused: there would be none ever.
    """
    if least > most:
        raise Misused(
            f"{least}..{most} is no range",
            why="the first is at most the second",
            do="turn them round",
        )
    if most == 0:
        raise Refused(
            f"{model.name} would never run",
            why="its total would be 0",
            do=f"llmgw model stop {model.name} keeps it without",
        )
    said = []
    if model.stopped:
        model = model.running()
        said.append(f"{model.name} was stopped, and starts.")
    counts = model.counts
    if "scaling" not in model.merged and least == most == sum(counts.values()):
        said.append(f"Its counts make {most} already, and stay: {_listed(counts)}.")
        return Counted(model, tuple(said))
    model = model.put(("scaling", "min"), least).put(("scaling", "max"), most)
    for index in range(len(model.profiles)):
        model = model.drop(("profiles", index, "replicas"))
    if counts:
        said.append(f"The counts of its profiles are taken out ({_listed(counts)}): their share is chosen from now on.")
    return Counted(model, tuple(said))


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _is_cpu(profile: Mapping[str, Any]) -> bool:
    return profile.get("gpu") is None


def _cpu_profile(model: Written, count: int, cpu: CpuNeed) -> dict[str, Any]:
    """The first profile that llama.cpp serves, without what concerns cards."""
    index = next((i for i, p in enumerate(model.profiles) if p.get("engine") == "llamacpp"), None)
    if index is None:
        raise Refused(
            f"{model.name} has no profile {CPU}, and none was added",
            why="llama.cpp is what serves on CPUs, and it does not serve this model",
            do="add a source in GGUF and a profile with `engine: llamacpp` by hand",
        )
    at: Steps = (*model.base, "profiles", index)
    _, flaws = fit(Profile, model.read, at, lambda _: (), 1)
    if flaws:
        where = f"{model.file.path}:{model.read.place(flaws[0].at).line}"
        raise Refused(
            f"{model.name} has no profile {CPU}, and none was added",
            why=f"it would be made from a profile that is wrong: {flaws[0].what}; {flaws[0].why}",
            do=f"mend {where} first: {flaws[0].do}",
        )
    # What every profile is read with comes to this one by itself.
    full, like = model.profiles[index], model.file.read().value_at(at)
    if cpu.memory_gib is None and "memory_gib" in full:
        raise Refused(
            f"{model.name} has no profile {CPU}, and none was added",
            why="it is not known how much memory a replica takes without a card",
            do=f"say it: llmgw model replicas {model.name} {CPU}={count} --cpu-memory GIB",
        )
    made: dict[str, Any] = {
        "name": CPU,
        **{key: like[key] for key in _KEPT if key in like},
    }
    args = without_card_flags(list(full.get("args", ())))
    inherited = bool(model.inherited(("profiles", index, "args")))
    if args != full.get("args") if inherited else args:
        made["args"] = args
    made["replicas"] = count
    made["priority"] = min(_priority(p) for p in model.profiles) - 10
    if cpu.memory_gib is not None:
        made["memory_gib"] = int(cpu.memory_gib) if float(cpu.memory_gib).is_integer() else cpu.memory_gib
    if cpu.cores is not None:
        made["cpu_cores"] = cpu.cores
    return made | {key: like[key] for key in _KEPT_AFTER if key in like}


def without_card_flags(args: list[str]) -> list[str]:
    """llama.cpp's arguments for a machine without cards: `-ngl 99` and `-ngl=99` are both left out."""
    flags = dict(named(tuple(args)))
    kept, skip = [], False
    for index, arg in enumerate(args):
        flag = flags.get(index)
        if flag in CARD_FLAGS:
            skip = "=" not in arg
        elif skip and flag is None:
            skip = False
        else:
            kept.append(arg)
            skip = False
    return kept


def _priority(profile: Mapping[str, Any]) -> int:
    found = profile.get("priority", DEFAULT_PRIORITY)
    return found if type(found) is int else DEFAULT_PRIORITY
