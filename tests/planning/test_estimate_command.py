"""`llmgw estimate` as a person and a program use it."""

import json
import os

import pytest
from headers import LLAMA, write_header

from bench.fidelity.points import DATA
from llmgw.cli.demo import model_file
from llmgw.cli.main import run


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    """Where this machine's memory is kept: it is measured once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


QWEN3 = str(DATA / "headers/qwen3-30b-a3b-q4k.gguf.header")


def test_the_json_form_has_every_term_with_its_place_and_basis(capsys):
    assert run(["estimate", str(model_file()), "--context", "8192", "--parallel", "4", "--cpu-only", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    terms = {term["term"]: term for term in found["terms"]}
    assert list(found) == ["architecture", "context", "parallel", "terms", "totals", "ways"]
    assert (found["architecture"], found["context"], found["parallel"]) == ("llama", 8192, 4)
    assert terms["kv_cache"] == {
        "term": "kv_cache",
        "where": "host",
        "bytes": 188_743_680,
        "basis": "from the header",
    }
    assert {"weights_host_mmap", "output_buffer", "compute_buffer", "engine"} <= set(terms)
    assert found["totals"] == {"host_bytes": sum(t["bytes"] for t in found["terms"]), "card_bytes": 0}


def test_the_engine_s_own_flags_change_the_terms(capsys):
    def kv(*flags):
        run(["estimate", QWEN3, "--context", "32768", "--json", *flags])
        terms = json.loads(capsys.readouterr().out)["terms"]
        return {term["term"]: term["bytes"] / 2**20 for term in terms}

    assert kv()["kv_cache"] == 3072
    assert kv("--kv-type-k", "q8_0", "--kv-type-v", "q8_0")["kv_cache"] == 1632
    assert kv("--no-flash-attention")["compute_buffer"] == pytest.approx(2150.01, rel=0.01)
    assert kv("--ubatch", "2048")["compute_buffer"] == pytest.approx(480.07, rel=0.01)
    assert kv("--kv-unified", "--parallel", "4")["output_buffer"] == pytest.approx(2.32, abs=0.01)


def test_a_header_alone_is_weighed_by_its_size(capsys):
    run(["estimate", QWEN3, "--size", "18GB", "--context", "4096"])

    assert "17,166.14" in capsys.readouterr().out


def test_cards_are_named_or_sized_and_what_is_short_is_said(capsys):
    run(["estimate", QWEN3, "--context", "32768", "--card", "RTX 3060"])

    text = capsys.readouterr().out
    assert "weights_gpu0" in text
    assert "does not fit: card 0: 19.4 GiB are needed and 11.6 GiB can be had" in text


def test_explain_says_which_keys_and_figures_gave_each_term(capsys):
    run(["estimate", QWEN3, "--context", "4096", "--explain"])

    (cache,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("kv_cache"))
    assert "4096 cells in 1 streams, 48 layers, f16/f16" in cache
    assert "qwen3moe.attention.head_count_kv = 4; " in cache
    assert "qwen3moe.block_count = 48; " in cache


FLEET = """
- {name: n1, memory: 128GiB, cores: 32, cards: [{name: RTX 4090, count: 2}], engines: [llamacpp]}
- {name: n2, memory: 16GiB, cores: 8, memory_gbs: 80.5, core_gbs: 12}
"""


def test_the_ways_of_a_fleet_are_ranked_with_what_each_takes(tmp_path, capsys):
    (tmp_path / "fleet.yaml").write_text(FLEET)

    run(["estimate", QWEN3, "--context", "32768", "--fleet", str(tmp_path / "fleet.yaml"), "--json"])

    one, *_, cpu = json.loads(capsys.readouterr().out)["ways"]
    assert (one["state"], one["where"], one["names"]) == ("free now", "one rtx-4090-24g", ["n1"])
    assert one["profile"] == {"engine": "llamacpp", "gpu": {"class": "rtx-4090-24g", "count": 1}}
    assert 19 * 2**30 < one["card_bytes"] < 24 * 2**30
    assert one["tps"] > 5 * cpu["tps"]
    assert (cpu["where"], cpu["names"], cpu["pace"]) == ("CPU", ["n1"], "slow")


def test_what_does_not_fit_is_said_with_what_would_help(tmp_path, capsys):
    (tmp_path / "fleet.yaml").write_text("- {name: n2, memory: 16GiB, cores: 8}")

    assert run(["estimate", QWEN3, "--context", "32768", "--fleet", str(tmp_path / "fleet.yaml")]) == 0

    text = capsys.readouterr().out
    assert "ways on " in text
    assert "CPU does not hold it: 21.0 GiB short on host of n2, the nearest" in text


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ("", "tells of no fleet"),
        ("- {name: n1, memory: lots, cores: 2}", "'lots' is not a size"),
        ("- {name: n1, memory: 1GiB, cores: 0}", "cores of n1 is 0"),
        ("- {name: n1, memory: 1GiB, cores: 1, cards: [{name: made tomorrow}]}", "write `memory`"),
        ("- {name: n1, memory: 1GiB, cores: 1}\n- {name: n1, memory: 1GiB, cores: 1}", "two of one name"),
        ("- &a {name: n1}\n- *a", "alias"),
        ("{", ":1: "),
        ('{"observed": 3}', "tells of no fleet"),
    ],
)
def test_a_file_that_tells_of_no_fleet_is_refused(tmp_path, fleet, said, capsys):
    (tmp_path / "fleet.yaml").write_text(fleet)

    assert run(["estimate", QWEN3, "--fleet", str(tmp_path / "fleet.yaml")]) in (1, 64)
    assert said in capsys.readouterr().err


def test_an_unknown_architecture_is_said(tmp_path, capsys):
    write_header(tmp_path / "m.gguf", architecture="brand-new")

    run(["estimate", str(tmp_path / "m.gguf"), "--size", "10GiB"])

    said = capsys.readouterr().out
    assert "unknown architecture 'brand-new', by the file's size only" in said
    assert "tok/s" not in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["/nowhere.gguf"], 4, "No such file"),
        ([__file__], 4, "does not begin with GGUF"),
        ([QWEN3, "--size", "many"], 64, "is not a size"),
        ([QWEN3, "--size", "0"], 4, "its size is 0"),
        ([QWEN3, "--card", "4711"], 64, "the table of cards has none of that name"),
        ([QWEN3, "--kv-type-v", "q8_0", "--no-flash-attention"], 4, "values in fewer bits need it"),
        ([QWEN3, "--card", "24GiB", "--tensor-split", "1,2"], 64, "is not a number for each of 1 cards"),
        ([QWEN3, "--parallel", "0"], 64, "parallel"),
    ],
)
def test_bad_input_ends_in_a_sentence_and_a_code(words, code, said, capsys):
    assert run(["estimate", *words]) == code

    text = capsys.readouterr().err
    assert said in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    "words",
    [["pipe"], [QWEN3, "--mmproj", "pipe"], [QWEN3, "--lora", "pipe"], [QWEN3, "--draft", "pipe"], ["folder"], ["set"]],
    ids=["the model", "mmproj", "lora", "draft", "in a folder", "part of a set"],
)
def test_a_pipe_is_not_waited_on(tmp_path, monkeypatch, words, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    (tmp_path / "folder").mkdir()
    os.mkfifo("folder/x.safetensors")
    (tmp_path / "folder/config.json").write_text("{}")
    (tmp_path / "set").mkdir()
    write_header(tmp_path / "set/m-00001-of-00002.gguf", general={"split.count": 2})
    os.mkfifo("set/m-00002-of-00002.gguf")

    assert run(["estimate", *words]) == 4
    assert "it is no regular file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\u202eb", "a\nhost 0 GiB", "a\r\x9b31m"], ids=ascii)
def test_what_a_header_calls_itself_moves_no_cursor_and_begins_no_line(tmp_path, name, capsys):
    write_header(tmp_path / "m.gguf", architecture=name)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    (tmp_path / "m.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    for source in ("m.gguf", "m.safetensors"):
        run(["estimate", str(tmp_path / source), "--size", "1GiB"])

        said = capsys.readouterr().out
        assert {c for c in said if not c.isprintable()} == {"\n"}
        assert "\nhost 0 GiB" not in said


def test_an_adapter_alone_is_no_model(tmp_path, capsys):
    write_header(tmp_path / "a.gguf", {}, general={"general.type": "adapter", "adapter.type": "lora"})

    assert run(["estimate", str(tmp_path / "a.gguf")]) == 4
    assert "name the model, and this file with --lora" in capsys.readouterr().err


def test_all_parts_of_a_set_are_weighed(tmp_path, capsys):
    for number in (1, 2):
        data = write_header(tmp_path / f"m-0000{number}-of-00002.gguf", general={"split.count": 2})
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(data + bytes(1 << 20))

    first = str(tmp_path / "m-00001-of-00002.gguf")
    assert run(["estimate", first, "--json"]) == 0
    terms = json.loads(capsys.readouterr().out)["terms"]
    assert next(t["bytes"] for t in terms if t["term"] == "weights_host_mmap") == 2 * (len(data) + (1 << 20))

    (tmp_path / "m-00002-of-00002.gguf").unlink()
    assert run(["estimate", first]) == 4
    assert "1 of its 2 parts" in capsys.readouterr().err


def test_of_what_gives_no_replies_no_speed_is_told(tmp_path, capsys):
    write_header(tmp_path / "m.gguf", {**LLAMA, "pooling_type": 3})

    for words in ([str(tmp_path / "m.gguf")], [QWEN3, "--embeddings"]):
        assert run(["estimate", *words, "--size", "10GiB"]) == 0

        said = capsys.readouterr().out
        assert "gives no replies" in said
        assert "tok/s" not in said
