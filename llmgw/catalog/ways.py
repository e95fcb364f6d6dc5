"""What a schema cannot say of a profile: what fits its engine, its cards and its slots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from llmgw.catalog import flags
from llmgw.catalog.forms import VARIABLE
from llmgw.catalog.model import Model
from llmgw.catalog.problem import Finding, Steps, shorten
from llmgw.catalog.profile import Profile

_LLAMACPP, _PAGED = frozenset({"llamacpp"}), frozenset({"vllm", "sglang"})

KNOBS: Mapping[str, tuple[frozenset[str], str]] = MappingProxyType(
    {
        "gpu_layers": (_LLAMACPP, "take it out: all layers are on the cards"),
        "tensor_split": (_LLAMACPP, "write `tp` and `pp`"),
        "cpu_moe": (_LLAMACPP, "take it out"),
        "mmap": (_LLAMACPP, "take it out"),
        "flash_attention": (_LLAMACPP, "take it out: the engine has no other attention"),
        "kv_type_v": (_LLAMACPP, "write `kv_type_k`, which is for keys and values there"),
        "batch": (_LLAMACPP | _PAGED, "write it in `command`"),
        "kv_type_k": (_LLAMACPP | _PAGED, "write it in `command`"),
        "speculative": (_LLAMACPP | _PAGED, "write it in `command`"),
        "tp": (_PAGED, "write `gpu.count`, over which llama.cpp divides the layers"),
        "pp": (_PAGED, "write `gpu.count`, over which llama.cpp divides the layers"),
        "utilisation": (_PAGED, "write `gpu_layers`, which says how much of the model is on the cards"),
        "command": (frozenset({"command"}), "write `args`, or `engine: command`"),
        "engine_version": (_LLAMACPP | _PAGED, "take it out: `command` names the program"),
        "binary": (_LLAMACPP | _PAGED, "take it out: `command` names the program"),
        "args": (_LLAMACPP | _PAGED, "write them in `command`"),
    }
)
"""Fields that only some engines know, and what to write for others."""

FOR_CARDS = ("gpu_layers", "tensor_split", "cpu_moe", "utilisation")
"""Fields that mean nothing without a card."""

_CACHE_TYPES = {
    "llamacpp": frozenset({"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"}),
    "vllm": frozenset({"f16", "bf16", "fp8"}),
    "sglang": frozenset({"f16", "bf16", "fp8"}),
}
_QUANTISED = frozenset({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})
_HOLES = frozenset({"model", "port", "host", "name"})
_CHOSEN = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})


def problems(model: Model, profile: Profile, at: Steps) -> Iterator[Finding]:
    """What is wrong with one of a model's profiles."""
    yield from _pool(model, profile, at)
    # What is set is looked at, since most of so many fields are not.
    given = profile.model_fields_set
    for key in sorted(given & KNOBS.keys()):
        engines, do = KNOBS[key]
        if profile.engine not in engines and getattr(profile, key) != type(profile).model_fields[key].default:
            what = f"`{key}` of profile {profile.name} is not for {profile.engine}"
            yield Finding((*at, key), what, f"it is for {', '.join(sorted(engines))}", do)
    if profile.gpu is None:
        for key in FOR_CARDS:
            if key in given and getattr(profile, key) not in {None, ()}:
                what = f"`{key}` is in profile {profile.name}, which has no card"
                yield Finding((*at, key), what, "it says what is on the cards", "take it out, or add `gpu:`")
    if profile.start_timeout == 0:
        why = "a start without progress for this long has failed, so every start would fail at once"
        do = "write the longest it may be silent, like `15m`, or take it out"
        yield Finding((*at, "start_timeout"), f"`start_timeout` of profile {profile.name} cannot be 0", why, do)
    yield from _cards(profile, at)
    yield from _cache(profile, at)
    if profile.engine == "command":
        yield from _command(profile, at)
    yield from _environment(profile, at)
    yield from _args(profile, at)


def _args(profile: Profile, at: Steps) -> Iterator[Finding]:
    knobs = flags.knobs(profile)
    for place, flag in flags.named(profile.args):
        do = flags.INSTEAD[profile.engine].get(flag)
        why = "llmgw gives the engine this flag itself"
        if not do and (key := knobs.get(flag)):
            why, do = f"`{key}` says it already, and only one of the two can be meant", f"take it out, or `{key}`"
        if do:
            yield Finding((*at, "args", place), f"`{flag}` is in the args of profile {profile.name}", why, do)


def _cards(profile: Profile, at: Steps) -> Iterator[Finding]:
    gpu, count = profile.gpu, profile.gpu.count if profile.gpu else 0
    if gpu and not (gpu.class_ or gpu.vendor or gpu.name or gpu.memory or gpu.compute_capability):
        why = "a replica needs a card that can hold it, and nothing says which"
        do = "write its `class`, or `memory` like `24GB..`, or `vendor`, `name` or `compute_capability`"
        yield Finding((*at, "gpu"), f"`gpu` of profile {profile.name} says of no card", why, do)
    if gpu and gpu.slice and count > 1:
        what = f"`count` of profile {profile.name} cannot be {count} with `slice`"
        why = "a program sees one slice of one card, however many it is given"
        yield Finding((*at, "gpu", "count"), what, why, "write 1 and a larger slice, or take `slice` out")
    if profile.tensor_split and profile.gpu and len(profile.tensor_split) != count:
        what = f"`tensor_split` of profile {profile.name} has {len(profile.tensor_split)} shares"
        yield Finding((*at, "tensor_split"), what, f"one replica has {count} cards", f"write {count} shares")
    if profile.engine in _PAGED and profile.tp * profile.pp not in {1, count}:
        what = f"`tp` {profile.tp} times `pp` {profile.pp} of profile {profile.name} is no count of its cards"
        why = f"one replica has {count} cards, and each holds one part"
        yield Finding(
            (*at, "tp" if profile.tp > 1 else "pp"), what, why, "write `gpu.count` as large as the two multiplied"
        )


def _cache(profile: Profile, at: Steps) -> Iterator[Finding]:
    known = _CACHE_TYPES.get(profile.engine)
    for key in ("kv_type_k", "kv_type_v"):
        value = getattr(profile, key)
        if known and value is not None and value not in known:
            what = f"`{key}` of profile {profile.name} cannot be `{value}`"
            why = f"{profile.engine} holds its cache as {', '.join(sorted(known))}"
            yield Finding((*at, key), what, why, "write one of these")
    if profile.kv_type_v in _QUANTISED and profile.flash_attention == "off":
        what = f"`kv_type_v` of profile {profile.name} cannot be `{profile.kv_type_v}` with `flash_attention: off`"
        why = "llama.cpp reads values that are quantised with it only"
        yield Finding((*at, "kv_type_v"), what, why, "write `flash_attention: on`, or `kv_type_v: f16`")


def _command(profile: Profile, at: Steps) -> Iterator[Finding]:
    here = (*at, "command")
    if not profile.command:
        why = "`engine: command` runs what it says"
        do = "add `command:` with the program and its words, `{model}` and `{port}` among them"
        yield Finding(here, f"profile {profile.name} has no `command`", why, do)
        return
    holes = [(i, hole) for i, word in enumerate(profile.command) for hole in re.findall(r"\{([^{}]*)\}", word)]
    for index, hole in holes:
        if hole not in _HOLES:
            what = f"`{{{shorten(hole, 20)}}}` stands for nothing"
            why = f"what is put in is {', '.join(f'`{{{name}}}`' for name in sorted(_HOLES))}"
            yield Finding((*here, index), what, why, "write one of these")
    if all(hole != "port" for _, hole in holes):
        why = "the agent chooses the port, and the program must listen there"
        yield Finding(
            here,
            f"the `command` of profile {profile.name} has no `{{port}}`",
            why,
            "put `{port}` where it takes its port",
        )


def _environment(profile: Profile, at: Steps) -> Iterator[Finding]:
    for key in ("env", "env_from"):
        for name in getattr(profile, key):
            where = (*at, key, name)
            if not re.fullmatch(VARIABLE, name):
                why = "a variable's name is letters, digits and `_`, and begins with no digit"
                yield Finding(where, f"`{shorten(name)}` is no name of a variable", why, "rename it")
            elif name in _CHOSEN:
                why = "a replica sees exactly its own cards"
                yield Finding(
                    where, f"`{name}` is in the `{key}` of profile {profile.name}", why, "take it out, and write `gpu`"
                )
    for name in profile.env.keys() & profile.env_from.keys():
        why = "it has a value already"
        yield Finding((*at, "env_from", name), f"`{shorten(name)}` is in `env` and in `env_from`", why, "take one out")


def _pool(model: Model, profile: Profile, at: Steps) -> Iterator[Finding]:
    """A pool must hold what its slots may ask of it at the same time.

    llama.cpp gives each slot an equal part, unless it is told to unify them;
    vLLM and SGLang page one pool, which has to hold one whole request.
    """
    unified = any(flag in {"-kvu", "--kv-unified"} for _, flag in flags.named(profile.args))
    divided = profile.engine == "llamacpp" and not unified
    need = model.context_length * (profile.parallel if divided else 1)
    if profile.context is not None and profile.context < need:
        what = f"`context` {profile.context} of profile {profile.name} is too small"
        times = f" times {profile.parallel} slots" if divided and profile.parallel > 1 else ""
        why = f"a request may use `context_length` {model.context_length}{times}, which is {need}"
        do = f"take `context` out, write at least {need}, or lower `context_length` or `parallel`"
        yield Finding((*at, "context"), what, why, do)
