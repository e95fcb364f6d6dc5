"""`llmgw plan` in a working copy: what is seen from the status branch, what is compared, and what is printed."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from llmgw.cli.main import run
from llmgw.errors import Exit
from llmgw.sources.status_branch import StatusBranch

pytestmark = pytest.mark.needs_git

ROOT = Path(__file__).parents[2]
READY = {"gpu": ["ready", "ready"], "slow": ["ready"]}
CODER = "catalog/coder.yaml"


def planned(copy, *words: str) -> dict:
    """The plan as JSON. It is what its schema says, and the text says the same of the outcome."""
    code, out, _ = copy.run("plan", "--json", "--detailed-exitcode", *words)
    plan = json.loads(out)
    Draft202012Validator(json.loads((ROOT / "schema/plan.schema.json").read_text())).validate(plan)
    text_code, text, _ = copy.run("plan", "--detailed-exitcode", *words)
    markdown_code, markdown, _ = copy.run("plan", "--format", "markdown", "--detailed-exitcode", *words)
    assert code == text_code == markdown_code
    (headline,) = re.findall(r"^result: (.*)  \(plan", text, re.MULTILINE)
    assert f"### llmgw plan: {headline}" in markdown
    # hashicorp/terraform#36403, #37406, #35117: the code said changes and the text said none.
    assert (code == Exit.CHANGES) == (headline != "nothing to do" and code != Exit.HELD)
    return plan


def changed(copy, old: str, new: str, path: str = CODER) -> None:
    text = copy.text(path)
    assert old in text
    copy.git.commit({path: text.replace(old, new).encode()}, "a change")


def test_a_settled_fleet_without_a_change_has_an_empty_plan_in_each_form(copy):
    copy.see(**READY)

    plan = planned(copy, "--base", "HEAD")

    assert (plan["models"], plan["steps"], plan["server"], plan["keys"]) == ([], [], [], [])


@pytest.mark.parametrize("what", ["comments", "rename", "order", "readme"])
def test_what_means_the_same_is_an_empty_plan(copy, what):
    """A commit that changes only YAML comments; a file that only has another name."""
    copy.see(**READY)
    text = copy.text()
    if what == "comments":
        copy.git.commit({CODER: text.replace("# tokens", "# of a request").encode()})
    elif what == "rename":
        copy.git.commit({CODER: None, "catalog/code/other.yaml": text.encode()})
    elif what == "order":
        copy.git.commit({CODER: text.replace("name: coder\n", "").encode() + b"name: coder\n"})
    else:
        copy.git.commit({"README.md": b"words"})

    plan = planned(copy, "--base", "HEAD~1")

    assert (plan["models"], plan["steps"]) == ([], [])


def test_each_field_has_its_line_and_what_it_does_and_secrets_are_only_named(copy):
    """diggerhq/digger#2677: secrets in clear text in the comment of a pull request."""
    copy.see(**READY)
    changed(copy, "context_length: 4096", "context_length: 2048")
    more = "    env: {HF_TOKEN: hunter2}\n    args: [--api-token, hunter3]\n"
    changed(copy, "    replicas: 1\n", f"    replicas: 1\n{more}")
    changed(copy, "aliases: [code]", "aliases: [code, c0de]")

    plan = planned(copy, "--base", "HEAD~3")

    (model,) = plan["models"]
    assert [(f["field"], f["path"], f["line"], f["hidden"]) for f in model["fields"]] == [
        ("aliases", CODER, 3, False),
        ("context_length", CODER, 5, False),
        ("profiles.slow.args", CODER, 18, True),
        ("profiles.slow.env.HF_TOKEN", CODER, 17, True),
    ]
    for how in ("text", "markdown", "json"):
        printed = copy.run("plan", "--base", "HEAD~3", "--format", how)[1]
        assert "hunter" not in printed
        assert "HF" in printed
    assert "c0de can be asked for" in model["noticed"]
    assert model["interruption"] is None


def test_a_field_that_is_brought_in_has_its_line_in_server_yaml(copy):
    server = copy.text("server.yaml")
    copy.git.commit({"server.yaml": f"{server}defaults:\n  profile:\n    parallel: 2\n".encode()})
    copy.see(**READY)
    changed(copy, "parallel: 2", "parallel: 4", "server.yaml")

    (model,) = planned(copy, "--base", "HEAD~1")["models"]

    assert {(f["field"], f["path"], f["line"]) for f in model["fields"]} == {
        ("profiles.gpu.parallel", "server.yaml", 9),
        ("profiles.slow.parallel", "server.yaml", 9),
    }


def test_a_base_that_moved_is_said_since_a_plan_merges_nothing(copy):
    """runatlantis/atlantis#2084: a plan against an old base took back what had just been merged."""
    copy.git("checkout", "-q", "-b", "mine")
    changed(copy, "replicas: 1\n", "replicas: 2\n")
    copy.git("checkout", "-q", "main")
    changed(copy, "# tokens", "# of a request")

    moved = planned(copy, "--base", "main", "--head", "mine")["warnings"]
    current = planned(copy, "--base", "main~1", "--head", "mine")["warnings"]

    assert len(moved) == 1
    assert "is not among the commits before" in moved[0]
    assert "merge or rebase first" in moved[0]
    assert current == []


def test_a_base_that_the_fleet_does_not_run_yet_is_said_and_one_that_asks_for_the_same_is_not(copy):
    copy.see(**READY)
    copy.git.commit({"README.md": b"words"})
    same = planned(copy, "--base", "HEAD")["warnings"]
    changed(copy, "replicas: 1\n", "replicas: 2\n")
    changed(copy, "replicas: 2\n", "replicas: 3\n")

    (other,) = planned(copy, "--base", "HEAD~1")["warnings"]

    assert same == []
    assert "the fleet has carried out cccccccc and not the base" in other


def test_a_status_branch_of_another_version_is_a_warning_and_its_age_is_said(copy):
    copy.see(**READY)
    branch = StatusBranch(str(copy.root), "lab", copy.root / ".git")
    files = dict(branch.read().files)
    files["summary.yaml"] = files["summary.yaml"].replace(b"llmgw: 0.1.0", b"llmgw: 0.0.9")
    branch.write(files, subject="by an older one", author="llmgw <llmgw@lab>", now=1_800_000_000)
    branch.close()

    plan = planned(copy, "--base", "HEAD")

    assert any("written by llmgw 0.0.9" in warning for warning in plan["warnings"])
    assert re.fullmatch(r"status branch [0-9a-f]{8}, \d+[smhd] old", plan["observed"])


def test_a_plan_asks_nobody_unless_it_is_told_to(copy, monkeypatch):
    def refused(*_: object) -> None:
        raise AssertionError("a connection was opened")

    copy.see(**READY)
    changed(copy, "replicas: 1\n", "replicas: 2\n")
    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)

    assert [m["name"] for m in planned(copy, "--base", "HEAD~1")["models"]] == ["coder"]


def test_nothing_of_the_repository_is_run(copy, tmp_path):
    """Its hooks, filters and configured programs belong to whoever wrote the pull request."""
    ran = tmp_path / "ran"
    copy.git("config", "core.fsmonitor", f"touch {ran}")
    copy.git("config", "filter.x.smudge", f"touch {ran}")
    copy.git("config", "filter.x.clean", f"touch {ran}")
    (copy.root / ".gitattributes").write_text("* filter=x\n")
    (copy.root / "catalog" / "conftest.py").write_text(f"open({str(ran)!r}, 'w')")

    assert copy.run("plan", "--worktree", "--observed", "none")[0] == Exit.DONE
    assert not ran.exists()


def test_drift_stands_apart_and_changes_neither_headline_nor_code(copy):
    """hashicorp/terraform#28803: noise of drift in every plan."""
    copy.see(gpu=["ready", "ready"])  # the slow one is not there

    plan = planned(copy, "--base", "HEAD")
    code, text, _ = copy.run("plan", "--base", "HEAD", "--detailed-exitcode")

    assert plan["models"] == []
    assert [(m["name"], [s["id"] for s in m["starts"]]) for m in plan["drift"]["models"]] == [
        ("coder", ["coder/slow/0"])
    ]
    assert code == Exit.DONE
    assert "drift, which this change neither causes nor cures" in text
    assert "result: nothing to do" in text


def test_a_removal_that_is_held_still_shows_everything_and_the_line_to_paste(copy):
    """hashicorp/terraform#30271: a guard stopped the plan before it showed what it guarded."""
    copy.git.commit({"server.yaml": copy.text("server.yaml").encode() + b"policy: {max_removals: 0}\n"})
    copy.see(**READY)
    other = copy.text().replace("name: coder", "name: new").replace("[code]", "[n]")
    copy.git.commit({CODER: None, "catalog/new.yaml": other.encode()})

    plan = planned(copy, "--base", "HEAD~1")
    code, text, _ = copy.run("plan", "--base", "HEAD~1")

    assert code == Exit.HELD
    assert "`Llmgw-Allow-Removals: 1`" in text
    assert [m["name"] for m in plan["models"] if m["action"] == "create"] == ["new"]


def test_out_has_the_same_text_and_its_first_line_is_the_comments_marker(copy, tmp_path):
    copy.see(**READY)
    changed(copy, "replicas: 1\n", "replicas: 2\n")
    file = tmp_path / "plan.md"

    _, out, _ = copy.run("plan", "--base", "HEAD~1", "--format", "markdown", "--out", str(file))

    assert file.read_text() == out
    assert out.splitlines()[0] == "<!-- llmgw-plan:lab -->"


def test_an_out_that_cannot_be_written_is_said(copy, tmp_path):
    code, _, err = copy.run("plan", "--observed", "none", "--out", str(tmp_path))

    assert code == Exit.REFUSED
    assert "the plan was not written" in err


def test_every_field_of_a_plan_is_described_in_its_schema():
    schema = json.loads((ROOT / "schema/plan.schema.json").read_text())

    assert run(["schema", "--check"]) == Exit.DONE
    assert schema["$defs"]["Preview"]["properties"]["format_version"] == {"type": "string"}
    assert all(part.get("description") for part in schema["$defs"].values())
