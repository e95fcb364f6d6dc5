"""`llmgw model context, gpus, alias, adapter, set`: what each writes, and what it refuses."""

from __future__ import annotations

import pytest
from cli.conftest import CODER

from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        pytest.param(
            ["context", "coder", "8192"],
            ["-context_length: 4096   # tokens", "+context_length: 8192   # tokens"],
            id="the tokens of a request",
        ),
        pytest.param(["context", "coder", "--max-output", "512"], ["+max_output: 512"], id="those of an answer alone"),
        pytest.param(
            ["context", "coder", "8192", "--max-output", "512"],
            ["-context_length: 4096   # tokens", "+context_length: 8192   # tokens", "+max_output: 512"],
            id="both",
        ),
        pytest.param(
            ["gpus", "coder", "2"],
            ["-    gpu: {class: l40s-48g, count: 1}", "+    gpu: {class: l40s-48g, count: 2}"],
            id="the cards of the only profile with cards",
        ),
        pytest.param(
            ["gpus", "coder", "gpu=4"],
            ["-    gpu: {class: l40s-48g, count: 1}", "+    gpu: {class: l40s-48g, count: 4}"],
            id="the cards of a profile",
        ),
        pytest.param(
            ["alias", "coder", "org/coder:30b", "c"],
            ["-aliases: [code]", "+aliases: [code, org/coder:30b, c]"],
            id="two aliases more",
        ),
        pytest.param(
            ["alias", "code", "c", "--remove", "code"], ["-aliases: [code]", "+aliases: [c]"], id="one for another"
        ),
        pytest.param(["alias", "coder", "--remove", "code"], ["-aliases: [code]"], id="the last alias less"),
        pytest.param(
            ["adapter", "coder", "sql", "https://a.example/sql.gguf", "--scale", "0.5"],
            [
                "-source: {from: /m.gguf}",
                "+source: {from: /m.gguf, adapters: [{name: sql, source: https://a.example/sql.gguf, scale: 0.5}]}",
            ],
            id="an adapter",
        ),
        pytest.param(
            ["set", "coder", "description", "Slow: but # sure"], ['+description: "Slow: but # sure"'], id="a text"
        ),
        pytest.param(["set", "coder", "owner", "7"], ['+owner: "7"'], id="a text that looks like a number"),
        pytest.param(["set", "coder", "profiles.slow.parallel", "3"], ["+    parallel: 3"], id="a number"),
        pytest.param(["set", "coder", "profiles[1].parallel", "3"], ["+    parallel: 3"], id="by the place in a list"),
        pytest.param(["set", "coder", "profiles.slow.start_timeout", "15m"], ["+    start_timeout: 15m"], id="a time"),
        pytest.param(
            ["set", "coder", "profiles.gpu.args", '[--jinja, -ngl, "99", -v]'],
            ['-    args: [--jinja, -ngl, "99"]', '+    args: [--jinja, -ngl, "99", -v]'],
            id="a list, of which the new item is written",
        ),
        pytest.param(
            ["set", "coder", "profiles.slow.node_selector.room", "a"],
            ["+    node_selector: {room: a}"],
            id="a key in a mapping that was not there",
        ),
        pytest.param(["set", "coder", "profiles.slow.priority", "--unset"], ["-    priority: 10"], id="none"),
    ],
)
def test_each_writes_what_is_asked_and_nothing_else(copy, words, changed):
    code, _, err = copy.run("model", *words)

    assert (code, err) == (Exit.DONE, "")
    assert copy.changed() == changed


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["context", "coder"], Exit.USAGE, "neither TOKENS nor --max-output is given", id="no tokens"),
        pytest.param(
            ["context", "coder", "--max-output", "9999"],
            Exit.REFUSED,
            "next: write at most 4096",
            id="over the context",
        ),
        pytest.param(["gpus", "coder", "0"], Exit.USAGE, "a replica takes one or more", id="no card"),
        pytest.param(["gpus", "coder", "slow=1"], Exit.REFUSED, "slow of coder takes no card", id="cards of a CPU"),
        pytest.param(["alias", "coder"], Exit.USAGE, "no alias is given", id="no alias"),
        pytest.param(
            ["alias", "coder", "--remove", "cod"], Exit.REFUSED, "next: did you mean code?", id="an alias it has not"
        ),
        pytest.param(["alias", "coder", "coder"], Exit.REFUSED, "is the model's own name", id="its own name"),
        pytest.param(["set", "coder", "owner"], Exit.USAGE, "VALUE and --unset", id="no value"),
        pytest.param(["set", "coder", "owner", "a", "--unset"], Exit.USAGE, "VALUE and --unset", id="a value and none"),
        pytest.param(["set", "coder", "a..b", "1"], Exit.USAGE, "a key in it is empty", id="an empty key"),
        pytest.param(["set", "coder", "profiles.gpus.parallel", "1"], Exit.REFUSED, "did you mean gpu?", id="no item"),
        pytest.param(
            ["set", "coder", "profiles[7].parallel", "1"], Exit.REFUSED, "the list has 2 items", id="no place"
        ),
        pytest.param(["set", "coder", "profiles.gpu.parallel", "[1"], Exit.USAGE, "[1 is no value", id="no YAML"),
        pytest.param(
            ["set", "coder", "profiles.gpu.args", "[--port, '9000']"], Exit.REFUSED, "the agent chooses", id="a port"
        ),
        pytest.param(["set", "coder", "name", "--unset"], Exit.REFUSED, "`name` is missing", id="what has to be there"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(copy, words, code, said):
    got, out, err = copy.run("model", *words)

    assert (got, out) == (code, "")
    assert said in err
    assert copy.clean()


def test_an_alias_that_another_model_has_is_refused(copy):
    other = copy.text().replace("name: coder", "name: other").replace("aliases: [code]", "aliases: [taken]")
    copy.git.commit({"catalog/other.yaml": other.encode()})

    code, _, err = copy.run("model", "alias", "coder", "taken")

    assert code == Exit.REFUSED
    assert "the name taken is taken twice" in err
    assert copy.clean()


def test_what_an_alias_less_means_is_said(copy):
    _, out, _ = copy.run("model", "alias", "coder", "--remove", "code")

    assert out.startswith("Requests for code are refused from then on.\n")


def test_a_profile_with_dots_in_its_name_is_found_by_it(copy):
    copy.git.commit({"catalog/coder.yaml": copy.text().replace("name: slow", "name: gpu.v2").encode()})

    assert copy.run("model", "set", "coder", "profiles.gpu.v2.parallel", "3")[0] == Exit.DONE

    assert copy.changed() == ["+    parallel: 3"]


def test_an_adapter_is_added_changed_and_taken_away(copy):
    copy.run("model", "adapter", "coder", "sql", "https://a.example/sql.gguf", "--commit")

    copy.run("model", "adapter", "coder", "sql", "--scale", "2")
    scaled = copy.changed()
    copy.run("model", "adapter", "coder", "sql", "--remove")

    assert scaled[1].endswith("adapters: [{name: sql, source: https://a.example/sql.gguf, scale: 2}]}")
    assert copy.text().splitlines()[3] == "source: {from: /m.gguf}"
    assert copy.run("model", "adapter", "coder", "sql", "--remove")[0] == Exit.REFUSED
    assert copy.run("model", "adapter", "coder", "new")[0] == Exit.USAGE


def test_a_field_that_does_not_act_yet_is_said_to_be_planned(copy):
    code, out, _ = copy.run("model", "set", "coder", "profiles.gpu.start_timeout", "auto")

    assert code == Exit.DONE
    assert out.startswith("`profiles[0].start_timeout` is planned: it is checked, and does not act yet.\n")


def test_another_source_under_the_same_version_is_refused(copy):
    copy.from_a_hub()

    code, _, err = copy.run("model", "set", "coder", "source.from", "hf://org/other@main/*Q4*.gguf")

    assert code == Exit.REFUSED
    assert err == (
        "error: catalog/coder.yaml was not edited\n"
        "  because its source would be another one under the version v1, which the files of the one before have\n"
        "  next: give it a new version first: llmgw model set coder source.version VERSION\n"
    )
    assert copy.clean()


def test_under_a_new_version_another_source_is_written(copy):
    copy.from_a_hub()
    copy.run("model", "set", "coder", "source.version", "v2")

    assert copy.run("model", "set", "coder", "source.from", "hf://org/other@main/*Q4*.gguf")[0] == Exit.DONE

    assert copy.changed() == [
        "-source: {from: hf://org/coder@main/*Q4*.gguf, version: v1}",
        '+source: {from: "hf://org/other@main/*Q4*.gguf", version: v2}',
    ]


def test_the_same_file_from_another_place_keeps_its_version(copy):
    summed = f"https://a.example/m.gguf, version: v1, sha256: {'ab' * 32}".encode()
    copy.git.commit({"catalog/coder.yaml": CODER.replace(b"/m.gguf", summed)})

    assert copy.run("model", "set", "coder", "source.from", "https://b.example/m.gguf")[0] != Exit.REFUSED


def test_what_a_rename_ends_is_said(copy):
    model = copy.run("model", "set", "coder", "name", "writer")[1]
    copy.git("restore", ".")
    profile = copy.run("model", "set", "coder", "profiles.gpu.name", "cards")[1]

    assert model.startswith(
        "coder is writer from then on: its replicas end and start again under that name, and requests for coder are "
        "refused unless it is an alias.\n"
    )
    assert profile.startswith("The replicas of gpu end and start again as those of cards.\n")


def test_a_rename_takes_the_lock_along_and_fetches_nothing(copy):
    copy.from_a_hub()

    code, out, _ = copy.run("model", "set", "coder", "name", "writer", "--commit")

    assert code != Exit.REFUSED
    assert "Its weights stay where they are held, and nothing is fetched again.\n" in out
    assert copy.git("ls-files", "locks") == "locks/writer.yaml"
    was, now = copy.git("show", "HEAD~1:locks/coder.yaml"), copy.git("show", "HEAD:locks/writer.yaml")
    assert now.endswith(was.replace("model: coder", "model: writer"))


def test_a_rename_to_what_is_no_name_writes_nothing(copy):
    copy.from_a_hub()

    assert copy.run("model", "set", "coder", "name", "../writer")[0] == Exit.REFUSED
    assert copy.clean()


def test_cards_of_a_model_without_any_need_a_class(copy):
    copy.git.commit({"catalog/coder.yaml": CODER.replace(b"    gpu: {class: l40s-48g, count: 1}\n", b"")})

    code, _, err = copy.run("model", "gpus", "coder", "2")

    assert code == Exit.REFUSED
    assert err == (
        "error: coder takes no card\n"
        "  because none of its profiles has `gpu`\n"
        "  next: say which: llmgw model set coder profiles.PROFILE.gpu '{class: CLASS, count: 2}'\n"
    )


@pytest.mark.parametrize("scale", ["nan", "inf", "-inf"])
def test_what_is_no_scale_is_wrong_usage(copy, scale):
    code, _, err = copy.run("model", "adapter", "coder", "sql", "/sql.gguf", f"--scale={scale}")

    assert code == Exit.USAGE
    assert err.startswith(f"error: {scale} is no scale\n")
    assert copy.clean()
