"""What the fields do that act outside of the catalog: from a file to what is decided, ordered and shown."""

from __future__ import annotations

import json
import logging

import pytest
from catalog.written import GONE, MODEL, SERVER, as_yaml, changed
from dulwich import porcelain
from fleets import NOW, SETTLED, fleet, held, model, moves, node, wanting

from llmgw.actuators.orders import compose
from llmgw.catalog.check import read_fleet
from llmgw.catalog.model import Model
from llmgw.control.follow import Follower
from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.serving import table
from llmgw.core.wanted import judge
from llmgw.gateway import openai
from llmgw.sources.git import open_source
from llmgw_agent.protocol import Phase

PATH = changed(MODEL, (("source",), {"from": "/m.gguf"}), (("profiles",), MODEL["profiles"][1:]), (("name",), "m"))


def wanted(server=(), *models, last=None):
    """What a commit with a changed server.yaml and these models asks for."""
    files = {f"catalog/{n}.yaml": as_yaml(m) for n, m in enumerate(models)}
    catalog = read_fleet({"server.yaml": as_yaml(changed(SERVER, *server)), **files})
    return judge(catalog, commit="b" * 40, committed_at=5, last=last)


def test_a_stopped_fleet_stops_every_replica_and_keeps_everything_and_runs_again_without():
    running, asleep = wanted((), PATH), wanted(((("state",), "stopped"),), PATH)
    seen = fleet(running.models["m"].model, "n1", "n2", cpu=[Phase.READY])

    assert moves(decide(asleep, seen, SETTLED, NOW)) == ["-m/cpu/0"]
    assert moves(decide(running, seen, SETTLED, NOW)) == []
    # What is kept of the model does not say that it is stopped: the fleet is.
    assert asleep.models["m"].model == running.models["m"].model
    # It weighs on models that an earlier commit is kept of, too.
    broken = changed(PATH, (("context_length",), 0))
    again = wanted((), broken, last=wanted(((("state",), "stopped"),), broken, last=running))
    assert again.models["m"].frozen
    assert moves(decide(again, seen, SETTLED, NOW)) == []


def test_a_protected_model_is_not_removed_until_a_commit_has_taken_that_out():
    first = wanted((), changed(PATH, (("protect",), True)))

    kept = wanted((), changed(PATH, (("name",), "other"), (("aliases",), [])), last=first)

    assert sorted(kept.models) == ["m", "other"]
    assert kept.models["m"].frozen == (
        "not removed: it is protected; take `protect` out of its file in one commit, and remove it in the next"
    )
    freed = wanted((), PATH, changed(PATH, (("name",), "other"), (("aliases",), [])), last=kept)
    gone = wanted((), changed(PATH, (("name",), "other"), (("aliases",), [])), last=freed)
    assert sorted(gone.models) == ["other"]


def test_what_a_model_says_of_itself_is_in_the_model_list_and_an_unlisted_one_is_not():
    more = ((("tags",), ["code"]), (("license",), "MIT"), (("capabilities",), ["tools"]), (("replaced_by",), "hidden"))
    hidden = changed(PATH, (("name",), "hidden"), (("aliases",), []), (("unlisted",), True))
    asked, seen = wanted((), changed(PATH, *more), hidden), Observed((node("n1"), node("n2")))

    models = table(asked, seen, decide(asked, seen, SETTLED, NOW), NOW).models

    (entry,) = json.loads(openai.model_list(models))["data"]
    assert (entry["id"], entry["tags"], entry["license"], entry["replaced_by"]) == ("m", ["code"], "MIT", "hidden")
    assert entry["capabilities"] == ["chat", "completion", "tools"]
    assert json.loads(openai.model_entry(models[0], "hidden"))["id"] == "hidden"


KNOBS = {
    "gpu": {"class": "l40s-48g", "count": 2},
    "kv_type_k": "q8_0",
    "kv_type_v": "q4_0",
    "gpu_layers": 20,
    "tensor_split": [3, 1.5],
    "cpu_moe": 4,
    "flash_attention": "on",
    "mmap": False,
    "batch": 512,
    "args": ["--seed", "7"],
    "env": {"GGML_CUDA_FORCE_MMQ": "1"},
    "start_timeout": "auto",
}


def ordered(of: Model):
    """How a node is told to run the first replica."""
    asked, seen = wanting(of, nodes=["n1"]), Observed((node("n1"),))
    plan = decide(asked, seen, SETTLED, NOW)
    assert held(plan) == []
    return compose(asked, plan)[0]["n1"].replicas[0].spec


def test_the_knobs_of_a_profile_are_flags_before_its_own():
    profile = {**MODEL["profiles"][1], "cpu_cores": 1, **KNOBS}

    spec = ordered(model(profiles=[profile]))

    assert spec.args == (
        *("-ctk", "q8_0", "-ctv", "q4_0", "-ngl", "20", "-ts", "3,1.5", "--n-cpu-moe", "4", "-fa", "on"),
        *("-b", "512", "-ub", "512", "--no-mmap", "--seed", "7"),
    )
    assert (spec.env, spec.start_timeout_s) == ({"GGML_CUDA_FORCE_MMQ": "1"}, 600.0)


def test_a_profile_without_knobs_gives_the_engine_its_own_flags_alone():
    assert ordered(model(profiles=[{**MODEL["profiles"][1], "cpu_cores": 1, "args": ["--mlock"]}])).args == ("--mlock",)


def test_another_text_in_restart_starts_the_replicas_again_one_at_a_time():
    before, after = wanted((), PATH), wanted((), changed(PATH, (("profiles", 0, "restart"), "for the new driver")))
    seen = fleet(before.models["m"].model, "n1", "n2", cpu=[Phase.READY])

    assert moves(decide(before, seen, SETTLED, NOW)) == []
    assert moves(decide(after, seen, SETTLED, NOW)) == ["+m/cpu/1"]


def test_a_scaled_model_has_its_least_replicas_on_the_profile_that_is_filled_first():
    bounds = changed(
        MODEL, (("scaling",), {"min": 2, "max": 4}), *((("profiles", n, "replicas"), GONE) for n in (0, 1))
    )

    assert Model.model_validate(bounds, by_name=False).counts() == {"gpu": 2, "cpu": 0}


async def test_control_warns_once_of_a_planned_field(tmp_path, caplog):
    def put(text: bytes) -> None:
        (tmp_path / "catalog").mkdir(exist_ok=True)
        (tmp_path / "server.yaml").write_bytes(as_yaml(SERVER))
        (tmp_path / "catalog" / "m.yaml").write_bytes(text)

    def warned() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    porcelain.init(tmp_path).close()
    put(as_yaml(changed(PATH, (("routing",), {"retries": 1}))))
    follower = Follower(
        open_source(str(tmp_path), branch="main", state=tmp_path / "state", mode="worktree"),
        cluster="lab",
        local=True,
        last=None,
        running=list,
        held=dict,
        nodes=list,
        poll_s=1,
    )
    found: list = []

    await follower.look(found.append)
    put(as_yaml(changed(PATH, (("routing",), {"retries": 0}), (("description",), "other"))))
    await follower.look(found.append)

    assert (len(found), follower.trouble) == (2, "")
    assert len(warned()) == 1
    assert warned()[0].endswith("note: `routing` is planned: it is checked, and does not act yet")


@pytest.mark.parametrize("text", [b"", b"schema: [}"])
def test_a_server_yaml_that_is_broken_changes_no_model(text):
    first = wanted((), PATH)

    catalog = read_fleet({"server.yaml": text, "catalog/0.yaml": as_yaml(changed(PATH, (("owner",), "other")))})
    second = judge(catalog, commit="c" * 40, committed_at=6, last=first)

    assert second.models["m"].model == first.models["m"].model
    assert second.models["m"].frozen.startswith("stays as it was at bbbbbbbb: server.yaml:")
