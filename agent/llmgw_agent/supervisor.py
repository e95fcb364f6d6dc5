"""The life of one engine, as a table of what each event does in each state.

The table decides and does nothing: `replica.py` carries out the effects and
tells what comes of them. Nothing in it starts a failed engine again: that is
control's to order.
"""

from __future__ import annotations

from enum import StrEnum

from llmgw_agent.protocol import Phase


class State(StrEnum):
    """Where an engine is in its life, more finely than a report says it."""

    FETCHING = "fetching"
    """Its weights come, or what it replaces goes."""
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    """It is being ended, as ordered."""
    FAILING = "failing"
    """It is at fault, and what is left of it is being ended."""
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def phase(self) -> Phase:
        """What a report calls it. Failing is not failed yet: it still holds its memory."""
        return Phase.STOPPING if self is State.FAILING else Phase(self.value)

    @property
    def ending(self) -> bool:
        """Whether what it holds will be free in bounded time."""
        return self in {State.DRAINING, State.STOPPING, State.FAILING}

    @property
    def holds(self) -> bool:
        """Whether it may have a process."""
        return self in {State.STARTING, State.READY} or self.ending


class Event(StrEnum):
    """What can happen to it. The first four are orders."""

    RUN = "run"
    AGAIN = "again"
    """Control has raised the attempt: a failed one is to be tried again."""
    DRAIN = "drain"
    """To finish what it has, then go: ordered so, or ordered no more."""
    STOP = "stop"
    """To go now: the agent takes its engines with it."""
    FETCHED = "fetched"
    """Its weights are here, and so is the room."""
    UNFETCHABLE = "unfetchable"
    UNSTARTABLE = "unstartable"
    """No process could be made of it."""
    HEALTHY = "healthy"
    """It has loaded, is the one meant, and generates."""
    UNFIT = "unfit"
    """It runs and never will be healthy: too long without progress, or it is not the one meant."""
    WEDGED = "wedged"
    """It was healthy, and has stopped making progress."""
    EXITED = "exited"
    IDLE = "idle"
    """It has finished what it had, or the time for that is over."""
    GONE = "gone"
    """Nothing of it is left."""
    STUCK = "stuck"
    """Something of it is left that the kernel does not let go."""


class Effect(StrEnum):
    """What is done. All but `REPORT` go on until an event comes of them or the state changes."""

    FETCH = "fetch"
    START = "start"
    WATCH = "watch"
    FINISH = "finish"
    """Wait until it is idle."""
    END = "end"
    """Ask it to end; then end it, and all it started."""
    KILL = "kill"
    """End it and all it started, without asking."""
    REPORT = "report"


S, E, F = State, Event, Effect
Answer = tuple[State, tuple[Effect, ...]]

# Every pair is here. One that does nothing says so, so that an event nobody
# thought of fails a test and does not leave an engine alone on a node.
TABLE: dict[tuple[State, Event], Answer] = {
    (S.FETCHING, E.RUN): (S.FETCHING, ()),
    (S.FETCHING, E.AGAIN): (S.FETCHING, ()),
    (S.FETCHING, E.DRAIN): (S.STOPPED, (F.REPORT,)),
    (S.FETCHING, E.STOP): (S.STOPPED, (F.REPORT,)),
    (S.FETCHING, E.FETCHED): (S.STARTING, (F.START, F.REPORT)),
    (S.FETCHING, E.UNFETCHABLE): (S.FAILED, (F.REPORT,)),
    (S.FETCHING, E.UNSTARTABLE): (S.FETCHING, ()),
    (S.FETCHING, E.HEALTHY): (S.FETCHING, ()),
    (S.FETCHING, E.UNFIT): (S.FETCHING, ()),
    (S.FETCHING, E.WEDGED): (S.FETCHING, ()),
    (S.FETCHING, E.EXITED): (S.FETCHING, ()),
    (S.FETCHING, E.IDLE): (S.FETCHING, ()),
    (S.FETCHING, E.GONE): (S.FETCHING, ()),
    (S.FETCHING, E.STUCK): (S.FETCHING, ()),
    (S.STARTING, E.RUN): (S.STARTING, ()),
    (S.STARTING, E.AGAIN): (S.STARTING, ()),
    # It has nothing to finish: no request reaches it before it is ready.
    (S.STARTING, E.DRAIN): (S.STOPPING, (F.END, F.REPORT)),
    (S.STARTING, E.STOP): (S.STOPPING, (F.END, F.REPORT)),
    (S.STARTING, E.FETCHED): (S.STARTING, ()),
    (S.STARTING, E.UNFETCHABLE): (S.STARTING, ()),
    (S.STARTING, E.UNSTARTABLE): (S.FAILED, (F.REPORT,)),
    (S.STARTING, E.HEALTHY): (S.READY, (F.WATCH, F.REPORT)),
    (S.STARTING, E.UNFIT): (S.FAILING, (F.KILL, F.REPORT)),
    (S.STARTING, E.WEDGED): (S.STARTING, ()),
    # What it started may live on, with the memory of a card in its hands.
    (S.STARTING, E.EXITED): (S.FAILING, (F.KILL, F.REPORT)),
    (S.STARTING, E.IDLE): (S.STARTING, ()),
    (S.STARTING, E.GONE): (S.STARTING, ()),
    (S.STARTING, E.STUCK): (S.STARTING, ()),
    (S.READY, E.RUN): (S.READY, ()),
    (S.READY, E.AGAIN): (S.READY, ()),
    (S.READY, E.DRAIN): (S.DRAINING, (F.FINISH, F.REPORT)),
    (S.READY, E.STOP): (S.STOPPING, (F.END, F.REPORT)),
    (S.READY, E.FETCHED): (S.READY, ()),
    (S.READY, E.UNFETCHABLE): (S.READY, ()),
    (S.READY, E.UNSTARTABLE): (S.READY, ()),
    (S.READY, E.HEALTHY): (S.READY, ()),
    (S.READY, E.UNFIT): (S.READY, ()),
    (S.READY, E.WEDGED): (S.FAILING, (F.KILL, F.REPORT)),
    (S.READY, E.EXITED): (S.FAILING, (F.KILL, F.REPORT)),
    (S.READY, E.IDLE): (S.READY, ()),
    (S.READY, E.GONE): (S.READY, ()),
    (S.READY, E.STUCK): (S.READY, ()),
    # A commit that is reverted at once: it never stopped serving what it had.
    (S.DRAINING, E.RUN): (S.READY, (F.WATCH, F.REPORT)),
    (S.DRAINING, E.AGAIN): (S.DRAINING, ()),
    (S.DRAINING, E.DRAIN): (S.DRAINING, ()),
    (S.DRAINING, E.STOP): (S.STOPPING, (F.END, F.REPORT)),
    (S.DRAINING, E.FETCHED): (S.DRAINING, ()),
    (S.DRAINING, E.UNFETCHABLE): (S.DRAINING, ()),
    (S.DRAINING, E.UNSTARTABLE): (S.DRAINING, ()),
    (S.DRAINING, E.HEALTHY): (S.DRAINING, ()),
    (S.DRAINING, E.UNFIT): (S.DRAINING, ()),
    (S.DRAINING, E.WEDGED): (S.DRAINING, ()),
    (S.DRAINING, E.EXITED): (S.STOPPING, (F.KILL, F.REPORT)),
    (S.DRAINING, E.IDLE): (S.STOPPING, (F.END, F.REPORT)),
    (S.DRAINING, E.GONE): (S.DRAINING, ()),
    (S.DRAINING, E.STUCK): (S.DRAINING, ()),
    # Started again when the stop is over, not during it: orders are told again then.
    (S.STOPPING, E.RUN): (S.STOPPING, ()),
    (S.STOPPING, E.AGAIN): (S.STOPPING, ()),
    (S.STOPPING, E.DRAIN): (S.STOPPING, ()),
    (S.STOPPING, E.STOP): (S.STOPPING, ()),
    (S.STOPPING, E.FETCHED): (S.STOPPING, ()),
    (S.STOPPING, E.UNFETCHABLE): (S.STOPPING, ()),
    (S.STOPPING, E.UNSTARTABLE): (S.STOPPING, ()),
    (S.STOPPING, E.HEALTHY): (S.STOPPING, ()),
    (S.STOPPING, E.UNFIT): (S.STOPPING, ()),
    (S.STOPPING, E.WEDGED): (S.STOPPING, ()),
    (S.STOPPING, E.EXITED): (S.STOPPING, ()),
    (S.STOPPING, E.IDLE): (S.STOPPING, ()),
    (S.STOPPING, E.GONE): (S.STOPPED, (F.REPORT,)),
    (S.STOPPING, E.STUCK): (S.FAILED, (F.REPORT,)),
    (S.FAILING, E.RUN): (S.FAILING, ()),
    (S.FAILING, E.AGAIN): (S.FAILING, ()),
    (S.FAILING, E.DRAIN): (S.FAILING, ()),
    (S.FAILING, E.STOP): (S.FAILING, ()),
    (S.FAILING, E.FETCHED): (S.FAILING, ()),
    (S.FAILING, E.UNFETCHABLE): (S.FAILING, ()),
    (S.FAILING, E.UNSTARTABLE): (S.FAILING, ()),
    (S.FAILING, E.HEALTHY): (S.FAILING, ()),
    (S.FAILING, E.UNFIT): (S.FAILING, ()),
    (S.FAILING, E.WEDGED): (S.FAILING, ()),
    (S.FAILING, E.EXITED): (S.FAILING, ()),
    (S.FAILING, E.IDLE): (S.FAILING, ()),
    (S.FAILING, E.GONE): (S.FAILED, (F.REPORT,)),
    (S.FAILING, E.STUCK): (S.FAILED, (F.REPORT,)),
    (S.STOPPED, E.RUN): (S.FETCHING, (F.FETCH, F.REPORT)),
    (S.STOPPED, E.AGAIN): (S.STOPPED, ()),
    (S.STOPPED, E.DRAIN): (S.STOPPED, ()),
    (S.STOPPED, E.STOP): (S.STOPPED, ()),
    (S.STOPPED, E.FETCHED): (S.STOPPED, ()),
    (S.STOPPED, E.UNFETCHABLE): (S.STOPPED, ()),
    (S.STOPPED, E.UNSTARTABLE): (S.STOPPED, ()),
    (S.STOPPED, E.HEALTHY): (S.STOPPED, ()),
    (S.STOPPED, E.UNFIT): (S.STOPPED, ()),
    (S.STOPPED, E.WEDGED): (S.STOPPED, ()),
    (S.STOPPED, E.EXITED): (S.STOPPED, ()),
    (S.STOPPED, E.IDLE): (S.STOPPED, ()),
    (S.STOPPED, E.GONE): (S.STOPPED, ()),
    (S.STOPPED, E.STUCK): (S.STOPPED, ()),
    (S.FAILED, E.RUN): (S.FAILED, ()),
    (S.FAILED, E.AGAIN): (S.FETCHING, (F.FETCH, F.REPORT)),
    (S.FAILED, E.DRAIN): (S.FAILED, ()),
    (S.FAILED, E.STOP): (S.FAILED, ()),
    (S.FAILED, E.FETCHED): (S.FAILED, ()),
    (S.FAILED, E.UNFETCHABLE): (S.FAILED, ()),
    (S.FAILED, E.UNSTARTABLE): (S.FAILED, ()),
    (S.FAILED, E.HEALTHY): (S.FAILED, ()),
    (S.FAILED, E.UNFIT): (S.FAILED, ()),
    (S.FAILED, E.WEDGED): (S.FAILED, ()),
    (S.FAILED, E.EXITED): (S.FAILED, ()),
    (S.FAILED, E.IDLE): (S.FAILED, ()),
    (S.FAILED, E.GONE): (S.FAILED, ()),
    (S.FAILED, E.STUCK): (S.FAILED, ()),
}


def diagram() -> str:
    """The table as a mermaid state diagram: every transition that leaves its state, sorted."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), (after, _) in TABLE.items():
        if after is not state:
            arrows.setdefault((state, after), []).append(event)
    order = list(State)
    lines = [
        f"    {a} --> {b}: {', '.join(events)}"
        for (a, b), events in sorted(arrows.items(), key=lambda arrow: [order.index(s) for s in arrow[0]])
    ]
    return "\n".join(["stateDiagram-v2", "    [*] --> fetching: run", *lines, "    stopped --> [*]: no longer ordered"])
