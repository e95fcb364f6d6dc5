"""Every bound of the gateway in one place: how long it waits, and how much it takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """The defaults are those of docs/gateway.md. Tests make them shorter."""

    connections: int = 10_000
    """Of clients at one time, each with one to an engine; fewer where the process may have fewer descriptors."""
    body_bytes: int = 100 << 20
    """A client's body: as much as llama-server takes. Images come as base64 in JSON."""
    body_idle_s: float = 30.0
    """Between two pieces of a client's body."""
    client_idle_s: float = 75.0
    """A client's connection without a request, or with half of one's head."""
    write_s: float = 60.0
    """How long a client may not take what is there for it."""
    keepalive_s: float = 12.0
    """Silence in a stream until a comment. Clients were seen to give up after 300, proxies after 15 to 60."""

    waiting: int = 64
    """Requests that wait for one model."""
    full_wait_s: float = 60.0
    """For a slot of replicas that serve."""
    start_wait_s: float = 600.0
    """For replicas that are starting, if the client waits as long."""
    more_tries: int = 2
    """Replicas that are asked after the first one failed, while the client has seen nothing of an answer."""
    suspect_s: float = 10.0
    """How long a replica that did not answer is asked last. Its agent reports it sooner; until then it
    would be the least loaded one and draw every request."""

    connect_s: float = 5.0
    first_s: float = 600.0
    """Until a replica's first byte: a long prompt on a CPU takes minutes."""
    idle_s: float = 300.0
    """Between two pieces of a replica's answer. An engine's comments count as life."""
    kept_s: float = 3.0
    """An idle connection to an engine: engines close theirs after 5."""
    answer_bytes: int = 256 << 20

    slot_look_s: float = 2.0
    """Between two looks at the slots of an engine. To be asked is one of the things that keep llama-server
    from noticing that a client has left, so it is not asked more often."""
    slot_give_up_s: float = 60.0
    """After this a slot that was left behind counts as free, whatever the engine says."""

    table_wait_s: float = 20.0
    """How long control holds a request for a table that has not changed."""
    demand_every_s: float = 5.0
    stop_s: float = 10.0
    """How long streams go on after the gateway was told to stop."""
