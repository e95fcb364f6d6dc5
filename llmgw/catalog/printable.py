"""Which values a plan may show: a list of what is allowed, so that a field nobody thought of is not printed.

A plan lies in pull requests that strangers read. Of a field that is not here its name is
said, and that it changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from llmgw.catalog.model import Model
from llmgw.catalog.planned import types_in

PRINTABLE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        title: frozenset(keys.split())
        for title, keys in {
            "model": "name extends description aliases owner tags license kind capabilities unlisted replaced_by"
            " protect state source external context_length max_output profiles scaling class health rollout routing"
            " access",
            "source": "from version sha256 checksums revision files ignore format mmproj draft chat_template adapters"
            " prefetch retain",
            "adapter": "name source scale",
            "external": "served_name timeout",
            "profile": "name engine engine_version binary gpu replicas priority weight spill parallel context"
            " cpu_cores threads memory_gib memory_claim disk node_selector anti_affinity placement keep_within tp pp"
            " kv_type_k kv_type_v gpu_layers tensor_split cpu_moe flash_attention mmap batch utilisation speculative"
            " args start_timeout drain_timeout min_tps restart",
            "speculative": "method tokens min_probability",
            "gpu": "class count slice vendor name memory compute_capability",
            "scaling": "min max target window up_delay down_delay idle_timeout schedule warm max_cold_wait",
            "target": "concurrency slots queue rps kv",
            "schedule entry": "cron time_zone min max",
            "health": "path inference interval timeout failures no_progress_timeout expect_gpu",
            "rollout": "strategy max_surge max_unavailable auto_return canary freeze",
            "canary": "weight duration",
            "routing": "strategy queue time_limits retries fallbacks parameters concurrency loading_feedback",
            "queue": "size max_wait",
            "time limits": "first_token between_tokens whole",
            "fallback": "on to",
            "parameters": "strip",
            "access": "allow deny visibility preemption cost",
            "cost": "input cached_input output",
            "server.yaml": "schema cluster nodes gateways operators mirror node_grace policy engines freeze state"
            " cards",
            "node": "name drained address labels cards_out engines",
            "node engine": "name version",
            "caller": "name",
            "card": "name class count",
            "mirror": "retain reserve parallel_nodes release_for_fetch",
            "policy": "max_removals required licenses unpinned_sources min_tps max_start_time quotas soak"
            " models_at_once",
            "quota": "owner class cards memory_gib replicas",
            "engine build": "name version platform backend sha256",
            "freeze window": "name cron time_zone duration",
        }.items()
    }
)
"""By the title of a type: keys whose values are no secret, whoever reads them."""

_SECRET = re.compile(r"(?i)key|token|secret|passw|auth|bearer|credential|header|cookie")
_RANDOM = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[A-Za-z0-9_+=-]{24,}")
"""What looks like one: long, of letters and digits, and no path."""


def is_printable(at: tuple[str, ...], kind: type[BaseModel] = Model) -> bool:
    """Whether the value of a field may be shown.

    Args:
        at: the way to it, in which lists go by the names of their entries: `profiles`, `gpu`, `parallel`.
        kind: what it is a field of.
    """
    steps = iter(at)
    for step in steps:
        if step not in PRINTABLE.get(str(kind.model_config.get("title")), ()):
            return False
        field = next((f for n, f in kind.model_fields.items() if (f.alias or n) == step), None)
        inner = next(types_in(field.annotation), None) if field else None
        if field is None or inner is None:
            break
        kind = inner
        if str(field.annotation).startswith("tuple"):
            next(steps, None)
    return True


def shown(at: tuple[str, ...], value: Any, kind: type[BaseModel] = Model) -> tuple[Any, bool]:
    """A field's value as a plan may show it, and whether it may at all: if not, there is None in its place."""
    if not is_printable(at, kind) or ("args" in at and _secretive(value)):
        return None, False
    return (public_url(value) if isinstance(value, str) else value), True


def public_url(text: str) -> str:
    """A URL without who asks and without its query: both may carry what lets somebody in. Other text as it is."""
    scheme, there, rest = text.partition("://")
    if not there:
        return text
    host, slash, path = rest.partition("/")
    host = f"…@{host.rpartition('@')[2]}" if "@" in host and scheme != "hf" else host
    path, query, _ = path.partition("?")
    return f"{scheme}://{host}{slash}{path}{'?…' if query else ''}"


def _secretive(value: Any) -> bool:
    words = value if isinstance(value, list | tuple) else [value]
    return any(_SECRET.search(str(word)) or _RANDOM.fullmatch(str(word)) for word in words)
