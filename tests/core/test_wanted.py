"""What one commit asks for, once every file of it has been judged."""

import pytest
from fleets import model, wanting

from llmgw.catalog.check import read_fleet
from llmgw.catalog.lock import Lock, write
from llmgw.core.wanted import allowed_removals, judge, purged_names

SERVER = b"schema: 1\ncluster: lab\nnodes: [{name: n1, address: 10.0.0.1}]\nmirror: {base: 'http://10.0.0.2:1', api: 'http://10.0.0.2:2'}\n"
MODEL = """name: {name}
context_length: 4096
source: {{from: "https://hub.example/{file}", version: "{version}"}}
profiles: [{{name: cpu, engine: llamacpp, replicas: {n}, memory_gib: 1}}]
"""


def one(name, n=1, *, file="m.gguf", version="1"):
    return MODEL.format(name=name, n=n, file=file, version=version).encode()


def commit(files, *, last=None, server=SERVER, **more):
    """What a commit with these files asks for."""
    named = {f"catalog/{path}.yaml": data for path, data in files.items()}
    found = read_fleet({"server.yaml": server, **named} if server else named)
    return judge(found, commit=more.pop("id", "b" * 40), committed_at=5, last=last, **more)


def counts(wanted):
    return {name: w.model.profiles[0].replicas for name, w in wanted.models.items()}


def test_every_good_file_is_wanted_as_it_is_written():
    wanted = commit({"a": one("a", 1), "b": one("b", 2)})

    assert counts(wanted) == {"a": 1, "b": 2}
    assert {w.commit for w in wanted.models.values()} == {"b" * 40}
    assert wanted.complete


def test_a_model_that_did_not_change_keeps_the_commit_that_changed_it():
    first = commit({"a": one("a"), "b": one("b")}, id="1" * 40)
    second = commit({"a": one("a"), "b": one("b", 2)}, last=first, id="2" * 40)

    assert {n: w.commit[0] for n, w in second.models.items()} == {"a": "1", "b": "2"}


def test_vo7_a_broken_file_freezes_its_own_model_and_no_other():
    first = commit({"a": one("a", 1), "b": one("b", 1)}, id="1" * 40)
    second = commit({"a": one("a", 3) + b"replicsa: 1\n", "b": one("b", 2)}, last=first, id="2" * 40)

    assert counts(second) == {"a": 1, "b": 2}
    assert second.models["a"].frozen.startswith("stays as it was at 11111111: catalog/a.yaml:5:1: ")
    assert second.models["b"].frozen == ""


def test_of_two_broken_files_each_model_is_said_to_be_kept_for_its_own():
    first = commit({"a": one("a"), "b": one("b")}, id="1" * 40)
    second = commit({n: one(n) + b"replicsa: 1\n" for n in "ab"}, last=first)

    assert {n: m.frozen.split(": ")[1].split(":")[0] for n, m in second.models.items()} == {
        "a": "catalog/a.yaml",
        "b": "catalog/b.yaml",
    }


def test_a_file_that_cannot_be_read_keeps_every_model_that_is_absent():
    # What it holds cannot be told: it may be the file that asks for the model whose own is gone.
    first = commit({"a": one("a"), "b": one("b")}, id="1" * 40)
    second = commit({"a": b"{ this is : : no yaml"}, last=first)

    assert counts(second) == {"a": 1, "b": 1}
    assert second.models["b"].frozen == "not removed while catalog/a.yaml cannot be read"
    assert not second.complete


def test_a_broken_file_of_keys_keeps_the_keys_it_had_and_a_removed_one_does_not():
    def keyed(data, last=None):
        files = {"server.yaml": SERVER} | ({"keys/ana.yaml": data} if data else {})
        return judge(read_fleet(files), commit="b" * 40, committed_at=5, last=last)

    good = keyed(b"name: ana\nsha256: " + b"a" * 64)
    broken = keyed(b"name: ana\nsha256: short\n", last=good)
    removed = keyed(None, last=broken)

    assert [k.key.name for k in good.keys] == [k.key.name for k in broken.keys] == ["ana"]
    assert removed.keys == ()


def test_a_broken_server_yaml_keeps_the_last_good_one():
    first = commit({"a": one("a")})
    second = commit({"a": one("a", 2)}, last=first, server=b"schema: 1\nclutser: lab\n")

    assert second.server == first.server
    assert counts(second) == {"a": 2}
    assert {p.path for p in second.problems} == {"server.yaml"}


def test_without_any_good_server_yaml_nothing_is_wanted():
    assert commit({"a": one("a")}, server=None) is None


def test_a_name_claimed_twice_leaves_the_one_that_runs():
    first = commit({"a": one("a", 1)})
    second = commit({"a": one("a", 1), "b": one("a", 7)}, last=first)

    assert counts(second) == {"a": 1}
    assert second.models["a"].frozen


def test_the_same_files_from_another_place_are_no_problem():
    digest = "a" * 64
    pinned = [
        one("a", file=f).replace(b"}\n", f', sha256: "{digest}"}}\n'.encode(), 1) for f in ("old.gguf", "new.gguf")
    ]
    first = commit({"a": pinned[0]})

    assert commit({"a": pinned[1]}, last=first, held={"a/1": ()}).models["a"].frozen == ""


def test_other_files_under_a_version_that_is_held_are_a_problem_and_under_a_new_one_are_not():
    first = commit({"a": one("a", file="old.gguf")}, id="1" * 40)
    same = commit({"a": one("a", file="new.gguf")}, last=first, held={"a/1": ()})
    new = commit({"a": one("a", file="new.gguf", version="2")}, last=first, held={"a/1": ()})
    not_held = commit({"a": one("a", file="new.gguf")}, last=first, held={})

    assert same.models["a"].model.source.from_.endswith("old.gguf")
    assert same.models["a"].frozen == (
        "stays as it was at 11111111: its source changed and its version 1 did not, which the mirror holds already; "
        "give the new files a new version"
    )
    assert new.models["a"].model.source.version == "2"
    assert not_held.models["a"].model.source.from_.endswith("new.gguf")


@pytest.mark.parametrize(
    ("there", "left", "held"), [(4, 1, False), (4, 0, True), (5, 1, True), (40, 30, False), (40, 29, True)]
)
def test_a_commit_may_remove_three_models_or_a_quarter_and_never_all(there, left, held):
    first = commit({f"m{i}": one(f"m{i}") for i in range(there)})
    second = commit({f"m{i}": one(f"m{i}") for i in range(left)}, last=first)

    assert len(second.models) == (there if held else left)
    assert bool(second.held) is held
    assert second.complete is not held


def test_a_held_removal_says_the_line_that_lifts_it_and_the_line_lifts_it():
    first = commit({f"m{i}": one(f"m{i}") for i in range(5)})
    held = commit({}, last=first)
    lifted = commit({}, last=first, allowed_removals=allowed_removals([("llmgw-allow-removals", "5")]))

    assert held.held == (
        "commit bbbbbbbb would remove 5 of 5 models (m0, m1, m2, m3, m4) and its catalog is empty; "
        "to remove them, push a commit with the line `Llmgw-Allow-Removals: 5` at its end",
    )
    assert lifted.models == {}
    assert lifted.held == ()


def test_the_guard_is_the_last_applied_commits_and_not_the_one_judged():
    first = commit({f"m{i}": one(f"m{i}") for i in range(5)}, server=SERVER + b"policy: {max_removals: 1}\n")
    second = commit({"m0": one("m0")}, last=first, server=SERVER + b"policy: {max_removals: 100}\n")

    assert second.held


def test_a_held_commits_own_policy_does_not_lift_the_guard_in_the_next_one():
    first = commit({f"m{i}": one(f"m{i}") for i in range(5)}, id="1" * 40)
    held = commit({"m0": one("m0")}, last=first, server=SERVER + b"policy: {max_removals: 100}\n", id="2" * 40)
    again = commit({"m0": one("m0", 2)}, last=held, server=SERVER + b"policy: {max_removals: 100}\n", id="3" * 40)

    assert again.held
    assert (held.applied, again.applied) == ("1" * 40, "1" * 40), "a line that lifts it counts from the first on"


def test_what_runs_counts_as_there_though_no_status_says_so():
    # The status branch was deleted; the catalog is emptied in the same hour.
    emptied = commit({}, last=None, running=["a", "b"])

    assert emptied.held
    assert not emptied.complete


def test_the_fleets_of_these_tests_are_judged_like_any_other():
    assert list(wanting(model(cpu=1)).models) == ["m"]


def test_a_lock_that_changed_under_the_version_that_is_held_is_not_carried_out():
    def locked(sum_):
        lock = Lock.model_validate(
            {
                "model": "a",
                "source": {"from": "https://hub.example/m.gguf", "version": "1"},
                "files": [{"path": "m.gguf", "sha256": sum_}],
            }
        )
        return read_fleet({"server.yaml": SERVER, "catalog/a.yaml": one("a"), "locks/a.yaml": write(lock)})

    first = judge(locked("a" * 64), commit="1" * 40, committed_at=5, last=None)
    second = judge(locked("b" * 64), commit="2" * 40, committed_at=6, last=first, held={"a/1": ()})
    fresh = judge(locked("b" * 64), commit="2" * 40, committed_at=6, last=first)

    assert second.models["a"].frozen.endswith("give the new files a new version")
    assert second.models["a"].lock.files[0].sha256 == "a" * 64
    assert fresh.models["a"].frozen == ""


def test_a_purge_is_remembered_until_its_model_is_back():
    first = commit({"a": one("a"), "b": one("b")})
    second = commit({"b": one("b")}, last=first, purged=purged_names([("llmgw-purge", " a "), ("Other", "b")]))
    third = commit({"b": one("b", 2)}, last=second)
    back = commit({"a": one("a"), "b": one("b")}, last=third)

    assert [set(w.purged) for w in (first, second, third, back)] == [set(), {"a"}, {"a"}, set()]


@pytest.mark.parametrize(("state", "stopped"), [("", False), ("state: running\n", False), ("state: stopped\n", True)])
def test_a_stopped_fleet_stops_every_model_and_changes_none(state, stopped):
    wanted = commit({"a": one("a", 3)}, server=SERVER + state.encode())

    assert wanted.models["a"].stopped is stopped
    assert wanted.models["a"].model.state == "running"
    assert counts(wanted) == {"a": 3}
