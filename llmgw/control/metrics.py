"""`GET /metrics`: the fleet as numbers, for whoever draws curves and is woken by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from llmgw import __version__
from llmgw.core.actions import Plan
from llmgw.core.backoff import parked
from llmgw.core.observed import Observed
from llmgw.core.status import FleetStatus
from llmgw.core.wanted import Wanted
from llmgw_agent.protocol import split_id

__all__ = ["CONTENT_TYPE_LATEST", "Figures", "exposition", "families"]

PROFILE = ("model", "profile")


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is counted, as of one moment."""

    wanted: Wanted | None
    seen: Observed
    plan: Plan | None
    status: FleetStatus | None
    """None: no pass has been made yet."""
    now: float
    """UTC seconds."""
    git_failures: int
    """Looks at the repository that failed since control started."""
    status_failures: int
    """Status commits that could not be made since then."""


def exposition(figures: Figures) -> bytes:
    """The page, in the text format of Prometheus. What is not known is left out: it is not zero."""
    registry = CollectorRegistry()
    registry.register(_Once(families(figures)))
    return generate_latest(registry)


class _Once(Collector):
    """Values that are known already, as the library wants to be given them."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = tuple(found)

    def collect(self) -> Iterable[Metric]:
        return self._found


def families(figures: Figures) -> Iterator[Metric]:
    """Every metric there is. docs/alerts.md says what each is good for."""
    yield _gauge("llmgw_control_info", "The version of control.", ("version",), [((__version__,), 1)])
    yield _counter("llmgw_git_failures", "Looks at the repository that failed.", figures.git_failures)
    yield _counter("llmgw_status_failures", "Status commits that could not be made.", figures.status_failures)
    if figures.wanted is not None and figures.wanted.committed_at:
        age = max(0.0, figures.now - figures.wanted.committed_at)
        yield _gauge("llmgw_commit_age_seconds", "Age of the commit that is carried out.", (), [((), age)])
    if figures.status is not None:
        yield from _models(figures.status)
        settled = float(figures.status.settled)
        yield _gauge("llmgw_settled", "Whether every node has spoken, or is past its grace.", (), [((), settled)])
        away = figures.status.mirror is not None and not figures.status.mirror.reachable
        if figures.status.mirror is not None:
            yield _gauge("llmgw_mirror_reachable", "Whether the mirror answers.", (), [((), float(not away))])
    if figures.plan is not None:
        yield from _held(figures.plan)
    yield from _nodes(figures)


def _models(status: FleetStatus) -> Iterator[Metric]:
    rows = [((m.name, p.name), p) for m in status.models for p in m.profiles]
    for name, text, counts in (
        ("wanted", "Replicas that are asked for.", [p.wanted for _, p in rows]),
        ("ready", "Replicas that serve.", [p.ready for _, p in rows]),
        ("starting", "Replicas on their way.", [p.starting for _, p in rows]),
        ("failed", "Replicas whose engine ended by itself.", [p.failed for _, p in rows]),
    ):
        keys = (key for key, _ in rows)
        yield _gauge(f"llmgw_replicas_{name}", text, PROFILE, zip(keys, counts, strict=True))
    stalled = [((m.name,), float(m.state == "stalled" or bool(m.frozen))) for m in status.models]
    yield _gauge("llmgw_model_stalled", "Whether a model waits for a person.", ("model",), stalled)


def _held(plan: Plan) -> Iterator[Metric]:
    homeless = Counter(split_id(h.subject)[:2] for h in plan.held if h.reasons)
    yield _gauge("llmgw_replicas_unplaced", "Replicas that no node has room for.", PROFILE, homeless.items())
    given_up = [(tuple(key.rsplit("/", 1)), 1) for key, failures in plan.memory.failures.items() if parked(failures)]
    yield _gauge("llmgw_profile_parked", "Profiles that failed too often.", PROFILE, given_up)


def _nodes(figures: Figures) -> Iterator[Metric]:
    nodes = sorted(figures.seen.nodes, key=lambda n: n.name)
    ages = [((n.name,), n.age_s) for n in nodes if n.age_s is not None]
    yield _gauge("llmgw_node_report_age_seconds", "Since a node last reported.", ("node",), ages)
    known = [(n.name, n.inventory) for n in nodes if n.inventory is not None]
    disks = [((name,), has.disk_free_bytes) for name, has in known if has.disk_free_bytes is not None]
    yield _gauge("llmgw_node_disk_free_bytes", "Free on the filesystem of a node's weights.", ("node",), disks)
    errors = [((name, card.uuid), len(card.errors)) for name, has in known for card in has.cards]
    yield _gauge("llmgw_card_errors", "What a card's driver says is wrong with it.", ("node", "card"), errors)
    free = figures.seen.mirror.disk_free_bytes if figures.seen.mirror else None
    if free is not None:
        yield _gauge("llmgw_mirror_disk_free_bytes", "Free on the mirror's filesystem.", (), [((), free)])


def _gauge(
    name: str, text: str, labels: Iterable[str], rows: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=tuple(labels))
    for key, value in sorted(rows):
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text)
    family.add_metric((), value)
    return family
