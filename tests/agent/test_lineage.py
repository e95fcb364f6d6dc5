"""Which agent one is: known again without its state folder, and unlike every other."""

from __future__ import annotations

from pathlib import Path

from llmgw_agent import lineage


def test_an_agent_is_the_same_whatever_became_of_its_state_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert lineage.owner("n1", Path("state")) == lineage.owner("n1", tmp_path / "state")
    assert "." not in lineage.owner("n1", tmp_path)  # which ends it in a marker


def test_another_node_and_another_folder_are_other_agents(tmp_path):
    owners = {lineage.owner(node, tmp_path / folder) for node in ("n1", "n2") for folder in "ab"}

    assert len(owners | {lineage.instance(owner) for owner in owners}) == 8


def test_a_copied_machine_with_a_name_of_its_own_is_a_second_agent(tmp_path, monkeypatch):
    first = lineage.instance(lineage.owner("n1", tmp_path))
    monkeypatch.setattr("socket.gethostname", lambda: "copy")

    assert lineage.instance(lineage.owner("n1", tmp_path)) != first


def test_a_machine_without_an_id_has_agents_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(lineage, "MACHINE_IDS", (tmp_path / "none",))

    assert len(lineage.owner("n1", tmp_path)) == 16
