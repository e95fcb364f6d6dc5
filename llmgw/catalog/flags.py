"""Flags of the engines that are not for `args`, since llmgw makes them itself.

The engine takes the last of two, so one in `args` would make the plan, the
claim and the gateway's table untrue. Ports are among them: the agent chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from llmgw.catalog.profile import Profile

_AGENT = "take it out: the agent chooses where the engine listens, and the key that it asks for"
_SOURCE = "take it out, and write the model's `source`"
_NAME = "take it out: the engine is given the model's `name`"
_POOL = "write `context` for the whole pool, or `context_length` for one request"
_SLOTS = "write `parallel`"
_THREADS = "write `threads`"
_CARDS = "write `gpu.count`"

_EVERY = {"--host": _AGENT, "--port": _AGENT, "--api-key": _AGENT}

INSTEAD: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "llamacpp": {
            **_EVERY,
            **dict.fromkeys(("--api-key-file", "--ssl-key-file", "--ssl-cert-file", "--api-prefix"), _AGENT),
            **dict.fromkeys(("-m", "--model", "-mu", "--model-url"), _SOURCE),
            **dict.fromkeys(("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"), _SOURCE),
            **dict.fromkeys(("-a", "--alias"), _NAME),
            **dict.fromkeys(("-c", "--ctx-size"), _POOL),
            **dict.fromkeys(("-np", "--parallel"), _SLOTS),
            **dict.fromkeys(("-t", "--threads"), _THREADS),
        },
        "vllm": {
            **_EVERY,
            "--model": _SOURCE,
            "--served-model-name": _NAME,
            "--max-model-len": _POOL,
            "--max-num-seqs": _SLOTS,
            **dict.fromkeys(("-tp", "--tensor-parallel-size"), _CARDS),
        },
        "sglang": {
            **_EVERY,
            **dict.fromkeys(("--model", "--model-path"), _SOURCE),
            "--served-model-name": _NAME,
            "--context-length": _POOL,
            "--max-running-requests": _SLOTS,
            **dict.fromkeys(("--tp", "--tp-size", "--tensor-parallel-size"), _CARDS),
        },
        # It has no `args`: its words are its `command`.
        "command": {},
    }
)
"""By engine and flag: what to do in place of it."""


def named(args: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Every flag of `args` with its index: `--port` of `--port=9000`. A value is no flag: `-1`."""
    for index, arg in enumerate(args):
        flag = arg.partition("=")[0]
        if flag.startswith("-") and not flag.lstrip("-")[:1].isdigit():
            yield index, flag


def made(profile: Profile) -> tuple[str, ...]:
    """The engine's flags of a profile's typed knobs: they come before its `args`."""
    if profile.engine != "llamacpp":
        return ()
    words: list[str] = []
    for flag, value in (
        ("-ctk", profile.kv_type_k),
        ("-ctv", profile.kv_type_v),
        ("-ngl", profile.gpu_layers),
        ("-ts", ",".join(f"{share:g}" for share in profile.tensor_split) or None),
        ("--n-cpu-moe", profile.cpu_moe or None),
        ("-fa", profile.flash_attention),
        ("-b", profile.batch),
        # What is worked on at once is never more than what is taken in at once.
        ("-ub", profile.batch),
    ):
        if value is not None:
            words += [flag, str(value)]
    return (*words, "--no-mmap") if not profile.mmap else tuple(words)


def knobs(profile: Profile) -> Mapping[str, str]:
    """The flags that a profile's typed knobs make, in every spelling, by which knob makes them."""
    known = {
        "kv_type_k": ("-ctk", "--cache-type-k"),
        "kv_type_v": ("-ctv", "--cache-type-v"),
        "gpu_layers": ("-ngl", "--n-gpu-layers", "--gpu-layers"),
        "tensor_split": ("-ts", "--tensor-split"),
        "cpu_moe": ("-ncmoe", "--n-cpu-moe", "-cmoe", "--cpu-moe"),
        "flash_attention": ("-fa", "--flash-attn"),
        "batch": ("-b", "--batch-size", "-ub", "--ubatch-size"),
        "mmap": ("--mmap", "--no-mmap"),
    }
    written = profile.model_fields_set if profile.engine == "llamacpp" else frozenset()
    return {flag: key for key, spelled in known.items() if key in written for flag in spelled}
