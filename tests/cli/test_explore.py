"""`llmgw explore`: what is found on a hub, and what of it this fleet runs."""

from __future__ import annotations

import json

import pytest

from fakes.gguf_bytes import LLAMA, gguf_header, safetensors_header
from fakes.hub import TOKEN, Answer, Sized
from llmgw.cli.main import run
from llmgw.errors import Exit

FLEET = """\
- {name: n1, memory: 64GiB, cores: 16, cards: [{name: RTX 4090, count: 1}], engines: [llamacpp]}
- {name: n2, memory: 64GiB, cores: 32, engines: [llamacpp]}
"""
CARD = "one rtx-4090-24g"
EIGHT_B = {
    **LLAMA,
    "llama.block_count": 32,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.vocab_size": 128256,
}
HEADER = gguf_header(EIGHT_B)
PAD = " " * 12
"""Before a verdict of a file set."""
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }
).encode()


@pytest.fixture
def explore(hub, tmp_path, monkeypatch, capsys):
    """Calls the command for a fleet of a card and two CPUs, in a folder that is no repository."""
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text(FLEET)

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(["explore", *words, "--fleet", "fleet.yaml"])
        said = capsys.readouterr()
        return int(code), said.out, said.err

    return call


def rows(out: str) -> list[str]:
    """The models of a listing for programs."""
    return [row["id"] for row in json.loads(out)["rows"]]


def put_eight_b(hub, name="org/Chat-8B-GGUF", **about):
    sizes = {"Q2_K": 3_180_000_000, "Q4_K_M": 4_920_000_000, "F16": 16_070_000_000}
    files = {f"chat-8b-{kind}.gguf": Sized(HEADER, size) for kind, size in sizes.items()}
    return hub.put(name, files, labels=("gguf",), **about)


def put_too_large(hub, name="org/Huge-GGUF", **about):
    return hub.put(name, {"huge-Q4_K_M.gguf": Sized(HEADER, 240_000_000_000)}, labels=("gguf",), **about)


def test_a_row_says_what_a_model_is_and_how_this_fleet_would_run_it(explore, hub):
    put_eight_b(
        hub,
        license="llama3.1",
        base_model="meta/Chat-8B",
        relation="quantized",
        downloads=1_234_567,
        likes=340,
        created="2020-01-01T00:00:00.000Z",
        gated="manual",
    )
    hub.tokens[""] = None

    code, out, err = explore("chat")

    assert (code, err) == (Exit.DONE, "")
    head, first, about, verdict = out.splitlines()[:4]
    assert head.split() == ["MODEL", "SIZE", "CONTEXT", "DOWNLOADS", "LIKES", "AGE"]
    assert first.split()[:6] == ["org/Chat-8B-GGUF", "4.6", "GiB", "128k", "1.2M", "340"]
    assert about == "  gated (manual), Q4_K_M, llama, llama3.1, of meta/Chat-8B"
    assert verdict.startswith(f"  fits now on {CARD} (1 free), ~")
    assert "Judged by fleet.yaml." in out
    assert out.splitlines()[-2:] == [
        "next: llmgw explore org/Chat-8B-GGUF",
        "      llmgw model add org/Chat-8B-GGUF/Q4_K_M",
    ]


def test_the_verdict_is_the_one_of_estimate(explore, hub, tmp_path, capsys):
    (tmp_path / "m.gguf").write_bytes(HEADER)
    hub.put("org/m", {"m.gguf": Sized(HEADER, 4_920_000_000)})
    (row,) = json.loads(explore("m", "--json")[1])["rows"]

    assert run(["estimate", "m.gguf", "--size", "4920000000", "--fleet", "fleet.yaml", "--json"]) == Exit.DONE

    best = json.loads(capsys.readouterr().out)["ways"][0]
    assert (row["verdict"]["engine"], row["verdict"]["tps"]) == (best["engine"], pytest.approx(best["tps"], rel=0.01))


def test_what_cannot_run_is_hidden_and_counted(explore, hub):
    put_eight_b(hub)
    for number in range(3):
        put_too_large(hub, f"org/Huge-{number}-GGUF")
    header = gguf_header({"general.architecture": "starship"})
    for number in range(2):
        hub.put(f"org/Ship-{number}-GGUF", {"m.gguf": Sized(header, 1_000_000)})
    hub.put("org/old", {"pytorch_model.bin": Sized(b"PK", 1000)})
    hub.put("org/lora", {"adapter_model.safetensors": Sized(safetensors_header(), 1000)})
    hub.put("org/text", {"README.md": b"# Words"})
    hub.put("org/half", {"m-00001-of-00002.gguf": Sized(HEADER, 1000)})
    hub.put("org/gone", {"m.gguf": Sized(HEADER, 1000)}, disabled=True)

    code, out, _ = explore("org")

    assert code == Exit.DONE
    assert out.count("GiB") == 1
    assert (
        "10 hidden: 3 too large, 2 unknown architecture, 1 disabled, 1 incomplete, 1 no\n"
        "weights, 1 no whole model, 1 pickled weights; --all shows them with why\n"
    ) in out


def test_all_shows_what_is_hidden_with_why(explore, hub):
    put_too_large(hub)
    hub.put("org/old", {"pytorch_model.bin": Sized(b"PK", 1000)})

    _, out, _ = explore("org", "--all")

    assert f"  does not fit {CARD}: " in out
    assert " short on " in out
    assert "loading pickled weights runs whatever code is in them" in out
    assert "hidden" not in out


def test_what_is_hidden_is_counted_also_when_nothing_is_left(explore, hub):
    put_too_large(hub)

    code, out, _ = explore("huge")

    assert code == Exit.DONE
    assert out == (
        "Nothing of what was found runs here (1 model looked at).\n"
        "1 hidden: 1 too large; --all shows them with why\n"
        "Judged by fleet.yaml.\n"
    )


def test_nothing_found_is_said(explore):
    assert explore("none of it")[:2] == (Exit.DONE, "Nothing was found.\nJudged by fleet.yaml.\n")


@pytest.mark.parametrize("usual", [pytest.param(90, id="it does not fit"), pytest.param(40, id="it is very slow")])
def test_the_largest_below_the_usual_file_set_is_named_where_that_will_not_do(explore, hub, usual):
    sizes = {"Q2_K": 15, "Q3_K_M": 21, "Q4_K_M": usual, "Q8_0": 160}
    hub.put("org/m-GGUF", {f"m-{kind}.gguf": Sized(HEADER, size * 10**9) for kind, size in sizes.items()})

    (row,) = json.loads(explore("m-", "--json")[1])["rows"]

    assert (row["quantisation"], row["add"], row["sets"]) == ("Q3_K_M", "org/m-GGUF/Q3_K_M", 4)


def test_a_file_set_is_of_the_quantisation_that_its_name_says(explore, hub, tmp_path):
    # The header says Q4_K_M, which a CPU would lay out anew and keep twice: 20 GiB have room for F16 alone.
    (tmp_path / "fleet.yaml").write_text("- {name: n1, memory: 20GiB, cores: 16, engines: [llamacpp]}")
    hub.put("org/m-GGUF", {"m-F16.gguf": Sized(HEADER, 16_070_000_000)})
    hub.put("org/x-GGUF", {"m-Q4_K_M.gguf": Sized(HEADER, 16_070_000_000)})

    assert rows(explore("GGUF", "--json")[1]) == ["org/m-GGUF"]


def test_less_context_than_it_was_trained_for_is_said(explore, hub):
    hub.put("org/m-GGUF", {"m-F16.gguf": Sized(HEADER, 16_070_000_000)})

    _, out, _ = explore("m-")

    assert f"fits now on {CARD} (1 free)" in out
    assert " of 131072 tokens of context" in " ".join(out.split())

    verdict = json.loads(explore("m-", "--json", "--context", "131072", "--all")[1])["rows"][0]["verdict"]
    assert verdict["where"] != CARD


def test_an_engine_that_no_machine_has_is_why(explore, hub):
    hub.put("org/m", {"model.safetensors": Sized(safetensors_header(), 5_000_000_000), "config.json": CONFIG})

    _, out, _ = explore("m", "--all")

    assert f"fits on {CARD}, and no machine there has vllm" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["a/eight", "b/awq", "b/small"]),
        (("--format", "gguf"), ["a/eight", "b/small"]),
        (("--engine", "vllm", "--all"), ["b/awq"]),
        (("--author", "a"), ["a/eight"]),
        (("--licence", "MIT"), ["b/small"]),
        (("--license", "apache-2.0"), ["a/eight"]),
        (("--architecture", "Llama"), ["a/eight", "b/awq", "b/small"]),
        (("--architecture", "qwen2"), []),
        (("--max-size", "1GiB"), ["b/small"]),
        (("--gated",), ["b/small"]),
        (("--no-gated",), ["a/eight", "b/awq"]),
        (("--task", "feature-extraction"), ["b/small"]),
        (("--sort", "downloads"), ["b/awq", "b/small", "a/eight"]),
        (("--sort", "likes"), ["a/eight", "b/small", "b/awq"]),
        (("--sort", "newest"), ["b/small", "a/eight", "b/awq"]),
        (("--sort", "size"), ["b/small", "a/eight", "b/awq"]),
        (("--sort", "size", "--limit", "1"), ["b/small"]),
        (("--limit", "2", "--sort", "likes"), ["a/eight", "b/small"]),
        (("eig",), ["a/eight"]),
    ],
)
def test_filters_and_orders(explore, hub, words, expected):
    about = {"gguf": {"total": 8_000_000_000, "architecture": "llama", "context_length": 131072}}
    hub.put("a/eight", {"m.gguf": Sized(HEADER, 4_920_000_000)}, license="apache-2.0", likes=9, downloads=1, **about)
    hub.put("b/awq", {"m.safetensors": Sized(safetensors_header(), 5_000_000_000), "config.json": CONFIG}, downloads=9)
    hub.repositories["b/awq"].config = {"model_type": "llama"}
    hub.repositories["b/awq"].created = "2025-01-01T00:00:00.000Z"
    hub.put("b/small", {"m.gguf": Sized(HEADER, 900_000_000)}, license="mit", likes=5, downloads=5, **about)
    small = hub.repositories["b/small"]
    small.gated, small.pipeline_tag, small.created = "auto", "feature-extraction", "2026-05-01T00:00:00.000Z"
    for name in ("a/eight", "b/small"):
        hub.repositories[name].labels = ("gguf",)
    hub.repositories["b/awq"].labels = ("safetensors",)

    code, out, _ = explore("--json", "--all", *[word for word in words if word != "--all"])

    assert code == Exit.DONE
    found = rows(out)
    assert (found if "--sort" in words else sorted(found)) == expected


def test_what_a_filter_took_out_here_is_counted(explore, hub):
    put_eight_b(hub)
    put_too_large(hub)

    assert "left out: 1 by --max-size\n" in explore("org", "--max-size", "10GiB")[1]
    assert "left out: 2 by --architecture\n" in explore("org", "--architecture", "qwen2")[1]


def test_one_request_finds_and_three_look_at_each(explore, hub):
    for number in range(5):
        put_eight_b(hub, f"org/m{number}-GGUF")

    explore("org")

    searched = [asked for asked in hub.asked if asked.path.startswith("/api/models?")]
    listed = [asked for asked in hub.asked if "/tree/" in asked.path]
    assert (len(searched), len(listed)) == (1, 5)
    assert len(hub.fetched) <= 2 * 5
    assert len(hub.asked) + len(hub.fetched) <= 1 + 5 * 5


def test_no_more_than_three_times_the_limit_is_looked_at(explore, hub):
    for number in range(12):
        put_too_large(hub, f"org/huge-{number:02}")

    found = json.loads(explore("huge", "--limit", "2", "--json")[1])

    assert (found["looked_at"], found["hidden"], found["more"]) == (6, {"too large": 6}, True)


def test_a_gated_model_is_marked_and_judged_by_its_size(explore, hub):
    put_eight_b(hub, gated="auto", gguf={"total": 8_000_000_000, "architecture": "llama", "context_length": 8192})

    _, out, _ = explore("chat")

    assert "gated (auto), Q4_K_M, llama" in out
    assert "by the size of its files only" in " ".join(out.split())


def test_a_token_of_a_file_or_of_the_environment_reads_what_is_gated(explore, hub, tmp_path, monkeypatch):
    put_eight_b(hub, gated="auto")
    token = tmp_path / "token"
    token.write_text(TOKEN)

    by_file = explore("chat", "--token-file", str(token))[1]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    by_environment = explore("chat")[1]

    assert by_file == by_environment
    assert "fits now on" in by_file
    assert "size of its files" not in by_file
    assert not [asked for asked in hub.fetched if "Authorization" in asked.headers]


def test_the_fleet_is_the_one_of_the_repository_that_one_is_in(copy, hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    copy.see()
    put_eight_b(hub)

    code, out, err = copy.run("explore", "chat")

    assert (code, err) == (Exit.DONE, "")
    assert "fits now on one l40s-48g" in out
    assert "Judged by status branch " in out


def test_a_hub_that_is_down_is_its_own_line_with_exit_3(explore, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")

    code, out, err = explore("chat")

    assert (code, out) == (Exit.UNREACHABLE, "")
    assert err.startswith("error: http://127.0.0.1:1/api/models cannot be read\n  because ")


def test_a_hub_that_stops_answering_on_the_way_shows_what_it_gave(explore, hub):
    for number in range(12):
        put_eight_b(hub, f"org/m{number:02}-GGUF", likes=50 - number)
    hub.answers["m09-GGUF/tree"] = [Answer(status=429, headers={"Retry-After": "300"})]

    code, out, err = explore("org")

    assert code == Exit.UNREACHABLE
    assert out.count("fits now on") == 9
    assert "call again in 300 s; a token raises most limits" in err


def test_a_rate_limit_is_said_with_when_to_call_again(explore, hub):
    hub.answers["/api/models"] = [Answer(status=429, headers={"RateLimit": '"api";r=0;t=240'})]

    code, out, err = explore("chat", "--json")

    assert code == Exit.UNREACHABLE
    assert "call again in 240 s" in err
    assert json.loads(out)["error"]["code"] == Exit.UNREACHABLE


def test_looking_ends_when_its_time_is_over(explore, hub):
    put_eight_b(hub)
    hub.answers["/tree/"] = [Answer(silent=True)]

    code, _, err = explore("chat", "--within", "1")

    assert code == Exit.UNREACHABLE
    assert "next: give it longer: --within 300" in err


@pytest.mark.parametrize(
    ("path", "page"),
    [("/api/models", b"<html>"), ("/api/models", b"{}"), ("/api/models", b"[" * 100_000), ("/tree/", b"nonsense")],
)
def test_nonsense_of_a_hub_is_a_sentence(explore, hub, path, page):
    put_eight_b(hub)
    hub.answers[path] = [Answer(page=page)]

    code, out, err = explore("chat", "--all")

    assert code in {Exit.DONE, Exit.PROBLEM}
    assert "does not answer as a hub does" in f"{out}{err}"
    assert "Traceback" not in err


def test_a_repository_in_two_formats_is_judged_in_each(explore, hub):
    hub.put(
        "org/both",
        {
            "m-Q4_K_M.gguf": Sized(HEADER, 4_920_000_000),
            "model.safetensors": Sized(safetensors_header(), 9_000_000_000),
            "config.json": CONFIG,
        },
        labels=("gguf", "safetensors"),
    )

    page = json.loads(explore("org/both", "--json")[1])
    (row,) = json.loads(explore("both", "--engine", "vllm", "--all", "--json")[1])["rows"]

    assert [each["verdict"]["engine"] for each in page["sets"]] == ["llamacpp", "vllm"]
    assert (row["format"], row["bytes"], row["verdict"]["engine"]) == ("safetensors", 9_000_000_000, "vllm")


def test_a_file_that_is_no_gguf_is_hidden_as_unreadable(explore, hub):
    hub.put("org/m-GGUF", {"m.gguf": Sized(b"<html>", 1_000_000)})

    assert "1 hidden: 1 unreadable" in explore("m-")[1]
    assert "  not known: m.gguf: " in explore("m-", "--all")[1]


def test_what_strangers_wrote_does_nothing_to_a_terminal(explore, hub):
    evil = "\x1b]0;owned\x07mit\x1b[2J"
    readme = f"{evil} is what this model is\n".encode()
    put_eight_b(hub, license=evil, base_model=f"a/{evil}", created="never")
    hub.put("org/Chat-8B-GGUF", {"x-Q4_K_M.gguf": Sized(HEADER, 10**9), "README.md": readme})

    hub.put("org/Chat-9", {"m.gguf": Sized(gguf_header({"general.architecture": evil}), 10**9)})
    hub.put("org/Chat-sum", {"m-Q4_K_M.gguf": Sized(HEADER, 10**9)})
    row = {"type": "file", "path": "m-Q4_K_M.gguf", "size": 10**9, "lfs": {"oid": evil, "size": 10**9}}
    hub.answers["Chat-sum/tree"] = [Answer(page=json.dumps([row]).encode())]
    hub.put("org/Chat-kind", {"m.gguf": Sized(HEADER, 10**9)})
    hub.answers["Chat-kind/tree"] = [Answer(page=b"no", headers={"Content-Type": "\x1b[2Jowned"})]

    names = ("org/Chat-8B-GGUF", "org/Chat-9", "org/Chat-sum")
    for words in (
        ("chat",),
        ("chat", "--all"),
        ("chat", "--json", "--all"),
        *((n,) for n in names),
        (names[2], "--json"),
    ):
        code, out, _ = explore(*words)
        assert code == Exit.DONE
        assert not set(out) & {"\x1b", "\x07", "\x9b"}
        assert "\\u001b" not in out
        assert "owned" not in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--engine", "vllm", "--format", "gguf"), "vllm does not read gguf"),
        (("--max-size", "big"), "'big' is not a size"),
        (("--limit", "0"), "'--limit'"),
        (("--sort", "colour"), "colour"),
        (("--engine", "ollama"), "ollama"),
    ],
)
def test_words_that_cannot_be_are_refused(explore, words, why):
    code, out, err = explore("chat", *words)

    assert code in {Exit.USAGE, Exit.REFUSED}
    assert out == ""
    assert why in err
    assert "next: " in err


def test_a_repository_lists_its_file_sets_its_card_and_what_was_made_of_it(explore, hub):
    commit = hub.put(
        "org/Chat-8B-GGUF",
        {
            "chat-Q4_K_M.gguf": Sized(HEADER, 4_920_000_000),
            "big/chat-F16-00001-of-00002.gguf": Sized(HEADER, 8_000_000_000),
            "big/chat-F16-00002-of-00002.gguf": Sized(HEADER, 8_070_000_000),
            "mmproj-chat-f16.gguf": Sized(HEADER, 900_000_000),
            "README.md": b"---\nlicense: mit\n---\n# Chat\n\nA model that answers *questions* well.\n",
        },
        license="mit",
        base_model="org/Chat-8B",
        relation="quantized",
        downloads=10,
        likes=2,
        gguf={"total": 8_030_261_248, "architecture": "llama", "context_length": 131072},
    )
    hub.put("else/lora", {"adapter_model.safetensors": b"1"}, base_model="org/Chat-8B", relation="adapter", downloads=5)
    hub.put("else/Chat-AWQ", {"m.safetensors": b"1"}, base_model="org/Chat-8B", relation="quantized", downloads=7)
    sums = {path: file.sha256 for path, file in hub.repositories["org/Chat-8B-GGUF"].commits[commit].items()}

    code, out, err = explore("org/Chat-8B-GGUF")

    assert (code, err) == (Exit.DONE, "")
    lines = out.splitlines()
    assert lines[:3] == [
        f"org/Chat-8B-GGUF  {commit[:12]}",
        "  llama, 8.0B parameters, trained for 128k tokens, mit",
        "  of org/Chat-8B",
    ]
    assert "  A model that answers questions well." in lines
    assert "   4.6 GiB  chat-Q4_K_M.gguf  (Q4_K_M)" in lines
    assert f"     sha256 {sums['chat-Q4_K_M.gguf']}" in lines
    assert "  15.0 GiB  big/chat-F16-*-of-00002.gguf  (F16, 2 files)" in lines
    assert f"     sha256 {sums['big/chat-F16-00001-of-00002.gguf']} and 1 more: --json" in lines
    assert "   0.8 GiB  mmproj-chat-f16.gguf  (projector, F16)" in lines
    assert out.count("fits now on") == 2
    assert lines[lines.index("Adapters of org/Chat-8B, by downloads:") + 1] == "         5  else/lora"
    assert lines[lines.index("Quantisations of org/Chat-8B, by downloads:") + 1] == "         7  else/Chat-AWQ"
    assert lines[-1] == "next: llmgw model add org/Chat-8B-GGUF/Q4_K_M"

    page = json.loads(explore("org/Chat-8B-GGUF", "--json")[1])
    split = next(each for each in page["sets"] if each["parts"] == 2)
    assert {file["path"]: file["sha256"] for file in split["files"]} == {
        path: sums[path] for path in sums if path.startswith("big/")
    }


@pytest.mark.parametrize("word", ["{hub}/org/m", "hf://org/m", "org/m@main", "{hub}/org/m/tree/main", "org/m@{commit}"])
def test_a_repository_is_understood_however_it_is_written(explore, hub, word):
    commit = hub.put("org/m", {"m.gguf": Sized(HEADER, 1_000_000_000)})

    code, out, _ = explore(word.format(hub=hub.endpoint, commit=commit))

    assert code == Exit.DONE
    assert out.startswith(f"org/m  {commit[:12]}\n")


def test_a_gated_repository_says_how_it_is_had(explore, hub):
    put_eight_b(hub, gated="manual", gguf={"architecture": "llama"})

    _, out, _ = explore("org/Chat-8B-GGUF")

    assert f"It is gated: accept its terms at {hub.endpoint}/org/Chat-8B-GGUF,\n" in out
    assert "--token-file FILE, or HF_TOKEN" in out


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        (
            {"pytorch_model.bin": Sized(b"PK", 1 << 30)},
            [
                "   1.0 GiB  *.bin  (pickled)",
                f"{PAD}does not run: loading pickled weights runs whatever code is in them;",
            ],
        ),
        ({"adapter_model.safetensors": Sized(b"", 1 << 30)}, ["   1.0 GiB  adapter_model.safetensors  (adapter)"]),
        (
            {"m-00001-of-00002.gguf": Sized(HEADER, 1 << 30)},
            [
                "   1.0 GiB  m-*-of-00002.gguf",
                f"{PAD}does not run: 1 of its 2 parts are here",
                "Nothing of it runs here.",
            ],
        ),
        (
            {f"model-0000{n}-of-00002.safetensors": Sized(safetensors_header(), 1 << 30) for n in (1, 2)},
            ["   2.0 GiB  *.safetensors  (2 files)"],
        ),
        ({"README.md": b"# Words"}, ["It has no weights."]),
        ({"a b.gguf": Sized(HEADER, 1000)}, ["1 file with a name that no node would write left out."]),
    ],
)
def test_what_is_no_model_is_listed_as_what_it_is(explore, hub, files, lines):
    hub.put("org/odd", files)

    code, out, err = explore("org/odd")

    assert (code, err) == (Exit.DONE, "")
    for line in lines:
        assert line in out.splitlines()


def test_a_base_model_lists_its_adapters(explore, hub):
    hub.put("org/Chat", {"model.safetensors": Sized(safetensors_header(), 10**9), "config.json": CONFIG})
    hub.put("else/lora", {"adapter_model.safetensors": b"1"}, base_model="org/Chat", relation="adapter", downloads=5)

    _, out, _ = explore("org/Chat")

    assert "Adapters of org/Chat, by downloads:\n         5  else/lora\n" in out


@pytest.mark.parametrize(
    ("word", "what", "code"),
    [
        ("org/none", "is not there", Exit.REFUSED),
        ("org/secret", "is not there", Exit.REFUSED),
        ("org/off", "is disabled", Exit.REFUSED),
        ("org/m@gone", "is gone", Exit.REFUSED),
        ("org/down", "cannot be read", Exit.UNREACHABLE),
        ("org/odd", "does not answer as a hub does", Exit.PROBLEM),
    ],
)
def test_a_repository_that_cannot_be_seen_is_a_sentence(explore, hub, word, what, code):
    for name in ("m", "down", "odd"):
        hub.put(f"org/{name}", {"m.gguf": Sized(HEADER, 10**9)})
    hub.put("org/secret", {"m.gguf": Sized(HEADER, 10**9)}, private=True)
    hub.put("org/off", {"m.gguf": Sized(HEADER, 10**9)}, disabled=True)
    hub.answers["org/down"] = [Answer(status=429, headers={"Retry-After": "600"})]
    hub.answers["org/odd"] = [Answer(page=b"<html>")]

    got, out, err = explore(word)

    assert (got, out) == (code, "")
    assert what in err
    assert "next: " in err


@pytest.mark.parametrize(
    "words", ["a/b/c/d", "..", "a\x00b", "%2e%2e/x", "a" * 5000, "--", "-", "@", "a@b", "hf://", "ü/ö"]
)
def test_odd_words_are_searched_for_and_break_nothing(explore, words):
    code, _, err = explore("--", words) if words.startswith("-") else explore(words)

    assert code in {Exit.DONE, Exit.REFUSED, Exit.USAGE}
    assert "Traceback" not in err


def test_a_fleet_that_no_file_tells_of_is_refused(hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)

    assert run(["explore", "chat", "--fleet", "/none.yaml"]) == Exit.REFUSED
    assert "/none.yaml cannot be read" in capsys.readouterr().err
