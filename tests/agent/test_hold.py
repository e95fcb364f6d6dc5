"""A state folder is one agent's, and one that was replaced is not the one held."""

from __future__ import annotations

import os
import shutil

import pytest

from llmgw_agent.errors import Refused
from llmgw_agent.hold import Hold


def test_a_folder_that_is_held_is_held_once(tmp_path):
    with Hold(tmp_path / "state"):
        with pytest.raises(Refused, match="is in use") as no, Hold(tmp_path / "state"):
            pass
        assert no.value.why == f"another agent runs on it, process {os.getpid()}"

    with Hold(tmp_path / "state") as free:
        assert not free.lost


@pytest.mark.parametrize("again", ["nothing", "a folder", "another agent"])
def test_a_folder_that_was_removed_is_lost_whatever_is_there_now(tmp_path, again):
    state = tmp_path / "state"
    with Hold(state) as hold, Hold(tmp_path / "other") as other:
        shutil.rmtree(state)
        if again == "a folder":
            state.mkdir()
        if again == "another agent":
            other.state = state
            other.take()

        assert hold.lost
        if again == "another agent":
            with pytest.raises(Refused, match="is in use"):
                hold.take()
        else:
            hold.take()
        assert hold.lost is (again == "another agent")


def test_a_folder_that_cannot_be_made_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(Refused, match="cannot be used"), Hold(tmp_path / "file" / "state"):
        pass
