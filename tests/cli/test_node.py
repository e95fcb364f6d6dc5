"""`llmgw node drain` and `undrain`: what they write into server.yaml."""

from __future__ import annotations

import pytest

from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git

FILE = "server.yaml"


def test_a_drained_node_is_marked_and_what_moves_is_said(copy):
    copy.see(gpu=["ready", "ready"], slow=["ready"])

    code, out, _ = copy.run("node", "drain", "n1")

    assert code == Exit.DONE
    assert out.startswith(
        "Draining n1 starts nothing new there; its 2 replicas move to other nodes where there is room."
    )
    assert "start   coder/" in out
    assert copy.changed(FILE) == [
        "-  - {name: n1, address: 10.0.0.5}   # the old one",
        "+  - {name: n1, address: 10.0.0.5, drained: true}   # the old one",
    ]


def test_taken_back_the_file_is_as_it_was(copy):
    for node in ("n1", "n2"):
        copy.run("node", "drain", node)
        copy.run("node", "undrain", node)

    assert copy.clean()


def test_an_unknown_node_is_refused_with_the_nearest(copy):
    code, out, err = copy.run("node", "drain", "n22")

    assert (code, out) == (Exit.REFUSED, "")
    assert err.startswith("error: there is no node n22\n  because the nodes are n1, n2\n  next: did you mean n2?\n")


def test_a_node_that_is_not_drained_needs_nothing(copy):
    assert copy.run("node", "undrain", "n1") == (Exit.DONE, "Nothing is changed: it is so already.\n", "")


def test_a_card_that_the_node_does_not_report_is_refused(copy):
    copy.see(gpu=["ready"])

    code, _, err = copy.run("node", "drain", "n1", "--card", "GPU-77")

    assert code == Exit.REFUSED
    assert "n1 has no card GPU-77" in err
    assert copy.clean()


def test_a_card_is_taken_out_and_taken_back(copy):
    copy.see(gpu=["ready"])

    code, out, err = copy.run("node", "drain", "n2", "--card", "GPU-3", "--card", "GPU-4")
    drained = copy.changed(FILE)
    copy.run("node", "undrain", "n2", "--card", "GPU-4")
    one = copy.changed(FILE)
    copy.run("node", "undrain", "n2", "--card", "GPU-3")

    assert (code, err) == (Exit.DONE, "")
    assert out.startswith("Draining cards GPU-3, GPU-4 of n2 starts nothing new there; what runs there moves")
    assert drained == ["+    cards_out: [GPU-3, GPU-4]"]
    assert one == ["+    cards_out: [GPU-3]"]
    assert copy.clean()


def test_a_card_that_is_not_drained_cannot_be_taken_back(copy):
    code, _, err = copy.run("node", "undrain", "n2", "--card", "GPU-3")

    assert code == Exit.REFUSED
    assert err == (
        "error: card GPU-3 of n2 is not drained\n"
        "  because no card of n2 is: it has no `cards_out`\n"
        "  next: llmgw node undrain n2 takes the whole node back\n"
    )


def test_a_card_of_a_node_that_has_reported_none_is_taken_out_with_a_word(copy):
    copy.git.commit({"server.yaml": copy.text(FILE).encode() + b"  - {name: n3, address: 10.0.0.7}\n"})
    copy.see(gpu=["ready"])

    code, out, _ = copy.run("node", "drain", "n3", "--card", "GPU-1", "--card", "GPU-1")

    assert code == Exit.DONE
    assert out.splitlines()[:2] == [
        "Draining card GPU-1 of n3 starts nothing new there; what runs there moves where there is room.",
        "n3 has not reported its cards, so it is not known whether it has GPU-1.",
    ]
    assert copy.changed(FILE) == [
        "-  - {name: n3, address: 10.0.0.7}",
        "+  - {name: n3, address: 10.0.0.7, cards_out: [GPU-1]}",
    ]


def test_of_one_replica_the_sentence_is_of_one(copy):
    copy.see(gpu=["ready"])

    told = [copy.run("node", "drain", node)[1].splitlines()[0] for node in ("n1", "n2")]

    assert sorted(sentence.partition("; ")[2] for sentence in told) == [
        "its 1 replica moves to other nodes where there is room.",
        "no replica runs there that would move.",
    ]
