"""What is said of a replica that no node will do for, and what would help."""

from __future__ import annotations

from llmgw.core.actions import Held
from llmgw.core.needs import Need
from llmgw.core.unplaced import Unplaced


def no_node(need: Need, unplaced: Unplaced, gave_way: str) -> Held:
    """Why no node will do, and what to do about it.

    Args:
        need: what was to be placed.
        unplaced: what keeps it off each node.
        gave_way: the model that it lost its place to; empty: it did not.
    """
    why, do = _why_not(need, unplaced.furthest)
    why = f"it gave way to {gave_way}, and {why}" if gave_way else why
    name = need.model.name
    return Held(need.id, why, unplaced.words, do, model=name, stalled=True, reasons=unplaced.reasons)


def _why_not(need: Need, rule: str) -> tuple[str, str]:
    # In words that stay the same while the reason does.
    profile, path = need.profile, need.model.source.from_
    words = f"{profile.engine} {profile.engine_version or ''}".strip()
    labels = ", ".join(f"{key}: {value}" for key, value in sorted(profile.node_selector.items()))
    return {
        "": ("server.yaml lists no nodes", "add one under nodes"),
        "reports": ("no node reports", "see that an agent runs: llmgw-agent"),
        "not drained": ("every node that reports is drained", "llmgw node undrain one"),
        "labels": (f"no node has its labels ({labels})", "give a node these labels, or change node_selector"),
        "engine": (f"no node has {words} for it", f"install {words} where it should run"),
        "weights": (
            f"no node may read {path}",
            f'allow it where it should run: `allow = ["path:{path}"]` in the agent\'s file, or llmgw up --allow-path',
        ),
    }.get(rule, ("no node has room for it", ""))
