"""Taking up what an earlier agent left: its engines that run on, and what is left of those that do not."""

from __future__ import annotations

import logging

from llmgw_agent import process
from llmgw_agent.process import Exit, Process
from llmgw_agent.protocol import Dossier
from llmgw_agent.records import Record
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
    replica.peak_bytes = record.memory_peak_bytes
    if record.boot == around.boot:
        replica.since_s = record.since_s
        replica.started = record.started if record.state.holds else None
    if replica.started and replica.started.process:
        replica.process = Process.adopt(replica.started.process)
    going_on = _going_on(replica, record.state)
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


def end_orphans(owner: str, known: set[str]) -> None:
    """End every process that an agent of this state folder started and no record speaks of."""
    for pid, marker in process.marked(f"{owner}.").items():
        if marker not in known:
            LOG.warning("a process without a record is ended", extra={"pid": pid})
            process.strike(pid, marker)
