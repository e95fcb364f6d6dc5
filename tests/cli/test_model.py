"""`llmgw model replicas, scale, start, stop, restart, remove`: every rule of them, on a real repository."""

from __future__ import annotations

import json
import re

import pytest
from cli.conftest import CODER

from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git


def test_a_count_is_changed_and_nothing_else_of_the_file_is(copy):
    code, out, err = copy.run("model", "replicas", "coder", "gpu=7")

    assert (code, err) == (Exit.DONE, "")
    assert copy.changed() == ["-    replicas: 2        # one a node", "+    replicas: 7        # one a node"]
    assert out == (
        "--- a/catalog/coder.yaml\n"
        "+++ b/catalog/coder.yaml\n"
        "@@ -8,7 +8,7 @@\n"
        "     engine: llamacpp\n"
        "     gpu: {class: l40s-48g, count: 1}\n"
        '     args: [--jinja, -ngl, "99"]\n'
        "-    replicas: 2        # one a node\n"
        "+    replicas: 7        # one a node\n"
        "     memory_gib: 1\n"
        "     cpu_cores: 1\n"
        "   - name: slow\n"
        "\n"
        f"{plan_of(out)}\n"
        "written and not committed: git commit -m 'coder: replicas gpu 7' -- catalog/coder.yaml\n"
    )
    assert "~ coder  gpu 2 to 7, slow 1" in plan_of(out)


def plan_of(out):
    """The part of the output that is the plan."""
    return out[out.index("llmgw plan") : out.index("\nwritten and not")]


def test_the_plan_is_of_the_fleet_as_it_was_seen(copy):
    copy.see(gpu=["ready", "ready"], slow=["ready"])

    code, out, _ = copy.run("model", "replicas", "coder", "gpu=1", "slow=2")

    assert code == Exit.DONE
    assert "seen: status branch " in out
    assert "start   coder/slow/1 on " in out
    assert "stop    coder/gpu/1 on " in out


def test_an_alias_names_the_model_too(copy):
    assert copy.run("model", "replicas", "code", "slow=3")[0] == Exit.DONE

    assert copy.changed() == ["-    replicas: 1", "+    replicas: 3"]


def test_an_unknown_model_is_refused_with_the_nearest(copy):
    code, out, err = copy.run("model", "stop", "codr")

    assert (code, out) == (Exit.REFUSED, "")
    assert err == ("error: there is no model codr\n  because the models are code, coder\n  next: did you mean coder?\n")
    assert copy.clean()


def test_an_unknown_profile_is_refused_with_the_nearest(copy):
    code, _, err = copy.run("model", "replicas", "coder", "gpus=3")

    assert code == Exit.REFUSED
    assert err == (
        "error: coder has no profile gpus\n  because the profiles are gpu, slow\n  next: did you mean gpu?\n"
    )
    assert copy.clean()


def test_counts_that_make_none_are_refused(copy):
    code, _, err = copy.run("model", "replicas", "coder", "gpu=0", "slow=0")

    assert code == Exit.REFUSED
    assert err.endswith("next: llmgw model stop coder keeps it without\n")
    assert copy.clean()


def test_one_count_of_none_leaves_the_others_as_they_are(copy):
    assert copy.run("model", "replicas", "coder", "gpu=0")[0] == Exit.DONE

    assert copy.changed() == ["-    replicas: 2        # one a node", "+    replicas: 0        # one a node"]


@pytest.mark.parametrize("word", ["gpu", "gpu=", "gpu=-1", "gpu=many", "=3"])
def test_what_is_no_count_is_wrong_usage(copy, word):
    assert copy.run("model", "replicas", "coder", word)[0] == Exit.USAGE
    assert copy.clean()


def test_counts_of_a_stopped_model_do_not_start_it_and_say_so(copy):
    copy.run("model", "stop", "coder", "--commit")

    _, out, _ = copy.run("model", "replicas", "coder", "gpu=5")

    assert out.startswith("coder is stopped and stays so; llmgw model start coder starts it.\n")
    assert "state: stopped" in copy.text()


@pytest.fixture
def cards_only(copy):
    """The coder without its profile for CPUs."""
    copy.git.commit({"catalog/coder.yaml": CODER[: CODER.index(b"  - name: slow")]})
    return copy


def test_cpus_of_a_gguf_model_without_a_cpu_profile_add_one(cards_only):
    words = ("model", "replicas", "coder", "cpu=4", "--cpu-memory", "24", "--cpu-cores", "8")

    code, out, _ = cards_only.run(*words)

    assert code == Exit.DONE
    assert out.startswith("The profile cpu is added: coder had none for CPUs.\n")
    assert cards_only.changed() == [
        "+  - name: cpu",
        "+    engine: llamacpp",
        "+    args: [--jinja]",
        "+    replicas: 4",
        "+    priority: 90",
        "+    memory_gib: 24",
        "+    cpu_cores: 8",
    ]


def test_without_a_memory_for_it_a_cpu_profile_is_not_added(cards_only):
    code, _, err = cards_only.run("model", "replicas", "coder", "cpu=4")

    assert code == Exit.REFUSED
    assert err.endswith("next: say it: llmgw model replicas coder cpu=4 --cpu-memory GIB\n")
    assert cards_only.clean()


def test_a_second_cpu_profile_is_not_added(copy):
    code, _, err = copy.run("model", "replicas", "coder", "cpu=4", "--cpu-memory", "24")

    assert code == Exit.REFUSED
    assert "coder has no profile cpu" in err


def test_a_cpu_profile_is_not_added_where_llama_cpp_does_not_serve(cards_only):
    vllm = cards_only.text().replace("llamacpp", "vllm").replace('[--jinja, -ngl, "99"]', "[]")
    cards_only.git.commit({"catalog/coder.yaml": vllm.encode()})

    code, _, err = cards_only.run("model", "replicas", "coder", "cpu=4", "--cpu-memory", "24")

    assert code == Exit.REFUSED
    assert "llama.cpp is what serves on CPUs, and it does not serve this model" in err
    assert cards_only.clean()


def test_stopping_says_what_it_does_before_the_diff(copy):
    code, out, _ = copy.run("model", "stop", "coder")

    assert code == Exit.DONE
    assert out.split("\n\n")[0] == (
        "Stopping coder ends its 2 gpu and 1 slow replicas once they have answered what they are answering, and "
        "refuses new requests; its counts and files stay, and `llmgw model start coder` brings it back."
    )
    assert copy.changed() == ["+state: stopped"]


def test_of_one_replica_the_sentence_is_of_one(copy):
    copy.run("model", "replicas", "coder", "gpu=0")

    assert copy.run("model", "stop", "coder")[1].startswith(
        "Stopping coder ends its 1 slow replica once it has answered what it is answering, and refuses new requests;"
    )


@pytest.mark.parametrize("memory", ["nan", "inf", "0", "-3"])
def test_what_is_no_memory_is_wrong_usage(cards_only, memory):
    assert cards_only.run("model", "replicas", "coder", "cpu=4", f"--cpu-memory={memory}")[0] == Exit.USAGE
    assert cards_only.clean()


def test_a_model_that_was_stopped_and_started_is_as_it_was(copy):
    copy.run("model", "stop", "coder")

    code, out, _ = copy.run("model", "start", "coder")

    assert code == Exit.DONE
    assert "-state: stopped" in out
    assert copy.clean()


def test_a_comment_beside_the_state_outlives_a_start(copy):
    copy.git.commit({"catalog/coder.yaml": CODER + b"state: stopped   # or running\n"})

    copy.run("model", "start", "coder")

    assert copy.changed() == ["-state: stopped   # or running", "+state: running   # or running"]


def test_starting_what_runs_changes_nothing(copy):
    assert copy.run("model", "start", "coder") == (Exit.DONE, "Nothing is changed: it is so already.\n", "")


def test_removing_takes_the_file_and_the_lock_and_says_what_goes(copy):
    copy.from_a_hub()

    code, out, _ = copy.run("model", "remove", "coder", "--commit")

    assert code == Exit.HELD
    assert out.startswith(
        "Removing coder ends its 2 gpu and 1 slow replicas, and requests for coder or code are refused; what nothing "
        "else uses of its files is freed 14d later; a revert until then fetches nothing.\n"
    )
    assert "push a commit with the line `Llmgw-Allow-Removals: 1` at its end" in out
    assert copy.git("ls-files") == "server.yaml"


def test_files_that_are_on_the_nodes_are_not_touched_by_a_removal(copy):
    out = copy.run("model", "remove", "coder")[1]

    assert out.startswith(
        "Removing coder ends its 2 gpu and 1 slow replicas, and requests for coder or code are refused; its files are "
        "on the nodes, and are not touched.\n"
    )


def test_removing_one_of_several_leaves_the_others(copy):
    other = CODER.replace(b"name: coder", b"name: other").replace(b"aliases: [code]\n", b"")
    both = b"".join(b"- " + one.split(b"\n", 1)[1].replace(b"\n", b"\n  ").rstrip() + b"\n" for one in (CODER, other))
    copy.git.commit({"catalog/coder.yaml": both})

    assert copy.run("model", "remove", "coder")[0] == Exit.DONE

    assert copy.text() == both[both.index(b"- name: other") :].decode()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("changed", "it has changes that are in no commit, and nothing would bring them back"),
        ("new", "it is in no commit, and nothing would bring it back"),
    ],
)
def test_what_nothing_would_bring_back_is_not_removed(copy, how, why):
    copy.git.write({"catalog/coder.yaml": CODER + b"# mine\n"})
    if how == "new":
        copy.git("rm", "-q", "--cached", "catalog/coder.yaml")
        copy.git("commit", "-q", "-m", "not here")

    code, _, err = copy.run("model", "remove", "coder")

    assert code == Exit.REFUSED
    assert err == (
        f"error: catalog/coder.yaml was not removed\n  because {why}\n"
        "  next: keep it first: git add catalog/coder.yaml && git commit -- catalog/coder.yaml\n"
    )
    assert copy.text().endswith("# mine\n")


def test_of_files_that_nobody_has_fetched_nothing_is_promised(copy):
    copy.from_a_hub()
    copy.git("rm", "-q", "locks/coder.yaml")
    copy.git("commit", "-q", "-m", "not locked")

    out = copy.run("model", "remove", "coder")[1]

    assert out.splitlines()[0].endswith("what nothing else uses of its files is freed 14d later.")


def test_a_comment_that_goes_with_a_count_is_said(copy):
    out = copy.run("model", "scale", "coder", "2..6")[1]

    assert out.splitlines()[1] == "A comment goes with what is taken out: # one a node"


def test_purging_frees_the_files_by_a_line_of_the_commit(copy):
    copy.from_a_hub()

    out = copy.run("model", "remove", "coder", "--purge", "--commit")[1]

    assert "its files is freed as soon as they have ended, and bringing it back fetches them again.\n" in out
    assert copy.git("log", "-1", "--format=%B") == "coder: removed\n\nLlmgw-Purge: coder"


def test_a_protected_model_is_not_removed(copy):
    (copy.root / "catalog/coder.yaml").write_bytes(CODER + b"protect: true\n")

    code, _, err = copy.run("model", "remove", "coder")

    assert code == Exit.REFUSED
    assert err.endswith("next: take that out first: llmgw model set coder protect false\n")
    assert (copy.root / "catalog/coder.yaml").exists()


def test_a_restart_with_none_ready_says_so_and_writes_nothing(copy):
    copy.see(gpu=["starting", "failed"], slow=["failed"])

    code, out, err = copy.run("model", "restart", "coder")

    assert (code, out) == (Exit.REFUSED, "")
    assert err == (
        "error: coder is not started again\n"
        "  because none of its replicas of gpu, slow is ready, so there is none to start again\n"
        "  next: llmgw status coder says why\n"
    )
    assert copy.clean()


def test_a_restart_writes_the_time_into_each_profile_and_says_what_starts_again(copy):
    copy.see(gpu=["ready", "starting"], slow=["ready"])

    code, out, _ = copy.run("model", "restart", "coder")

    assert code == Exit.DONE
    assert out.startswith(
        "Restarting coder starts its 2 ready replicas of gpu, slow again, one at a time: a new one is ready before an "
        "old one ends where there is room for both.\n"
    )
    assert [re.sub(r"\d", "0", line) for line in copy.changed()] == ["+    restart: 0000-00-00T00:00:00Z"] * 2
    assert "profiles.gpu.restart" in out


def test_a_restart_of_one_profile_leaves_the_others(copy):
    copy.see(gpu=["failed"], slow=["ready"])

    assert copy.run("model", "restart", "coder", "gpu")[0] == Exit.REFUSED
    assert copy.run("model", "restart", "coder", "slow")[0] == Exit.DONE

    assert len(copy.changed()) == 1


def test_of_a_fleet_that_nothing_is_known_of_a_restart_is_written(copy):
    code, out, _ = copy.run("model", "restart", "coder", "slow")

    assert code == Exit.DONE
    assert out.startswith("Restarting coder starts its replicas of slow again, one at a time")


def test_another_total_takes_the_counts_out_in_the_same_edit(copy):
    code, out, err = copy.run("model", "scale", "coder", "2..6")

    assert (code, err) == (Exit.DONE, "")
    assert out.startswith(
        "The counts of its profiles are taken out (gpu 2, slow 1): their share is chosen from now on.\n"
    )
    assert copy.changed() == [
        "-    replicas: 2        # one a node",
        "-    replicas: 1",
        "+scaling: {min: 2, max: 6}",
    ]


def test_the_total_of_the_counts_changes_nothing(copy):
    code, out, _ = copy.run("model", "scale", "coder", "3")

    assert code == Exit.DONE
    assert out == "Its counts make 3 already, and stay: gpu 2, slow 1.\nNothing is changed: it is so already.\n"


def test_scaling_a_stopped_model_starts_it(copy):
    copy.run("model", "stop", "coder", "--commit")

    code, out, _ = copy.run("model", "scale", "coder", "3")

    assert code == Exit.DONE
    assert out.startswith("coder was stopped, and starts.\n")
    assert copy.changed() == ["-state: stopped"]


@pytest.mark.parametrize(
    ("total", "code"), [("0", Exit.REFUSED), ("4..2", Exit.USAGE), ("many", Exit.USAGE), ("..3", Exit.USAGE)]
)
def test_what_is_no_total_is_refused(copy, total, code):
    assert copy.run("model", "scale", "coder", total)[0] == code
    assert copy.clean()


def test_what_is_done_is_one_value_for_programs(copy):
    code, out, _ = copy.run("model", "stop", "coder", "--json")

    done = json.loads(out)
    assert code == Exit.DONE
    assert done["files"] == ["catalog/coder.yaml"]
    assert done["said"][0].startswith("Stopping coder ends")
    assert "+state: stopped" in done["diff"]
    assert [m["name"] for m in done["plan"]["models"]] == ["coder"]
    assert (done["commit"], done["branch"], done["pushed"]) == ("", "", "")


def test_more_than_the_fleet_has_room_for_is_written_and_exits_with_5(copy):
    copy.see(gpu=["ready", "ready"], slow=["ready"])

    code, out, _ = copy.run("model", "replicas", "coder", "gpu=70")

    assert code == Exit.HELD
    assert "held " in out
    assert copy.changed() != []
