"""Commands on a model that is read with `defaults` and `blocks` of server.yaml: they see what counts and say whence."""

from __future__ import annotations

import pytest
from cli.conftest import CODER, SERVER

from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git

UNCOUNTED = CODER.replace(b"    replicas: 2        # one a node\n", b"").replace(b"    replicas: 1\n", b"")


@pytest.fixture
def stopped(copy):
    """The coder, stopped with every model of the fleet."""
    copy.git.commit({"server.yaml": SERVER + b"defaults: {state: stopped}\n"})
    return copy


@pytest.fixture
def scaled(copy):
    """The coder, scaled by a block."""
    copy.git.commit(
        {
            "server.yaml": SERVER + b"blocks: {small: {scaling: {min: 1, max: 3, idle_timeout: 15m}}}\n",
            "catalog/coder.yaml": UNCOUNTED + b"extends: small\n",
        }
    )
    return copy


def test_a_model_that_its_defaults_stop_is_started_by_its_own_file(stopped):
    code, _, err = stopped.run("model", "start", "coder")

    assert (code, err) == (Exit.DONE, "")
    assert stopped.changed() == ["+state: running"]


def test_in_a_fleet_that_is_stopped_a_start_is_written_and_said_to_wait(copy):
    copy.git.commit({"server.yaml": SERVER + b"state: stopped\n", "catalog/coder.yaml": CODER + b"state: stopped\n"})

    out = copy.run("model", "start", "coder")[1]

    assert out.startswith("The fleet is stopped by `state` of server.yaml: nothing starts until that is taken out.\n")
    assert copy.changed() == ["-state: stopped"]


def test_another_total_starts_it_too(stopped):
    code, out, _ = stopped.run("model", "scale", "coder", "5")

    assert code == Exit.DONE
    assert out.startswith("coder was stopped, and starts.\n")
    assert "+state: running" in stopped.changed()


def test_stopping_it_again_changes_nothing_and_says_what_stops_it(stopped):
    code, out, _ = stopped.run("model", "stop", "coder")

    assert code == Exit.DONE
    assert out == (
        "coder is stopped already: `defaults.state` of server.yaml says so.\nNothing is changed: it is so already.\n"
    )


def test_counting_it_says_that_it_stays_stopped(stopped):
    out = stopped.run("model", "replicas", "coder", "gpu=5")[1]

    assert out.startswith("coder is stopped and stays so; llmgw model start coder starts it.\n")


def test_a_stopped_model_is_not_started_again(stopped):
    code, out, err = stopped.run("model", "restart", "coder")

    assert (code, out) == (Exit.REFUSED, "")
    assert err == (
        "error: coder is not started again\n"
        "  because it is stopped, so none of its replicas is ready\n"
        "  next: llmgw model start coder\n"
    )
    assert stopped.clean()


def test_counts_for_some_profiles_of_a_model_that_a_block_scales_are_refused(scaled):
    code, _, err = scaled.run("model", "replicas", "coder", "gpu=5")

    assert code == Exit.REFUSED
    assert err.startswith("error: coder is scaled, not counted\n")
    assert scaled.clean()


def test_counts_for_all_of_them_say_what_no_longer_scales_it(scaled):
    code, out, _ = scaled.run("model", "replicas", "coder", "gpu=5", "slow=1")

    assert code == Exit.DONE
    assert out.startswith("`blocks.small.scaling` of server.yaml no longer scales coder: it is counted from now on.\n")


def test_another_total_of_it_keeps_the_rest_of_what_the_block_says(scaled):
    code, out, _ = scaled.run("model", "scale", "coder", "2..6")

    assert code == Exit.DONE
    assert "+scaling: {min: 2, max: 6}" in "\n".join(scaled.changed())
    assert "taken out" not in out


@pytest.mark.parametrize("words", [("null",), ("--unset",)])
def test_what_is_inherited_is_not_taken_out_of_the_models_own_file(scaled, words):
    code, _, err = scaled.run("model", "set", "coder", "scaling", *words)

    assert code == Exit.REFUSED
    assert "it is from `blocks.small.scaling` of server.yaml" in err
    assert scaled.clean()


def test_what_counts_in_place_of_a_value_that_is_taken_out_is_said(scaled):
    scaled.run("model", "scale", "coder", "2..6")

    out = scaled.run("model", "set", "coder", "scaling", "--unset")[1]

    assert out.startswith("`blocks.small.scaling` of server.yaml counts in its place from then on.\n")


def test_a_cpu_profile_is_added_where_every_profile_is_read_with_a_card_and_an_engine(copy):
    bare = CODER[: CODER.index(b"  - name: slow")]
    for line in (
        b"    engine: llamacpp\n",
        b"    gpu: {class: l40s-48g, count: 1}\n",
        b'    args: [--jinja, -ngl, "99"]\n',
    ):
        bare = bare.replace(line, b"")
    every = b'defaults: {profile: {engine: llamacpp, gpu: {class: l40s-48g}, args: [--jinja, -ngl, "99"]}}\n'
    copy.git.commit({"server.yaml": SERVER + every, "catalog/coder.yaml": bare})

    code, _, err = copy.run("model", "replicas", "coder", "cpu=4", "--cpu-memory", "24")

    assert (code, err) == (Exit.DONE, "")
    assert copy.changed() == [
        "+  - name: cpu",
        "+    gpu: null",
        "+    args: [--jinja]",
        "+    replicas: 4",
        "+    priority: 90",
        "+    memory_gib: 24",
    ]
