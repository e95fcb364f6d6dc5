"""The supervisor's table, as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_agent.protocol import Phase
from llmgw_agent.supervisor import TABLE, Effect, Event, State, diagram

ORDERS = {Event.RUN, Event.AGAIN, Event.DRAIN, Event.STOP}
DOC = Path(__file__).resolve().parents[2] / "docs" / "agent.md"


def test_every_event_has_an_answer_in_every_state():
    assert set(TABLE) == {(state, event) for state in State for event in Event}


def test_every_change_of_state_is_reported_and_nothing_else_is():
    for (state, event), (after, effects) in TABLE.items():
        assert (Effect.REPORT in effects) == (after is not state), (state, event)


def test_every_state_is_reported_as_a_phase():
    assert {state.phase for state in State} == set(Phase)
    assert State.FAILING.phase is Phase.STOPPING


def test_a_failed_engine_is_started_by_control_alone():
    leaving = {event for (state, event), (after, _) in TABLE.items() if state is State.FAILED and after is not state}

    assert leaving == {Event.AGAIN}


def test_what_may_have_a_process_is_never_left_without_ending_it():
    for (state, event), (after, effects) in TABLE.items():
        if state.holds and not after.holds and event not in {Event.GONE, Event.STUCK, Event.UNSTARTABLE}:
            pytest.fail(f"{event} takes {state} to {after} with its process")
        if after.ending and not state.ending:
            assert {Effect.FINISH, Effect.END, Effect.KILL} & set(effects), (state, event)


@pytest.mark.parametrize("state", State)
def test_from_everywhere_a_stop_leads_to_an_end(state):
    """In the worst case, where everything that can go wrong does."""
    after, _ = TABLE[state, Event.STOP]
    for event in (Event.EXITED, Event.IDLE, Event.STUCK):
        after, _ = TABLE[after, event]

    assert not after.holds


def test_the_diagram_in_the_docs_is_drawn_from_the_table():
    assert diagram() in DOC.read_text(), f"put this into {DOC}:\n{diagram()}"
