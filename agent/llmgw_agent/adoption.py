"""Taking up what an earlier agent left: its engines that run on, and what is left of those that do not."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

from msgspec import structs

from llmgw_agent import process, tree
from llmgw_agent.engines.base import Seen
from llmgw_agent.probe.host import kernel_out_of_memory_kills
from llmgw_agent.process import Exit, Identity, Process
from llmgw_agent.protocol import Action, Dossier, InstalledEngine, ReplicaOrder
from llmgw_agent.records import Key, Record, Started
from llmgw_agent.replica import Replica
from llmgw_agent.supervisor import Effect, State
from llmgw_agent.surroundings import Surroundings

LOG = logging.getLogger(__name__)

GOING_ON = {
    State.STARTING: Effect.START,
    State.READY: Effect.WATCH,
    State.DRAINING: Effect.FINISH,
    State.STOPPING: Effect.END,
    State.FAILING: Effect.KILL,
}


def take_up(around: Surroundings, record: Record) -> Replica | None:
    """The replica of a record, going on where it was; None when nothing is left of it."""
    replica = Replica(around, record.order)
    replica.attempts, replica.starts, replica.dossier = record.attempts, record.starts, record.dossier
    replica.peak_bytes, replica.card_peak_bytes = record.memory_peak_bytes, record.card_peak_bytes
    if record.boot == around.boot:
        replica.since_s = record.since_s
    if record.started and record.started.process:
        replica.process = Process.adopt(record.started.process)
    state = record.state
    if replica.process and not state.holds:
        # It says of what provably runs that it does not: damaged, and what runs is kept.
        state = State.READY
    if replica.process or (record.boot == around.boot and state.holds):
        replica.started = record.started
    if replica.started and not replica.started.key:
        replica.started = structs.replace(replica.started, key=around.records.engine_key(replica.key))
    going_on = _going_on(replica, state)
    if going_on is None:
        return None
    if replica.process:
        LOG.info("%s runs on and is taken up", record.order.id, extra={"pid": replica.process.pid})
    replica.resume(*going_on)
    return replica


def _going_on(replica: Replica, state: State) -> tuple[State, Effect | None, Dossier | None] | None:
    """Where it goes on that was left in this state, with which effect, and why it failed meanwhile."""
    if replica.process:
        return state, GOING_ON[state], None
    if replica.started and replica.started.process and state in {State.STARTING, State.READY}:
        # It ended while nobody looked; what it started may be there still.
        return State.FAILING, Effect.KILL, replica.why_ended(Exit())
    if replica.started:
        # It was ending, or the agent ended while making it: the marker finds what there is.
        return state if state is State.FAILING else State.STOPPING, Effect.KILL, None
    if state in {State.FAILED, State.FAILING}:
        return State.FAILED, None, None
    if state in {State.FETCHING, State.STARTING, State.READY}:
        # Never made, or the machine has booted since. Fresh orders start it.
        return State.STOPPED, None, None
    return None


def take_up_unrecorded(around: Surroundings, known: Collection[str], recorded: Collection[Key]) -> list[Replica]:
    """Every engine of ours that runs and has no record any more; and what is left of ended ones is ended.

    A record may be damaged, or gone with its folder: what serves is kept all the
    same, and control says whether it may stay.

    Args:
        around: the node.
        known: markers of what is taken up already.
        recorded: replicas whose record can be read. What it does not speak of was ended, or never began.
    """
    taken: dict[Key, Replica] = {}
    for marker, pids in _together(process.marked(f"{around.owner}.")).items():
        if marker in known:
            continue
        key, engine = process.replica_of(marker), _engine(around, pids)
        if key is not None and engine is not None and key not in recorded and key not in taken:
            replica = _of_process(
                around, key, Identity(engine[0], process.start_ticks(engine[0]) or 0, marker), engine[1]
            )
            if replica is not None:
                LOG.warning("%s runs on without a record and is taken up", key[0], extra={"pid": engine[0]})
                taken[key] = replica
                continue
        for pid in pids:
            LOG.warning("a process that no engine is left of is ended", extra={"pid": pid})
            process.strike(pid, marker)
    return list(taken.values())


def _together(marked: dict[int, str]) -> dict[str, list[int]]:
    """The processes of each marker."""
    found: dict[str, list[int]] = {}
    for pid, marker in marked.items():
        found.setdefault(marker, []).append(pid)
    return found


def _engine(around: Surroundings, pids: Collection[int]) -> tuple[int, Seen] | None:
    """Which of these is the engine, the others being what it started."""
    # In the order they started: an engine may run a copy of itself.
    for pid in sorted(pids, key=lambda pid: process.start_ticks(pid) or 0):
        words, environment = process.command_line(pid), process.environment(pid)
        for adapter in around.adapters.values():
            if seen := adapter.recognise(words, environment):
                return pid, seen
    return None


def _of_process(around: Surroundings, key: Key, identity: Identity, seen: Seen) -> Replica | None:
    """The replica a process is, as far as that shows; None when it has just ended."""
    held = Process.adopt(identity)
    if held is None:
        return None
    order = around.ordered(key)
    if order is None or order.spec is None:
        claim = structs.replace(seen.spec.claim, memory_bytes=tree.look(held.pid).memory_bytes)
        of = around.weights.key_of(seen.model)
        order = ReplicaOrder(
            *key,
            Action.KEEP,
            spec=structs.replace(seen.spec, claim=claim),
            version=of,
            path="" if of else str(seen.model),
            devices=seen.devices,
        )
    # Nobody can say any more whether it is as ordered: unknown, and not stale.
    order = structs.replace(order, fingerprint="")
    log = Path(process.output(held.pid))
    replica = Replica(around, order)
    replica.process = held
    replica.starts = around.logs.start_of(log)
    replica.since_s = identity.ticks / os.sysconf("SC_CLK_TCK")
    replica.started = Started(
        order=order,
        engine=InstalledEngine(seen.spec.engine, path=next(iter(process.command_line(held.pid)), "")),
        marker=identity.marker,
        address=seen.address,
        port=seen.port,
        log=str(log if replica.starts else around.logs.path(*key, 0)),
        key=around.records.engine_key(key),
        process=identity,
        at_s=replica.since_s,
        kernel_kills=kernel_out_of_memory_kills(),
    )
    replica.resume(State.READY, Effect.WATCH)
    return replica
