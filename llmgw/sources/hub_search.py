"""Models of a hub that are searched for: what is asked of its API, and what it says of each.

The API filters by author, format, licence, task and gate; every filter is
applied again here, since not everything that speaks the API knows them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from llmgw.catalog.origin import COMMIT, REPOSITORY
from llmgw.sources.hub import Hub
from llmgw.sources.hub_text import plain

PAGE = 100
"""Models of one request."""
MOST_PAGES = 5
"""Of one search: what is not among the first five hundred needs a narrower one."""
EXPAND = (
    *("author", "baseModels", "cardData", "config", "createdAt", "disabled", "downloads", "gated", "gguf"),
    *("lastModified", "likes", "pipeline_tag", "private", "safetensors", "sha", "siblings", "tags"),
)
"""What is said of each model in the same answer: the API says a name alone where nothing is asked."""
SORTS = {"trending": "trendingScore", "downloads": "downloads", "likes": "likes", "newest": "createdAt"}
"""The API's word for each order it knows; all begin with the most."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for. What is empty or None is not asked."""

    query: str = ""
    format: str = ""
    """gguf or safetensors."""
    architecture: str = ""
    licence: str = ""
    author: str = ""
    task: str = ""
    gated: bool | None = None
    label: str = ""
    """A tag of the hub: `base_model:quantized:OWNER/NAME`."""
    sort: str = "trending"
    limit: int = PAGE
    """Models of one answer."""

    @property
    def asked(self) -> str:
        """As the API is asked."""
        labels = (self.format, f"license:{self.licence.lower()}" if self.licence else "", self.label)
        words = [
            ("search", self.query),
            *(("filter", label) for label in labels),
            ("author", self.author),
            ("pipeline_tag", self.task),
            ("gated", "" if self.gated is None else str(self.gated).lower()),
            ("sort", SORTS[self.sort]),
            ("limit", str(self.limit)),
            *(("expand", field) for field in EXPAND),
        ]
        return urlencode([(name, value) for name, value in words if value])

    def missed(self, found: Found) -> str:
        """The filter that a model does not pass. Empty: it passes all. What the hub does not say excludes nothing."""
        passes = {
            "format": not self.format or not found.formats or self.format in found.formats,
            "architecture": not self.architecture or _same(found.architecture, self.architecture),
            "licence": not self.licence or found.licence.lower() == self.licence.lower(),
            "author": not self.author or found.id.partition("/")[0].lower() == self.author.lower(),
            "task": not self.task or not found.task or found.task == self.task,
            "gated": self.gated is None or bool(found.gated) == self.gated,
        }
        return next((name for name, passed in passes.items() if not passed), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One model, as its hub describes it. All of it is a stranger's word."""

    id: str
    commit: str = ""
    """Of its main branch. Empty: it was not said."""
    downloads: int | None = None
    likes: int | None = None
    created_at: float | None = None
    """Seconds since 1970."""
    modified_at: float | None = None
    gated: str = ""
    """How its owner decides who may have it: auto or manual. Empty: everybody may."""
    private: bool = False
    disabled: bool = False
    licence: str = ""
    base_model: str = ""
    quantised: bool = False
    """Whether it is said to be its base model with fewer bits."""
    task: str = ""
    architecture: str = ""
    context: int | None = None
    parameters: int | None = None
    quantisation: str = ""
    """Of safetensors, as the configuration has it."""
    formats: frozenset[str] = frozenset()
    """Empty: it was not said."""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of a search."""

    found: tuple[Found, ...]
    unreadable: int
    """Entries that name no repository."""
    last: bool
    """Whether no other is asked for."""
    onward: bool
    """Whether the hub has another."""


def search(hub: Hub, asked: Search) -> Iterator[Page]:
    """What a hub finds, page by page, at most `MOST_PAGES`.

    Raises:
        OperatorError: it cannot be asked, or answers what no hub does.
    """
    path = f"/api/models?{asked.asked}"
    for number in range(1, MOST_PAGES + 1):
        said = hub.get(path)
        listed = hub.value(said, path, list[dict[str, Any]])
        read = [found for entry in listed if (found := described(entry)) is not None]
        path = hub.onward(said, path)
        last = not path or number == MOST_PAGES
        yield Page(tuple(read), len(listed) - len(read), last, bool(path))
        if last:
            return


def described(entry: Mapping[str, Any]) -> Found | None:
    """One entry of the API, field by field: what is not as it should be is unknown. None: it names no repository."""
    name = entry.get("id") or entry.get("modelId")
    if not isinstance(name, str) or len(name) > 200 or not REPOSITORY.fullmatch(name):
        return None
    tags = [plain(tag, 200) for tag in _list(entry.get("tags"))[:200]]
    card, gguf, config = _table(entry.get("cardData")), _table(entry.get("gguf")), _table(entry.get("config"))
    commit, gated = entry.get("sha"), entry.get("gated")
    relation, base = _base(entry, card, tags)
    weights = _table(entry.get("safetensors"))
    return Found(
        id=name,
        commit=commit if isinstance(commit, str) and COMMIT.fullmatch(commit) else "",
        downloads=_count(entry.get("downloads")),
        likes=_count(entry.get("likes")),
        created_at=_time(entry.get("createdAt")),
        modified_at=_time(entry.get("lastModified")),
        gated=gated if gated in ("auto", "manual") else "yes" if gated else "",
        private=entry.get("private") is True,
        disabled=entry.get("disabled") is True,
        licence=plain(_first(card.get("license")), 40) or _tagged(tags, "license:"),
        base_model=base,
        quantised=relation == "quantized",
        task=plain(entry.get("pipeline_tag"), 40),
        architecture=plain(gguf.get("architecture"), 40) or plain(config.get("model_type"), 40),
        context=_count(gguf.get("context_length")) or None,
        parameters=_count(gguf.get("total")) or _count(weights.get("total")) or None,
        quantisation=plain(_table(config.get("quantization_config")).get("quant_method"), 20),
        formats=frozenset(_formats(entry, tags)),
    )


def _formats(entry: Mapping[str, Any], tags: Iterable[str]) -> Iterator[str]:
    names = [str(_table(file).get("rfilename", "")) for file in _list(entry.get("siblings"))]
    for kind in ("gguf", "safetensors"):
        if kind in tags or kind in entry or any(name.endswith(f".{kind}") for name in names):
            yield kind


def _base(entry: Mapping[str, Any], card: Mapping[str, Any], tags: Iterable[str]) -> tuple[str, str]:
    """What a model was made of: how, and which. Both empty: nobody says."""
    bases = _table(entry.get("baseModels"))
    models = _list(bases.get("models"))
    named = plain(_table(models[0]).get("id") if models else _first(card.get("base_model")), 200)
    relation = plain(bases.get("relation") or card.get("base_model_relation"), 20)
    for tag in tags:
        # `base_model:quantized:owner/name` beside a bare `base_model:owner/name`.
        kind, _, of = tag.removeprefix("base_model:").rpartition(":")
        if tag.startswith("base_model:") and (not named or of == named):
            named, relation = of, relation or kind
    return (relation, named) if REPOSITORY.fullmatch(named) else ("", "")


def _first(value: object) -> object:
    """A card's value. A list's first: some models have several base models."""
    return value[0] if isinstance(value, list) and value else value


def _tagged(tags: Iterable[str], prefix: str) -> str:
    return next((tag.removeprefix(prefix)[:40] for tag in tags if tag.startswith(prefix)), "")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def _time(value: object) -> float | None:
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() if read else None


def _same(said: str, asked: str) -> bool:
    """Whether two names are of one architecture: qwen3moe is qwen3_moe to another library."""
    return re.sub(r"[^a-z0-9]", "", said.lower()) == re.sub(r"[^a-z0-9]", "", asked.lower())
