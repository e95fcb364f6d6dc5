"""What does not fit a field is said in words, where it stands, with what to write instead."""

from __future__ import annotations

import pytest
from catalog.written import GONE, KEY, LOCK, MODEL, SERVER, as_yaml, changed

from llmgw.catalog import schema
from llmgw.catalog.check import read_keys, read_lock, read_models, read_server
from llmgw.catalog.forms import FORMS, NAME
from llmgw.catalog.keys import ClientKey
from llmgw.catalog.lock import Lock
from llmgw.catalog.model import Model
from llmgw.catalog.server import Server

PATH = "catalog/a.yaml"
GPU = ("profiles", 0)


def said(text: str | bytes) -> list[str]:
    """Every problem of a file of models, without its path."""
    data = text if isinstance(text, bytes) else text.encode()
    return [str(p).removeprefix(f"{PATH}:") for p in read_models(PATH, data).problems]


def test_the_sample_with_every_field_is_good():
    assert said(as_yaml(MODEL)) == []
    assert read_server(as_yaml(SERVER))[1] == ()
    assert read_keys("keys/a.yaml", as_yaml(KEY)).problems == ()


def test_a_problem_reads_like_this():
    assert said("name: coder\nprofiles:\n- {name: gpu, engine: llamacpp, replicas: three, memory_gib: 4}\n") == [
        """1:1: `context_length` is missing
  because a model needs it: tokens one request may use, prompt and answer together
  next: add `context_length:` with a whole number from 1 to 100000000""",
        """1:1: `source` is missing
  because a model needs it: where its weights come from
  next: add `source:` with a mapping with the keys of a source""",
        """3:43: `profiles[0].replicas` cannot be `three`
  because it is text, and a whole number from 0 to 100000 belongs here
  next: write one""",
    ]


def test_a_problem_reads_like_this_on_one_line():
    (problem,) = read_models(PATH, as_yaml(changed(MODEL, (("state",), "stoped")))).problems

    assert problem.line_form() == (
        "catalog/a.yaml:10:11: `state` cannot be `stoped`: one of `running`, `stopped` belongs here; write `stopped`"
    )


@pytest.mark.parametrize(
    ("at", "value", "what", "do"),
    [
        pytest.param(
            (*GPU, "engine"), "llama.cpp", "cannot be `llama.cpp`", "write `llamacpp`", id="an unknown engine"
        ),
        pytest.param((*GPU, "engine"), "x", "cannot be `x`", "write one of these", id="an engine like no other"),
        pytest.param((*GPU, "replicas"), "7", "cannot be `7`", "write it without quotes: 7", id="a quoted number"),
        pytest.param((*GPU, "replicas"), True, "cannot be `true`", "write one", id="a boolean for a number"),
        pytest.param((*GPU, "replicas"), -1, "cannot be `-1`", "write one in that range", id="a number too low"),
        pytest.param((*GPU, "replicas"), 1.5, "cannot be `1.5`", "write one in that range", id="half a replica"),
        pytest.param((*GPU, "parallel"), None, "cannot be `null`", "write one, or take the key out", id="nothing"),
        pytest.param(("context_length",), None, "cannot be `null`", "write one", id="nothing for what has to be there"),
        pytest.param((*GPU, "memory_gib"), 0, "cannot be `0`", "write one in that range", id="no memory"),
        pytest.param((*GPU, "start_timeout"), "soon", "cannot be `soon`", "write one like `15m`", id="no duration"),
        pytest.param((*GPU, "start_timeout"), " 15m", "cannot be ` 15m`", "write one like `15m`", id="a space"),
        pytest.param((*GPU, "start_timeout"), "2y", "cannot be `2y`", "write one like `15m`", id="an unknown unit"),
        pytest.param(
            (*GPU, "gpu"),
            "l40s",
            "cannot be `l40s`",
            "write its keys on lines of their own, indented",
            id="a word for a mapping",
        ),
        pytest.param(
            (*GPU, "args"), "--mlock", "cannot be `--mlock`", "write it as a list: [--mlock]", id="a word for a list"
        ),
        pytest.param(
            (*GPU, "node_selector"),
            {"rack": 12},
            ".rack` cannot be `12`",
            'write it in quotes: "12"',
            id="a number for a label",
        ),
        pytest.param(("name",), "My Model", "cannot be `My Model`", "write `my-model`", id="no name"),
        pytest.param(
            ("name",), "日本", "cannot be `日本`", "write one like `qwen3-8b`", id="a name with no letter of ours"
        ),
        pytest.param(
            ("aliases",), ["Org/Model:8B"], "[0]` cannot be `Org/Model:8B`", "write `org/model:8b`", id="no alias"
        ),
        pytest.param(
            ("source", "version"), 2026, "cannot be `2026`", 'write it in quotes: "2026"', id="a number for a version"
        ),
        pytest.param(
            ("source", "sha256"),
            "AB" * 32,
            f"cannot be `{'AB' * 29}A…`",
            f"write `{'ab' * 32}`",
            id="a hash in capitals",
        ),
        pytest.param(("source", "sha256"), "ab", "cannot be `ab`", "write that", id="half a hash"),
        pytest.param(("profiles",), [], "is empty", "add one", id="no profile"),
        pytest.param(
            ("profiles", 1),
            3,
            "cannot be `3`",
            "write its keys on lines of their own, indented",
            id="a number for a profile",
        ),
        pytest.param(("aliases",), ["a"] * 65, "is too long", "shorten it", id="too many aliases"),
        pytest.param(("description",), "x" * 2001, f"cannot be `{'x' * 59}…`", "write that", id="too much text"),
        pytest.param(("max_ouput",), 1, "is not a key of a model", "write `max_output`", id="a key with a slip"),
        pytest.param(
            ("class_",), "standard", "is not a key of a model", "write `class`", id="a field as Python has it"
        ),
        pytest.param(
            ("replicas",), 1, "is not a key of a model", "move it to a profile", id="a key in the wrong place"
        ),
        pytest.param((*GPU, "port"), 80, "is not a key of a profile", "take it out", id="VO6 a port"),
        pytest.param(("zzz",), 1, "is not a key of a model", "take it out", id="a key like no other"),
    ],
)
def test_a_value_that_does_not_fit_is_said_with_what_to_write(at, value, what, do):
    (problem,) = read_models(PATH, as_yaml(changed(MODEL, (at, value)))).problems

    assert problem.what.endswith(what)
    assert problem.do == do
    assert problem.model == ("coder" if at != ("name",) else "")


def test_vo6_a_port_is_refused_with_who_chooses_it():
    (problem,) = read_models(PATH, as_yaml(changed(MODEL, ((*GPU, "port"), 80)))).problems

    assert problem.why == "ports are never in the catalog: the agent chooses one (7500 to 7999)"


def test_the_number_that_was_written_is_shown_and_not_what_it_stands_for():
    text = as_yaml(MODEL).replace(b'"2026-11"', b"7e123456")

    assert [p.what for p in read_models(PATH, text).problems] == ["`source.version` cannot be `7e123456`"]


def test_a_key_that_is_not_known_is_pointed_at_and_a_value_that_does_not_fit_too():
    text = b"name: coder\nclass: best\nclass_: standard\n"

    found = {p.what: (p.line, p.column) for p in read_models(PATH, text).problems}

    assert found["`class` cannot be `best`"] == (2, 8)
    assert found["`class_` is not a key of a model"] == (3, 1)


def test_a_field_as_python_has_it_is_no_key():
    text = as_yaml(changed(MODEL, (("class",), GONE), (("class_",), "standard")))

    assert [(p.what, p.do) for p in read_models(PATH, text).problems] == [
        ("`class_` is not a key of a model", "write `class`")
    ]


def test_a_key_with_a_slip_is_not_also_missing():
    text = as_yaml(changed(MODEL, (("context_length",), GONE), (("contextlength",), 4096)))

    assert [p.what for p in read_models(PATH, text).problems] == ["`contextlength` is not a key of a model"]


@pytest.mark.parametrize("written", ["4096", "4096.0", "0x1000", "0o10000", "4.096e3", "+4096"])
def test_however_a_whole_number_is_written_it_is_the_same(written):
    text = as_yaml(MODEL).replace(b'"context_length": 4096', f'"context_length": {written}'.encode())

    assert [e.model.context_length for e in read_models(PATH, text).models] == [4096]


@pytest.mark.parametrize("written", ["90", "90s", "1m30s", "1.5m", "90000ms", "9e1"])
def test_however_a_duration_is_written_it_is_the_same(written):
    text = as_yaml(MODEL).replace(b'"drain_timeout": 90', f'"drain_timeout": {written}'.encode())

    assert [e.model.profiles[0].drain_timeout for e in read_models(PATH, text).models] == [90.0]


def test_every_problem_is_found_in_one_run_rules_included():
    text = as_yaml(
        changed(
            MODEL,
            (("aliases",), ["coder"]),
            (("owner",), 7),
            (("max_output",), 5000),
            ((*GPU, "args"), ["--port=1"]),
            (("profiles", 1, "threads"), 0),
            (("profiles", 1, "colour"), "red"),
        )
    )

    assert [p.what for p in read_models(PATH, text).problems] == [
        "the alias coder is the model's own name",
        "`owner` cannot be `7`",
        "`max_output` 5000 is over `context_length` 4096",
        "`--port` is in the args of profile gpu",
        "`profiles[1].threads` cannot be `0`",
        "`profiles[1].colour` is not a key of a profile",
    ]


def test_a_rule_does_not_judge_what_was_refused_for_its_type():
    text = as_yaml(changed(MODEL, (("source", "version"), 1.1)))

    assert [p.what for p in read_models(PATH, text).problems] == ["`source.version` cannot be `1.1`"]


def test_an_alias_in_a_file_is_said_once_and_not_as_a_wrong_value_too():
    text = (
        b"name: a\nsource: *x\ncontext_length: 1\nprofiles: [{<<: {parallel: 2}, name: b, engine: vllm, replicas: 1}]\n"
    )

    assert [p.what for p in read_models(PATH, text).problems] == [
        "an alias `*x` is in the file",
        "a merge key `<<` is in the file",
    ]


def test_a_password_in_a_url_is_not_repeated():
    text = as_yaml(changed(SERVER, (("mirror", "base"), "http://ana:secret@mirror/")))

    (problem,) = read_server(text)[1]

    assert problem.what == "`mirror.base` cannot be `http://…@mirror/`"


def test_a_thousand_problems_are_not_listed_one_by_one():
    text = as_yaml([{"name": f"m{n}"} for n in range(1000)])

    found = read_models(PATH, text)

    assert len(found.problems) == 100
    assert (len(found.names), found.models, found.readable) == (1000, (), True)


def refused_server(**more) -> list[tuple[str, str, str]]:
    return [(p.what, p.why, p.do) for p in read_server(as_yaml({**SERVER, **more}))[1]]


@pytest.mark.parametrize(
    ("blocks", "what", "do"),
    [
        ({"A b": {"owner": "x"}}, "`blocks` cannot have the key `A b`", "write `a-b`"),
        ({"": {"owner": "x"}}, "`blocks` cannot have an empty key", "write `qwen3-8b`"),
    ],
)
def test_a_block_whose_name_is_none_is_told_of_its_name(blocks, what, do):
    why = f"its keys are each {FORMS[NAME]}"

    assert refused_server(blocks=blocks) == [(what, why, do)]


@pytest.mark.parametrize(
    ("written", "what", "why", "do"),
    [
        (
            {"defaults": {"aliases": ["a"]}},
            "`defaults.aliases` is not a key of the defaults",
            "each model has its own",
            "take it out, and write it in each model",
        ),
        (
            {"blocks": {"nm": {"name": "x"}}},
            "`blocks.nm.name` is not a key of the defaults",
            "each model has its own",
            "take it out, and write it in each model",
        ),
        (
            {"defaults": {"profile": {"name": "x"}}},
            "`defaults.profile.name` is not a key of the profile defaults",
            "each profile has its own",
            "take it out, and write it in each profile",
        ),
    ],
)
def test_what_each_model_has_for_itself_is_not_moved_elsewhere(written, what, why, do):
    assert refused_server(**written) == [(what, why, do)]


@pytest.mark.parametrize(
    ("at", "value", "why", "do"),
    [
        pytest.param((*GPU, "disk"), -1, None, "write a number from 0 to 1152921504606846976", id="a size"),
        pytest.param((*GPU, "start_timeout"), -5, None, "write a number from 0 to 31536000", id="a duration"),
        pytest.param((*GPU, "parallel"), 0, None, "write one in that range", id="a range that was said"),
        pytest.param(
            (*GPU, "gpu", "memory"),
            "80GB..24GiB",
            "it ends before it begins",
            "write `24GiB..80GB`",
            id="a range of sizes",
        ),
        pytest.param(
            (*GPU, "gpu", "compute_capability"),
            "9.0..8",
            "it ends before it begins",
            "write `8..9.0`",
            id="a range of numbers",
        ),
        pytest.param(
            (*GPU, "gpu", "count"),
            "2..4",
            "it is text, and a whole number from 1 to 64 belongs here",
            "write one number: no range is taken here",
            id="a range for a number",
        ),
    ],
)
def test_a_range_is_spoken_of_where_there_is_one(at, value, why, do):
    (problem,) = read_models(PATH, as_yaml(changed(MODEL, (at, value)))).problems

    assert problem.why == (why or problem.why)
    assert problem.do == do


def test_the_one_version_of_the_format_is_named():
    assert refused_server(schema=2) == [("`schema` cannot be `2`", "`1` belongs here", "write 1")]


def patterns(part: object) -> set[str]:
    """Every pattern in a schema."""
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    here = {part["pattern"]} if isinstance(part, dict) and isinstance(part.get("pattern"), str) else set()
    return here.union(*map(patterns, parts))


@pytest.mark.parametrize("kind", [Model, Server, ClientKey, Lock])
def test_every_form_of_text_has_words(kind):
    assert patterns(schema.of(kind)) <= FORMS.keys()


def test_a_path_that_leads_out_of_a_version_is_told_what_a_path_is():
    lock = {**LOCK, "files": [{"path": "../../etc/x"}]}

    (problem,) = read_lock("locks/coder.yaml", as_yaml(lock)).problems

    assert problem.what == "`files[0].path` cannot be `../../etc/x`"
    assert problem.why.startswith("a path of at most four parts, ")
