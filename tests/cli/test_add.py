"""`llmgw model add`: a file, its lock and its place, on a real repository and against a hub."""

from __future__ import annotations

import json
from hashlib import sha256

import fleets
import pytest
from msgspec import structs

from fakes.gguf_bytes import LLAMA, gguf_header, safetensors_header
from fakes.hub import TOKEN, Answer, Sized
from fakes.upstream import Upstream
from llmgw.catalog.check import read_lock, read_models
from llmgw.cli.main import run
from llmgw.core.decide import decide
from llmgw.core.observed import Observed
from llmgw.core.status import status
from llmgw.core.wanted import judge
from llmgw.errors import Exit
from llmgw.sources.reading import catalog_of
from llmgw.sources.status_branch import StatusBranch
from llmgw.sources.status_files import to_files
from llmgw.sources.worktree import WorktreeSource
from llmgw.units import GIB
from llmgw_agent.protocol import Card, InstalledEngine

pytestmark = pytest.mark.needs_git

REPO = "org/Tiny-Chat-GGUF"
SERVER = b"""\
schema: 1
cluster: lab
nodes:
  - {name: n1, address: 10.0.0.5}
  - {name: n2, address: 10.0.0.6}
mirror: {base: "http://10.0.0.2:8081", api: "http://10.0.0.2:8082"}
"""
BIG = {
    **LLAMA,
    "llama.block_count": 32,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.vocab_size": 128256,
}
"""The hyper-parameters of a Llama of eight thousand million weights."""
SMALL, EIGHT_B = Sized(gguf_header(), 300_000_000), Sized(gguf_header(BIG), 4_900_000_000)
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
).encode()
CPU_ONLY = (InstalledEngine("llamacpp", "b11549", accelerators=("cpu",)),)


@pytest.fixture
def desk(copy, hub, monkeypatch):
    """A working copy of a fleet with a mirror, and a hub to add from."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    copy.git("rm", "-q", "catalog/coder.yaml")
    copy.git.commit({"server.yaml": SERVER}, "a fleet")
    return copy


@pytest.fixture
def seen(desk):
    """Writes a status branch of nodes that run nothing."""

    def write(*nodes) -> None:
        wanted = judge(catalog_of(WorktreeSource(desk.root).poll()), commit="c" * 40, committed_at=0, last=None)
        now = Observed(tuple(nodes))
        plan = decide(wanted, now, fleets.SETTLED, fleets.NOW)
        branch = StatusBranch(str(desk.root), "lab", desk.root / ".git")
        files = to_files(status(wanted, now, plan, fleets.NOW), wanted, version="0.1.0")
        branch.write(files, subject="as it is", author="llmgw <llmgw@lab>", now=fleets.NOW)
        branch.close()

    return write


def small_card(n: int):
    """One of 24 GB, of another class."""
    return Card(f"GPU-s{n}", "NVIDIA GeForce RTX 4090", "nvidia", "rtx4090-24g", 24 * GIB, 0, "8.9")


def model(desk, name: str):
    path = f"catalog/{name}.yaml"
    (entry,) = read_models(path, desk.text(path).encode()).models
    return entry.model


def lock(desk, name: str):
    return read_lock(f"locks/{name}.yaml", desk.text(f"locks/{name}.yaml").encode()).entry.lock


def test_a_model_gets_a_file_and_a_lock_and_says_what_it_runs_as(desk, seen, hub):
    commit = hub.put(REPO, {"tiny-chat-q4_k_m.gguf": SMALL, "README.md": b"1"}, license="apache-2.0")
    seen(fleets.node("n1", cards=2), fleets.node("n2", cards=0))

    code, out, err = desk.run("model", "add", REPO, "--description", "Answers: quickly.")

    assert (code, err) == (Exit.DONE, "")
    assert out.startswith(
        "tiny-chat will run 1 replica on llama.cpp on one l40s-48g (2 free), with a context of 8192 tokens, "
    )
    text = desk.text("catalog/tiny-chat.yaml")
    digest = lock(desk, "tiny-chat").files[0].sha256
    assert text.splitlines()[1:8] == [
        "name: tiny-chat",
        'description: "Answers: quickly."',
        "license: apache-2.0",
        "source:",
        f'  from: "hf://{REPO}@{commit}/tiny-chat-q4_k_m.gguf"',
        f"  version: {commit[:12]}" if not commit[:12].isdigit() else f'  version: "{commit[:12]}"',
        f"  sha256: {digest}",
    ]
    (profile,) = model(desk, "tiny-chat").profiles
    assert (profile.name, profile.engine, profile.gpu.class_, profile.gpu.count) == ("gpu", "llamacpp", "l40s-48g", 1)
    for field in ("gpu", "memory_gib", "cpu_cores"):
        assert any(f"{field}: " in line and "# an estimate" in line for line in text.splitlines()), field
    assert (lock(desk, "tiny-chat").commit, len(lock(desk, "tiny-chat").files)) == (commit, 1)
    assert "+ tiny-chat  gpu 0 to 1" in out
    assert desk.run("lock", "--check")[0] == Exit.DONE
    assert run(["validate", str(desk.root)]) == Exit.DONE


def test_with_commit_both_files_are_in_one_commit(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})

    code, _, err = desk.run("model", "add", REPO, "--name", "m", "--branch", "add-m")

    assert (code, err) == (Exit.DONE, "")
    assert desk.git("log", "-1", "--format=%s").strip() == "m: added"
    assert desk.git("show", "--format=", "--name-only").split() == ["catalog/m.yaml", "locks/m.yaml"]
    assert desk.clean()


def test_a_commit_that_is_refused_leaves_nothing(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    hook = desk.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not on a Friday >&2\nexit 1\n")
    hook.chmod(0o755)

    code, _, err = desk.run("model", "add", REPO, "--name", "m", "--branch", "add-m")

    assert code == Exit.REFUSED
    assert "not on a Friday" in err
    assert desk.clean()
    assert desk.git("branch", "--list", "add-m") == ""


def test_with_nothing_known_of_the_fleet_it_is_placed_on_cpus_and_that_is_said(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})

    code, out, _ = desk.run("model", "add", f"hf://{REPO}", "--name", "m")

    assert code == Exit.DONE
    assert "Nothing is known of the fleet" in out
    (profile,) = model(desk, "m").profiles
    assert (profile.name, profile.gpu) == ("cpu", None)
    assert profile.memory_gib > 0.3


def test_programs_get_one_value(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})

    code, out, _ = desk.run("model", "add", REPO, "--name", "m", "--json")

    assert code == Exit.DONE
    assert json.loads(out)["files"] == ["catalog/m.yaml", "locks/m.yaml"]


def test_the_freest_class_that_holds_it_is_chosen(desk, seen, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    seen(fleets.node("n1", cards=1), fleets.node("n2", cards=[small_card(n) for n in range(3)]))

    desk.run("model", "add", REPO, "--name", "m")

    assert model(desk, "m").profiles[0].gpu.class_ == "rtx4090-24g"


def test_a_class_with_room_for_all_of_the_context_comes_before_a_freer_one_without(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 16_000_000_000)})
    seen(fleets.node("n1", cards=1), fleets.node("n2", cards=[small_card(n) for n in range(3)]))

    desk.run("model", "add", REPO, "--name", "m")

    made = model(desk, "m")
    assert (made.profiles[0].gpu.class_, made.context_length) == ("l40s-48g", 131072)


def test_a_card_that_runs_something_is_not_free(desk, seen, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    other = fleets.model("other", gpu=1)
    busy = [fleets.replica(f"other/gpu/{n}", other, devices=(f"GPU-{n}",)) for n in range(3)]
    seen(fleets.node("n1", *busy, cards=3), fleets.node("n2", cards=[small_card(0)]))

    desk.run("model", "add", REPO, "--name", "m")

    assert model(desk, "m").profiles[0].gpu.class_ == "rtx4090-24g"


def test_the_context_is_lowered_to_what_the_card_holds_and_that_is_said(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 16_000_000_000)})
    seen(fleets.node("n1", cards=[small_card(0)]), fleets.node("n2", cards=0))

    code, out, _ = desk.run("model", "add", REPO, "--name", "m")

    tokens = model(desk, "m").context_length
    assert code == Exit.DONE
    assert 4096 < tokens < 131072
    assert f"The context is lowered from 131072 to {tokens} tokens: that is what one rtx4090-24g has room for." in out
    assert f"context_length: {tokens}   # an estimate: " in desk.text("catalog/m.yaml")


def test_a_context_that_is_asked_for_and_does_not_fit_is_refused_with_the_largest_that_does(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 16_000_000_000)})
    seen(fleets.node("n1", cards=[small_card(0)]), fleets.node("n2", cards=0))

    code, _, err = desk.run("model", "add", REPO, "--name", "m", "--context", "131072")

    assert code == Exit.REFUSED
    assert "m was not added with a context of 131072 tokens\n  because one rtx4090-24g has room for " in err
    largest = err.split("--context ")[1].split(",")[0]
    assert desk.clean()
    assert desk.run("model", "add", REPO, "--name", "m", "--context", largest)[0] == Exit.DONE


def test_what_one_card_does_not_hold_is_laid_over_several(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 60_000_000_000)})
    seen(fleets.node("n1", cards=4), fleets.node("n2", cards=0))

    desk.run("model", "add", REPO, "--name", "m")

    assert model(desk, "m").profiles[0].gpu.count == 2


def test_without_a_free_card_it_is_placed_on_cpus(desk, seen, hub):
    hub.put(REPO, {"m.gguf": EIGHT_B})
    seen(fleets.node("n1", cards=0), fleets.node("n2", cards=0, cores=32, memory_gib=512))

    code, out, _ = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.DONE
    assert "It is on CPUs since no node that reports has a card." in out
    assert model(desk, "m").profiles[0].cpu_cores == 16


def test_silent_nodes_offer_nothing(desk, seen, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    seen(fleets.node("n1", cards=2, age_s=10_000), fleets.node("n2", cards=2, age_s=10_000))

    assert "No node of the fleet reports, so it is placed on CPUs." in desk.run("model", "add", REPO, "--name", "m")[1]


def test_a_drained_node_offers_nothing(desk, seen, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    desk.git.commit({"server.yaml": SERVER.replace(b"10.0.0.5}", b"10.0.0.5, drained: true}")}, "drained")
    seen(fleets.node("n1", cards=8), fleets.node("n2", cards=[small_card(0)]))

    desk.run("model", "add", REPO, "--name", "m")

    assert model(desk, "m").profiles[0].gpu.class_ == "rtx4090-24g"


def test_cards_that_would_hold_it_are_not_left_idle_for_cpus(desk, seen, hub):
    hub.put(REPO, {"m.gguf": EIGHT_B})
    seen(fleets.node("n1", cards=2, engines=CPU_ONLY), fleets.node("n2", cards=0))

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.REFUSED
    assert "m was not added to CPUs\n  because 2 l40s-48g are free and would hold it at ~" in err
    assert "CPUs would give ~" in err
    assert "--cpu" in err
    assert desk.clean()

    code, out, _ = desk.run("model", "add", REPO, "--name", "m", "--cpu")

    assert code == Exit.DONE
    assert "Warning: 2 l40s-48g are free" in out
    assert model(desk, "m").profiles[0].gpu is None


def test_what_no_node_has_room_for_is_refused(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 60_000_000_000)})
    seen(fleets.node("n1", cards=0, memory_gib=16), fleets.node("n2", cards=0, memory_gib=32))

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.REFUSED
    assert "the most memory that is free is 32.0 GiB of n2" in err


def test_several_alternatives_are_listed(desk, hub):
    hub.put(REPO, {"m-q4_k_m.gguf": SMALL, "m-q8_0.gguf": SMALL, "m-q2_k.gguf": SMALL})

    code, _, err = desk.run("model", "add", REPO)

    assert code == Exit.REFUSED
    assert "each of these is one: m-q2_k.gguf, m-q4_k_m.gguf, m-q8_0.gguf" in err
    assert f"next: name one: llmgw model add {REPO}/m-q4_k_m.gguf" in err


@pytest.mark.parametrize("word", ["m-q8_0.gguf", "q8_0"])
def test_one_of_several_is_named_by_its_file_or_its_quantisation(desk, hub, word):
    hub.put(REPO, {"m-q4_k_m.gguf": SMALL, "m-q8_0.gguf": SMALL})

    assert desk.run("model", "add", f"{REPO}/{word}", "--name", "m")[0] == Exit.DONE
    assert model(desk, "m").source.from_.endswith("/m-q8_0.gguf")


def test_a_model_in_parts_is_taken_whole(desk, hub):
    parts = {f"m-0000{n}-of-00002.gguf": SMALL for n in (1, 2)}
    hub.put(REPO, {**parts, "m-q8_0.txt": b"1"})

    assert desk.run("model", "add", REPO, "--name", "m")[0] == Exit.DONE
    assert model(desk, "m").source.from_.endswith("/m-*-of-00002.gguf")
    assert [file.path for file in lock(desk, "m").files] == sorted(parts)


def test_pickled_weights_are_refused(desk, hub):
    hub.put("org/old", {"pytorch_model.bin": Sized(b"PK", 1000), "config.json": CONFIG})

    code, _, err = desk.run("model", "add", "org/old")

    assert code == Exit.REFUSED
    assert (
        "has pickled weights only\n  because pytorch_model.bin: loading such a file runs whatever code is in it" in err
    )


def test_an_unknown_architecture_is_refused(desk, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header({"general.architecture": "starship"}), 1_000_000)})

    code, _, err = desk.run("model", "add", REPO)

    assert code == Exit.REFUSED
    assert "the architecture 'starship' is unknown here" in err
    assert "write the file by hand with memory_gib" in err


def test_a_gated_model_names_both_ways_out_and_is_added_with_a_token(desk, hub, tmp_path):
    hub.put(REPO, {"m.gguf": SMALL}, gated="auto")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.REFUSED
    assert "accept its terms at " in err
    assert "--token-file" in err
    assert desk.run("model", "add", REPO, "--name", "m", "--token-file", str(token))[0] == Exit.DONE


def test_a_token_of_the_environment_is_enough_and_written_nowhere(desk, hub, monkeypatch):
    hub.put(REPO, {"m.gguf": SMALL}, gated="manual")
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    code, out, err = desk.run("model", "add", REPO, "--name", "m")

    assert (code, err) == (Exit.DONE, "")
    assert TOKEN not in out + desk.text("catalog/m.yaml") + desk.text("locks/m.yaml")
    assert lock(desk, "m").gated


@pytest.mark.parametrize(
    ("answers", "about", "code", "what"),
    [
        ({"revision": [Answer(status=429, headers={"Retry-After": "90"})]}, {}, Exit.UNREACHABLE, "again in 90 s"),
        ({"revision": [Answer(status=503)]}, {}, Exit.UNREACHABLE, "it answers 503"),
        ({"revision": [Answer(page=b"<html>")]}, {}, Exit.PROBLEM, "does not answer as a hub does"),
        ({"/tree/": [Answer(page=b'[{"type": "file"}]')]}, {}, Exit.PROBLEM, "does not answer as a hub does"),
        ({"/resolve/": [Answer(page=b"<html>")]}, {}, Exit.REFUSED, "m.gguf: "),
        ({}, {"private": True}, Exit.REFUSED, "has no such repository, or it is private"),
        ({}, {"disabled": True}, Exit.REFUSED, "is disabled"),
    ],
)
def test_a_hub_that_does_not_give_it_leaves_everything_as_it_was(desk, hub, answers, about, code, what):
    hub.put(REPO, {"m.gguf": SMALL}, **about)
    hub.answers.update(answers)

    got, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert got == code
    assert what in err
    assert "next: " in err
    assert "Traceback" not in err
    assert desk.clean()


def test_a_name_or_an_alias_that_is_taken_is_refused_with_its_line(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    desk.git.commit({"catalog/coder.yaml": b"name: coder\naliases: [code]\n"}, "another")

    assert "it is the name of coder: catalog/coder.yaml:1" in desk.run("model", "add", REPO, "--name", "coder")[2]
    assert "it is an alias of coder: catalog/coder.yaml:2" in desk.run("model", "add", REPO, "--name", "code")[2]


def test_files_that_are_served_already_are_said_by_whom(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    desk.run("model", "add", REPO, "--name", "first")

    _, out, _ = desk.run("model", "add", REPO, "--name", "second")

    assert "Warning: first (catalog/first.yaml) serves these files already" in out


def test_safetensors_are_for_vllm_and_a_fleet_without_is_warned(desk, seen, hub):
    weights = Sized(safetensors_header(), 600_000_000)
    hub.put("org/chat", {"model.safetensors": weights, "config.json": CONFIG, "tokenizer.json": b"{}"})
    seen(fleets.node("n1", cards=2), fleets.node("n2", cards=0))

    code, out, err = desk.run("model", "add", "org/chat")

    assert "Warning: none of the 2 nodes that report has vllm" in out, err
    assert code in {Exit.DONE, Exit.HELD}
    assert model(desk, "chat").profiles[0].engine == "vllm"


def test_safetensors_that_one_card_does_not_hold_are_divided_over_several(desk, seen, hub):
    config = json.dumps({**json.loads(CONFIG), "num_hidden_layers": 32, "hidden_size": 4096}).encode()
    hub.put("org/chat", {"model.safetensors": Sized(safetensors_header(), 60_000_000_000), "config.json": config})
    vllm = (InstalledEngine("vllm", "0.33", accelerators=("nvidia",)),)
    seen(fleets.node("n1", cards=4, engines=vllm), fleets.node("n2", cards=0))

    code, out, err = desk.run("model", "add", "org/chat")

    assert (code, err) == (Exit.DONE, "")
    assert "on vLLM on 2 l40s-48g (4 free)" in out
    (profile,) = model(desk, "chat").profiles
    assert (profile.gpu.count, profile.tp) == (2, 2)


def test_safetensors_without_a_card_propose_a_gguf_build(desk, hub):
    weights = Sized(safetensors_header(), 600_000_000)
    hub.put("org/chat", {"model.safetensors": weights, "config.json": CONFIG})

    _, out, _ = desk.run("model", "add", "org/chat")

    assert "Where there is no card, a GGUF build of it does better" in out
    assert "Look for one: llmgw explore chat --format gguf\n" in out


def test_a_file_is_read_in_place(desk, tmp_path):
    file = tmp_path / "Local-Chat.Q4_K_M.gguf"
    file.write_bytes(gguf_header() + bytes(1000))

    code, _, err = desk.run("model", "add", str(file))

    assert (code, err) == (Exit.DONE, "")
    assert model(desk, "local-chat").source.from_ == str(file)
    assert lock(desk, "local-chat").facts["architecture"] == "llama"


@pytest.mark.parametrize(
    "source",
    [
        "",
        "word",
        "ftp:",
        "./m.gguf",
        "org/",
        "hf://",
        "/no/such.gguf",
        "mirror:one",
        "org/none",
        "https://",
        "a/b@",
        "@/x",
    ],
)
def test_what_is_no_source_is_a_sentence(desk, source):
    code, _, err = desk.run("model", "add", "--", source)

    assert code in {Exit.PROBLEM, Exit.REFUSED, Exit.USAGE, Exit.UNREACHABLE}
    assert "next: " in err
    assert "Traceback" not in err
    assert desk.clean()


def test_a_hub_that_is_away_is_exit_3(desk, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")

    assert desk.run("model", "add", REPO)[0] == Exit.UNREACHABLE


@pytest.mark.parametrize("page", ["{hub}/{repo}", "{hub}/{repo}/blob/main/m.gguf", "{hub}/{repo}/resolve/main/m.gguf"])
def test_the_address_a_browser_shows_is_understood(desk, hub, page):
    commit = hub.put(REPO, {"m.gguf": SMALL})

    assert desk.run("model", "add", page.format(hub=hub.endpoint, repo=REPO), "--name", "m")[0] == Exit.DONE
    assert model(desk, "m").source.from_ == f"hf://{REPO}@{commit}/m.gguf"


def test_what_the_mirror_holds_is_added_from_there(desk):
    with Upstream() as mirror:
        data = gguf_header() + bytes(1000)
        manifest = {"files": [{"path": "m.gguf", "size": len(data), "sha256": sha256(data).hexdigest()}]}
        mirror.files["/tiny/v7/"] = json.dumps(manifest).encode()
        mirror.files["/tiny/v7/m.gguf"] = data
        desk.git.commit({"server.yaml": SERVER.replace(b"http://10.0.0.2:8081", mirror.base.encode())}, "its mirror")

        code, out, err = desk.run("model", "add", "mirror:tiny/v7")

    assert (code, err) == (Exit.DONE, "")
    assert model(desk, "tiny").source.from_ == "mirror:tiny/v7/"
    assert "planned" in out


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"a-mmproj.gguf": SMALL, "b-mmproj.gguf": SMALL}, "is the part of a model that sees or hears"),
        ({"a.gguf": Sized(gguf_header({"general.architecture": "llama"}), 100_000)}, "it may be an adapter"),
        ({"a.gguf": Sized(b"no header", 100_000)}, "a.gguf: "),
        ({"a.gguf": Sized(b"", 0)}, "a.gguf: "),
        ({"README.md": b"1"}, "has no weights"),
    ],
)
def test_what_is_no_model_is_refused(desk, hub, files, why):
    hub.put(REPO, files)

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.REFUSED
    assert why in err
    assert "Traceback" not in err


def test_a_model_that_sees_is_taken_with_its_projector(desk, hub):
    commit = hub.put(REPO, {"m.gguf": SMALL, "mmproj-m.gguf": SMALL})

    assert desk.run("model", "add", REPO, "--name", "m")[0] == Exit.DONE
    assert model(desk, "m").source.from_ == f"hf://{REPO}@{commit}"
    assert len(lock(desk, "m").files) == 2


def test_what_would_be_very_slow_on_cpus_is_added_to_them_on_purpose_only(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 20_000_000_000)})
    seen(fleets.node("n1", cards=0, memory_gib=64), fleets.node("n2", cards=0, memory_gib=64))

    code, _, err = desk.run("model", "add", REPO, "--name", "m", "--context", "4096")

    assert code == Exit.REFUSED
    assert "~1.4 tok/s, very slow (memory assumed to give 40 GB/s): a reply of 500 tokens takes about 6 minutes" in err
    assert desk.clean()

    assert desk.run("model", "add", REPO, "--name", "m", "--context", "4096", "--cpu")[0] == Exit.DONE
    assert "min_tps" not in desk.text("catalog/m.yaml"), "nobody has measured these nodes"
    assert run(["validate", str(desk.root)]) == Exit.DONE


def test_what_was_measured_to_be_very_slow_is_written_as_meant(desk, seen, hub):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 20_000_000_000)})
    has = fleets.node("n1", cards=0, memory_gib=64)
    seen(structs.replace(has, inventory=structs.replace(has.inventory, memory_gbs=40.0)))

    assert desk.run("model", "add", REPO, "--name", "m", "--context", "4096", "--cpu")[0] == Exit.DONE
    assert "min_tps: 1.3" in desk.text("catalog/m.yaml")


@pytest.mark.parametrize(("keys", "architecture"), [({"qwen3.pooling_type": 3}, "qwen3"), ({}, "bert")])
def test_a_model_that_gives_no_replies_is_judged_by_no_speed(desk, seen, hub, keys, architecture):
    renamed = {name.replace("llama", architecture): value for name, value in BIG.items()}
    header = gguf_header(renamed | keys | {"general.architecture": architecture})
    hub.put(REPO, {"m.gguf": Sized(header, 20_000_000_000)})
    seen(fleets.node("n1", cards=0, memory_gib=64))

    code, out, err = desk.run("model", "add", REPO, "--name", "m", "--context", "4096")

    assert (code, err) == (Exit.DONE, "")
    assert "tok/s" not in out
    assert "kind: embedding" in desk.text("catalog/m.yaml")
    assert "min_tps" not in desk.text("catalog/m.yaml")


def test_cards_are_called_as_the_fleet_calls_them(desk, seen, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    desk.git.commit({"server.yaml": SERVER + b"cards: [{name: big, class: l40s-48g}]\n"}, "named")
    seen(fleets.node("n1", cards=1), fleets.node("n2", cards=[small_card(n) for n in range(3)]))

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert (code, err) == (Exit.DONE, "")
    assert "gpu: {class: big, count: 1}" in desk.text("catalog/m.yaml")


def test_a_fleet_without_a_mirror_is_told_that_it_needs_one(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})
    desk.git.commit({"server.yaml": SERVER.partition(b"mirror:")[0]}, "no mirror")

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert code == Exit.REFUSED
    assert "m has its weights from a mirror, and the fleet has none" in err
    assert desk.clean()


@pytest.mark.parametrize(
    "words", [("--description", "a\x07bell"), ("--description", "x" * 3000), ("--name", "No Name")]
)
def test_what_no_field_can_be_is_refused(desk, hub, words):
    hub.put(REPO, {"m.gguf": SMALL})

    code, _, err = desk.run("model", "add", REPO, *words)

    assert code in {Exit.REFUSED, Exit.USAGE}
    assert "next: " in err
    assert desk.clean()


def test_the_licence_is_spelled_as_the_policy_spells_it(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL}, license="apache-2.0")
    desk.git.commit({"server.yaml": SERVER + b"policy: {licenses: [Apache-2.0]}\n"}, "a policy")

    assert desk.run("model", "add", REPO, "--name", "m")[0] == Exit.DONE
    assert model(desk, "m").license == "Apache-2.0"


def test_more_context_than_it_was_trained_for_is_warned_of(desk, hub):
    hub.put(REPO, {"m.gguf": SMALL})

    assert "it was trained for 8192 tokens" in desk.run("model", "add", REPO, "--name", "m", "--context", "9000")[1]


def test_a_model_that_gives_embeddings_is_written_as_one(desk, hub):
    values = {key.replace("llama.", "bert."): value for key, value in LLAMA.items()} | {"general.architecture": "bert"}
    hub.put(REPO, {"m.gguf": Sized(gguf_header(values), 300_000_000)})

    code, _, err = desk.run("model", "add", REPO, "--name", "m")

    assert (code, err) == (Exit.DONE, "")
    assert model(desk, "m").kind == "embedding"
