"""One way to run a model: on which machines, with how much, how many times."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from llmgw.catalog.fields import (
    Bytes,
    Flag,
    Gib,
    Labels,
    Name,
    Names,
    Number,
    Path,
    Seconds,
    SecondsOrAuto,
    Share,
    Strict,
    Text,
    Variables,
    Whole,
    Word,
)
from llmgw.catalog.gpu import GpuNeed
from llmgw.catalog.planned import Planned

Engine = Literal["llamacpp", "vllm", "sglang", "command"]
CacheType = Literal["f32", "f16", "bf16", "fp8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]

AUTO_START_S = 600.0
"""What `start_timeout: auto` is while sizes are not looked at."""

_Layers = Annotated[Whole, Field(ge=0, le=10_000)]
_Arguments = Annotated[tuple[Annotated[Text, Field(max_length=4096)], ...], Field(max_length=256)]


class Speculative(Strict):
    """Guessing several tokens ahead with a small model or a rule, and keeping those that are right."""

    model_config = ConfigDict(title="speculative")

    method: Literal["draft", "ngram", "mtp", "eagle"] = "draft"
    """What guesses: the source's `draft`, what the text repeats, or heads that belong to the model."""
    tokens: Annotated[Whole, Field(ge=1, le=64)] = 4
    """How many it guesses at a time: of more, most are wrong."""
    min_probability: Share | None = None
    """How sure a guess must be. Absent: as the engine has it."""


class Profile(Strict):
    """One way to run a model. A model has at least one, unless somebody else runs it."""

    model_config = ConfigDict(title="profile")

    name: Name
    """Tells it from the model's other profiles. Part of its replicas' ids: `model/profile/0`."""
    engine: Annotated[Engine, Planned(r"(vllm|sglang|command)$", "`vllm`, `sglang` and `command`")]
    """The program that serves it: llama.cpp, vLLM or SGLang, or any other that `command` starts."""
    engine_version: Word | None = None
    """The engine's version, as a node that has it installed reports it: `b11549`. Absent: the newest the node has."""
    binary: Annotated[Path | None, Planned()] = None
    """The engine's program by its absolute path on the node, whose owner must allow it. Absent: what the node found."""
    command: Annotated[_Arguments, Planned()] = ()
    """With `engine: command`, the program and its words, in which `{model}`, `{port}`, `{host}` and `{name}` are
    put in. The node's owner must allow it, and `health.path` says when it is ready."""
    gpu: GpuNeed | None = None
    """The cards a replica needs. Absent: none, and it sees none: a CPU profile."""
    replicas: Annotated[Whole, Field(ge=0, le=100_000)] | None = None
    """How many of the model's replicas run here. 0 keeps the profile and runs none. Absent only with `scaling`."""
    priority: Annotated[Whole, Field(ge=-1_000_000, le=1_000_000)] = 100
    """Requests go to the highest first, and to the next when its slots are full: there is room on both sides."""
    weight: Annotated[Whole, Field(ge=1, le=1000)] = 1
    """The share of requests among replicas of one priority: all alike."""
    spill: Annotated[Flag, Planned()] = True
    """Whether requests go on to the next priority when every slot here is taken, rather than wait."""
    parallel: Annotated[Whole, Field(ge=1, le=4096)] = 1
    """Slots: how many requests one replica serves at the same time. Each takes memory, so one unless more are said."""
    context: Annotated[Whole, Field(ge=1, le=1_000_000_000)] | None = None
    """Tokens of the whole pool that the slots share. Absent: `context_length` for each slot."""
    cpu_cores: Annotated[Whole, Field(ge=0, le=4096)] | None = None
    """Cores one replica reserves. Absent: half the node's, and one beside a card. 0
    reserves none, for a model so small or so seldom asked that it may share."""
    threads: Annotated[Whole, Field(ge=1, le=4096)] | None = None
    """Threads the engine is given. Absent: one for each reserved core, and one where none is."""
    memory_gib: Gib | None = None
    """GiB of host memory one replica reserves, as a number or with a unit: `24` or `24GiB`. Absent: what is worked
    out from the header that the model's lock keeps."""
    memory_claim: Literal["written", "estimated", "measured"] = "written"
    """Which figure a replica holds on its node. `written`: the one above, or what is worked out where none is.
    `estimated`: what is worked out, whatever is written. `measured`: that, corrected by what its own replicas were
    seen to take, once one has answered. What runs keeps what it has."""
    disk: Bytes | None = None
    """Room on the node's disk that a replica needs besides its weights: `20GiB`. Absent: none."""
    node_selector: Labels = {}
    """Labels a node must carry. Absent: any node."""
    anti_affinity: Names = ()
    """Models whose replicas are never on one node with one of these."""
    placement: Literal["spread", "binpack"] = "spread"
    """`spread` puts replicas on different nodes and, by labels of these names, racks, rows, rooms and sites, so that
    one's end is not all's; `binpack` fills a node first."""
    keep_within: Literal["node", "rack", "row", "room", "site"] | None = None
    """What all replicas of the profile are in, one of it, by the nodes' labels of that name; a node without that label
    is in none. What runs elsewhere is not moved. Absent: they may be anywhere."""
    tp: Annotated[Whole, Field(ge=1, le=64), Planned()] = 1
    """Cards that each layer is divided over, for vLLM and SGLang."""
    pp: Annotated[Whole, Field(ge=1, le=64), Planned()] = 1
    """Groups of cards that hold the layers one after the other, for vLLM and SGLang."""
    kv_type_k: CacheType | None = None
    """How the cache holds keys: `q8_0` takes half the memory. Absent: f16, as the engine has it."""
    kv_type_v: CacheType | None = None
    """How the cache holds values: one that is quantised needs `flash_attention`. Absent: f16, as the engine has it."""
    gpu_layers: _Layers | None = None
    """Layers on the cards, for llama.cpp; the rest is in host memory. Absent: all of them."""
    tensor_split: Annotated[tuple[Annotated[Number, Field(ge=0, le=1_000_000)], ...], Field(max_length=64)] = ()
    """Shares of the cards in what they hold, in their order, for llama.cpp. Absent: by their free memory."""
    cpu_moe: _Layers | None = None
    """Layers whose experts stay in host memory, for llama.cpp. Absent: none."""
    flash_attention: Literal["on", "off", "auto"] | None = None
    """Attention that needs less memory. Absent: as the engine has it."""
    mmap: Flag = True
    """Whether llama.cpp maps the weights, rather than read them: a second start on the node is then quick."""
    batch: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = None
    """Tokens of a prompt worked on at a time. Absent: 256 on CPUs, so that others wait less, and as the engine
    has it on cards."""
    utilisation: Annotated[Share | None, Planned()] = None
    """The share of a card's memory that vLLM or SGLang takes. Absent: as the engine has it."""
    speculative: Annotated[Speculative | None, Planned()] = None
    """Guessing ahead. Absent: none."""
    args: _Arguments = ()
    """More of the engine's own flags, after those made from the fields above."""
    env: Variables = {}
    """Variables of the engine's environment. The node's owner must allow any but a few harmless ones."""
    env_from: Annotated[Variables, Planned()] = {}
    """Variables by the name of a file beside the agent that holds the value: for secrets."""
    start_timeout: Annotated[SecondsOrAuto, Planned("auto$", "`auto`")] = 600.0
    """A start without progress for this long has failed: a busy disk is silent for minutes. `auto` makes it from
    the size of the weights."""
    drain_timeout: Seconds = 60.0
    """What a replica that is to stop may still take to finish its requests: most answers take less."""
    min_tps: Annotated[Number, Field(gt=0, le=1_000_000)] | None = None
    """Tokens a second that one answer must be predicted to come at, on the machine that does best; else the model
    stays as it was. What cannot be predicted is not refused. Absent: 5 on CPUs, where less is a choice that is made
    by writing it, and any speed on cards."""
    restart: Annotated[Text, Field(max_length=200)] = ""
    """Any text. Changing it starts the replicas again, one at a time."""

    @property
    def memory_is_written(self) -> bool:
        """Whether the memory that one replica holds is the figure of its file."""
        return self.memory_gib is not None and self.memory_claim == "written"

    @property
    def start_timeout_s(self) -> float:
        """The longest a start may go without progress."""
        return AUTO_START_S if isinstance(self.start_timeout, str) else self.start_timeout
