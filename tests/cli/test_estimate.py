"""`llmgw estimate` of what is somewhere else, of folders, and of models of the catalog."""

from __future__ import annotations

import json

import pytest

from fakes.gguf_bytes import LLAMA, gguf_header, safetensors_header
from fakes.hub import TOKEN, Answer, Sized
from llmgw.cli.main import run

REPO = "org/Tiny-Chat-GGUF"
FLEET = "- {name: n1, memory: 64GiB, cores: 16, cards: [{name: RTX 4090, count: 1}], engines: [llamacpp, vllm]}"
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
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 8192,
    }
).encode()


@pytest.fixture
def estimate(hub, tmp_path, monkeypatch, capsys):
    """Runs the command on a fleet of one node; gives its code, its JSON where there is some, and its errors."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)

    def call(*words):
        code = run(["estimate", *words, "--fleet", str(tmp_path / "fleet.yaml"), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else None, said.err

    return call


@pytest.mark.parametrize("written", [REPO, f"hf://{REPO}", f"{REPO}@main", f"{REPO}/m-Q4_K_M.gguf", "https"])
def test_the_shape_of_a_model_somewhere_else_is_had_by_ranges(hub, estimate, written):
    long = gguf_header(BIG, vocabulary=150_000)
    hub.put(REPO, {"m-Q4_K_M.gguf": Sized(long, 4_900_000_000), "m-Q8_0.gguf": Sized(long, 8_500_000_000)})
    url = f"{hub.endpoint}/{REPO}/resolve/main/m-Q4_K_M.gguf"

    code, found, err = estimate(url if written == "https" else written, "--context", "8192")

    assert (code, found["architecture"], found["context"]) == (0, "llama", 8192), err
    assert {t["term"]: t["bytes"] for t in found["terms"]}["kv_cache"] == 32 * 8192 * 2 * 8 * 128 * 2
    ranges = [r for r in hub.ranges() if r != "bytes=0-0"]
    assert len(ranges) <= 2
    assert max(int(r.partition("-")[2]) for r in ranges) < 128 << 10
    files = {way["file"] for way in found["ways"]}
    assert files == ({"m-Q4_K_M.gguf"} if "Q4" in written or written == "https" else {"m-Q4_K_M.gguf", "m-Q8_0.gguf"})


def test_a_repository_of_safetensors_is_for_engines_on_cards(hub, estimate):
    hub.put("org/tiny", {"config.json": CONFIG, "model.safetensors": Sized(safetensors_header(), 400_000_000)})

    code, found, _ = estimate("org/tiny")

    assert code == 0
    assert [(way["engine"], way["where"]) for way in found["ways"]] == [("vllm", "one rtx-4090-24g"), ("vllm", "CPU")]


def test_a_folder_of_safetensors_is_weighed_by_its_files(estimate, tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "model.safetensors").write_bytes(safetensors_header(shape=(1000, 256)) + bytes(512_000))

    code, found, _ = estimate(str(folder), "--context", "4096", "--parallel", "2")

    terms = {t["term"]: t["bytes"] for t in found["terms"]}
    assert code == 0
    assert terms["weights"] == (folder / "model.safetensors").stat().st_size
    # Two layers of two heads of 32 numbers in 16 bits, for keys and values: of two requests of 2048 tokens.
    assert terms["kv_cache"] == 2 * 2048 * 2 * 2 * 32 * 2 * 2


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no config.json and no GGUF file"),
        ({"config.json": CONFIG}, "it has none"),
        ({"config.json": b"[", "a.safetensors": b"x"}, "it is 1 bytes long"),
        ({"config.json": CONFIG, "a.safetensors": b"\xff" * 16}, "it says its header has"),
        (
            {"config.json": CONFIG, "model.safetensors.index.json": b'{"weight_map": {"t": "b.safetensors"}}'},
            "1 of its 1 files are not there, b.safetensors first",
        ),
        ({"a.gguf": b"GGUF", "b.gguf": b"GGUF"}, "it has 2 GGUF models"),
        ({"a.gguf": b"GGUF\x03\0\0\0"}, "a.gguf"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(estimate, tmp_path, files, said):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)

    code, _, err = estimate(str(folder))

    assert code == 4
    assert said in err
    assert "next: " in err


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"gated": "manual"}, "gated"),
        ({"private": True}, "is not there"),
    ],
)
def test_what_may_not_be_read_says_both_ways_out(hub, estimate, about, said):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 4_900_000_000)}, **about)

    code, _, err = estimate(REPO)

    assert code == 4
    assert said in err
    assert "--token-file" in err


def test_a_token_opens_it_and_goes_to_no_other_host(hub, estimate, tmp_path):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 4_900_000_000)}, gated="manual")
    (tmp_path / "token").write_text(TOKEN)

    code, found, err = estimate(REPO, "--token-file", str(tmp_path / "token"))

    assert (code, found["architecture"]) == (0, "llama"), err
    assert hub.fetched, "the large file is on another host"
    assert all("authorization" not in {k.lower() for k in asked.headers} for asked in hub.fetched)


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("org/gone", 4, "is not there"),
        ("https://127.0.0.1:1/m.gguf", 3, "cannot be read"),
        ("models/none.gguf", 4, "No such file"),
        ("coder", 4, "no model of a catalog"),
        ("s3://bucket/m.gguf", 64, "is no source"),
        ("nothing:at-all", 64, "is no source"),
    ],
)
def test_what_is_not_there_is_said(estimate, source, code, said):
    found, _, err = estimate(source)

    assert (found, said in err, "next: " in err) == (code, True, True), err


def test_a_hub_that_asks_to_be_left_alone_is_unreachable(hub, estimate):
    hub.put(REPO, {"m.gguf": Sized(gguf_header(BIG), 4_900_000_000)})
    hub.answers[r"/api/"] = [Answer(status=429, headers={"RateLimit": '"api";r=0;t=300'})]

    code, _, err = estimate(REPO)

    assert code == 3
    assert "call again in 300 s" in err


@pytest.mark.parametrize("broken", [b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b"not a model at all"])
def test_a_header_that_lies_is_refused_wherever_it_is(hub, estimate, broken):
    hub.put(REPO, {"m.gguf": Sized(broken, 4_900_000_000)})

    code, _, err = estimate(REPO)

    assert (code, "m.gguf" in err, "Traceback" in err) == (4, True, False)


def test_a_repository_of_nothing_to_run_is_refused(hub, estimate):
    hub.put(REPO, {"README.md": b"soon", "pytorch_model.bin": Sized(b"", 4_000)})

    code, _, err = estimate(REPO)

    assert code == 4
    assert "no whole GGUF or safetensors model, but pickled files" in err


@pytest.mark.needs_git
def test_a_model_of_the_catalog_is_estimated_as_it_is_asked_for(copy, capsys):
    facts = "{architecture: llama, layers: 32, embedding: 4096, vocabulary: 128256, context: 131072,\n"
    facts += "  feed_forward: 14336, heads: 32, kv_heads: 8, key_length: 128, value_length: 128}"
    lock = f"model: coder\nsource: {{from: /m.gguf}}\nfiles: [{{path: m.gguf, bytes: 4900000000}}]\nfacts: {facts}\n"
    copy.git.commit({"locks/coder.yaml": lock.encode()}, "locked")

    code, out, err = copy.run("estimate", "code", "--json")

    assert code == 0, err
    found = json.loads(out)
    assert (found["architecture"], found["context"]) == ("llama", 4096)
    copy.git.commit({"locks/coder.yaml": lock.partition("facts:")[0].encode()}, "no facts")
    code, _, err = copy.run("estimate", "coder")
    assert code == 4
    assert "run llmgw lock coder" in err
