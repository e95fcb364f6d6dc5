"""Being told: once when it has lasted, once when it is over, and never again in between."""

from __future__ import annotations

from typing import get_args

import pytest

from llmgw.catalog.notifications import Event, Notification
from llmgw.core import notices
from llmgw.core.notices import due
from llmgw.core.problems import KINDS, Trouble

SILENT = Trouble("node_silent", "node n1", "it is silent", "see whether its agent runs")
SHORT = Trouble("model_not_ready", "coder/gpu", "1 of 2 replicas are ready")


class Receivers:
    """Time passes as it is told, and what is sent is kept."""

    def __init__(self, *receivers: dict[str, object]) -> None:
        self.receivers = [Notification.model_validate({"name": "ops", "url_ref": "x", **r}) for r in receivers]
        self.memory: dict = {}
        self.owners = {"coder": "ana", "other": "bob"}

    def at(self, minutes: float, *found: Trouble) -> list[str]:
        sent, self.memory = due("lab", self.receivers, found, self.owners, self.memory, 1_000_000 + 60 * minutes)
        return [n.text for n in sent]


def test_what_lasts_is_told_once_and_its_end_once() -> None:
    r = Receivers({"for": "5m"})

    assert r.at(0, SILENT) == []
    assert r.at(4.9, SILENT) == []
    assert r.at(5, SILENT) == ["lab: node n1: it is silent; next: see whether its agent runs"]
    assert [r.at(m, SILENT) for m in (6, 60, 6000)] == [[], [], []]
    assert r.at(6001) == ["lab: over after 4d: node n1: it is silent"]
    assert r.at(6002) == []


def test_what_passes_before_its_time_is_never_told_nor_its_end() -> None:
    r = Receivers({"for": "5m"})

    assert [r.at(0, SILENT), r.at(4), r.at(6, SILENT), r.at(10, SILENT)] == [[], [], [], []]
    assert len(r.at(11, SILENT)) == 1


def test_another_reason_of_the_same_problem_is_no_new_message() -> None:
    r = Receivers({"for": 0})

    assert len(r.at(0, SHORT)) == 1
    assert r.at(1, Trouble("model_not_ready", "coder/gpu", "0 of 2 replicas are ready")) == []
    assert r.at(2) == ["lab: over after 2m: coder/gpu: 0 of 2 replicas are ready"]


def test_each_receiver_is_told_of_its_kinds_and_its_owners_models_and_of_what_is_of_no_model() -> None:
    r = Receivers({"name": "a", "for": 0, "on": ["node_silent"]}, {"name": "b", "for": 0, "owners": ["bob"]})

    sent, _ = due("lab", r.receivers, (SILENT, SHORT), r.owners, {}, 5)

    assert [(n.receiver, n.subject) for n in sent] == [("a", "node n1"), ("b", "node n1")]


def test_whoever_was_told_of_the_beginning_is_told_of_the_end() -> None:
    r = Receivers({"name": "a", "for": 0, "on": ["node_silent"]}, {"name": "b", "for": 0, "on": ["parked"]})
    _, memory = due("lab", r.receivers, (SILENT,), r.owners, {}, 5)

    sent, _ = due("lab", r.receivers, (), r.owners, memory, 65)

    assert [(n.receiver, n.state, n.since) for n in sent] == [("a", "over", 5)]


def test_a_receiver_that_is_taken_out_is_told_nothing_more() -> None:
    r = Receivers({"for": 0})
    r.at(0, SILENT)
    r.receivers = []

    assert r.at(1) == []
    assert r.memory == {}


def test_a_clock_that_is_set_back_and_forth_tells_nothing_twice() -> None:
    r = Receivers({"for": "5m"})

    assert [len(r.at(m, SILENT)) for m in (100, 0, 4, 5, 6, 200)] == [0, 0, 0, 1, 0, 0]


def test_what_may_be_asked_for_is_what_the_status_knows_as_a_problem() -> None:
    assert set(get_args(Event)) == KINDS.keys() - {"waiting"}, "what only waits is nobody's alarm"


@pytest.mark.parametrize("receiver", ["ops", "mail"])
def test_a_trial_says_that_it_is_one(receiver: str) -> None:
    assert "this is a test; nothing is wrong" in notices.trial(receiver, "lab", 5.0).text
