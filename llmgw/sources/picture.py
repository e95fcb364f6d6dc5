"""The fleet as a picture in mermaid, which the pages of git servers draw: nodes, and what is on each."""

from __future__ import annotations

from collections.abc import Iterator

from llmgw.core.status import FleetStatus, NodeStatus, ReplicaStatus
from llmgw_agent.protocol import Phase

MOST = 40
"""Replicas. With more of them a picture is a carpet."""

_CLASSES = {
    "ready": "fill:#d7f0d8,stroke:#2e7d32,color:#1b1b1b",
    "coming": "fill:#fff3cd,stroke:#b58900,color:#1b1b1b",
    "failed": "fill:#f8d7da,stroke:#b02a37,color:#1b1b1b",
}
_LOOKS = {Phase.READY: "ready", Phase.FAILED: "failed"}


def picture(status: FleetStatus) -> Iterator[str]:
    """The section of the page. Nothing where there is nothing to see, or too much."""
    if not 0 < sum(len(n.replicas) for n in status.nodes) <= MOST:
        return
    yield "## Picture\n"
    lines = ["```mermaid", "flowchart LR"]
    for number, node in enumerate(status.nodes):
        lines += _node(number, node)
    lines += [f"  classDef {name} {look}" for name, look in _CLASSES.items()]
    yield "\n".join([*lines, "```"]) + "\n"


def _node(number: int, node: NodeStatus) -> Iterator[str]:
    word = "" if node.word == "reporting" else f", {node.word}"
    yield f'  subgraph n{number}["{node.name}{word}"]'
    if not node.replicas:
        yield f'    n{number}none["nothing"]'
    for at, replica in enumerate(node.replicas):
        # A node that says nothing may have lost what it had.
        look = _LOOKS.get(replica.phase, "coming") if node.standing == "usable" else "coming"
        yield f'    n{number}r{at}["{_words(replica)}"]:::{look}'
    yield "  end"


def _words(replica: ReplicaStatus) -> str:
    cards = f"<br/>{len(replica.devices)} card{'s' * (len(replica.devices) > 1)}" if replica.devices else ""
    return f"{replica.id}<br/>{replica.phase}{cards}"
