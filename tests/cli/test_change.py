"""What the commands that edit do with the working copy and with git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli.conftest import CODER

from fakes.real_git import Git
from llmgw.cli.change import Change, How, carry_out
from llmgw.cli.main import COMMANDS, run
from llmgw.cli.workcopy import WorkCopy
from llmgw.errors import Exit, Refused

pytestmark = pytest.mark.needs_git


def test_a_commit_has_the_edited_file_and_the_persons_name(copy):
    code, out, _ = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    commit = copy.git("rev-parse", "HEAD")
    assert code == Exit.DONE
    assert out.endswith(f"\ncommitted {commit[:8]} to main: coder: owner team-code\n")
    assert copy.git("log", "-1", "--format=%an <%ae> %s") == "Ana <ana@lab> coder: owner team-code"
    assert copy.git("show", "--name-only", "--format=", "HEAD") == "catalog/coder.yaml"
    assert copy.clean()


def test_what_else_is_staged_is_left_alone_and_said(copy):
    copy.git.write({"README.md": b"hello\n", "server.yaml": copy.text("server.yaml").encode() + b"# more\n"})
    copy.git("add", "README.md", "server.yaml")

    _, out, _ = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    assert out.endswith("\nstaged before, and left alone: README.md, server.yaml\n")
    assert copy.git("diff", "--cached", "--name-only").split() == ["README.md", "server.yaml"]
    assert copy.git("show", "--name-only", "--format=", "HEAD") == "catalog/coder.yaml"


def test_a_branch_is_made_for_the_commit(copy):
    was = copy.git("rev-parse", "main")

    code, out, _ = copy.run("model", "set", "coder", "owner", "team-code", "--branch", "owner/coder")

    assert code == Exit.DONE
    assert " to owner/coder: " in out
    assert copy.git("symbolic-ref", "--short", "HEAD") == "owner/coder"
    assert (copy.git("rev-parse", "main"), copy.git("rev-parse", "HEAD~1")) == (was, was)


def test_a_push_goes_where_the_branch_follows(copy, tmp_path):
    bare = tmp_path / "fleet.git"
    bare.mkdir()
    Git(bare)("init", "--bare", "-b", "main", ".")
    copy.git("remote", "add", "origin", str(bare))

    code, out, _ = copy.run("model", "set", "coder", "owner", "team-code", "--branch", "mine", "--push")

    assert code == Exit.DONE
    assert out.endswith("\npushed to origin/mine\n")
    assert Git(bare)("rev-parse", "mine") == copy.git("rev-parse", "HEAD")


def test_a_push_that_is_refused_says_so_and_the_commit_stays(copy, tmp_path):
    bare = tmp_path / "fleet.git"
    bare.mkdir()
    Git(bare)("init", "--bare", "-b", "main", ".")
    copy.git("remote", "add", "origin", str(bare))
    copy.git("push", "-q", "origin", "main")
    copy.git("commit", "-q", "--allow-empty", "-m", "another's")
    copy.git("push", "-q", "origin", "main")
    copy.git("reset", "-q", "--hard", "HEAD~1")

    code, out, err = copy.run("model", "set", "coder", "owner", "team-code", "--push")

    assert code == Exit.REFUSED
    assert "\ncommitted " in out
    assert "error: main is committed and not pushed to origin\n" in err
    assert "[rejected]" in err
    assert err.endswith("next: git pull --rebase origin main, and git push\n")


def test_without_a_remote_nothing_is_edited(copy):
    code, out, err = copy.run("model", "set", "coder", "owner", "team-code", "--push")

    assert (code, out) == (Exit.REFUSED, "")
    assert "there is nowhere to push main to" in err
    assert copy.clean()


def test_a_hook_that_refuses_is_heard_and_the_file_is_put_back(copy):
    hook = copy.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'not on a Friday' >&2\nexit 1\n")
    hook.chmod(0o755)

    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--branch", "friday")

    assert code == Exit.REFUSED
    assert err == (
        "error: catalog/coder.yaml was not committed, and is as it was\n"
        "  because not on a Friday\n"
        "  next: mend what it names, and call the command again\n"
    )
    assert copy.clean()
    assert copy.git("branch", "--format=%(refname:short)") == "main"


def test_a_file_with_other_changes_is_not_committed_with_them(copy):
    (copy.root / "catalog/coder.yaml").write_bytes(CODER + b"# mine\n")

    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    assert code == Exit.REFUSED
    assert err.startswith("error: catalog/coder.yaml was not edited\n  because it has changes that are not committed")
    assert copy.changed() == ["+# mine"]
    assert copy.run("model", "set", "coder", "owner", "team-code")[0] == Exit.DONE
    assert copy.changed() == ["+owner: team-code", "+# mine"]


@pytest.mark.parametrize(
    ("branch", "why"),
    [("main", "there is a branch main already"), ("a..b", "a..b is no name for a branch")],
)
def test_a_branch_that_cannot_be_made_is_refused_before_the_edit(copy, branch, why):
    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--branch", branch)

    assert code == Exit.REFUSED
    assert why in err
    assert copy.clean()


def test_on_no_branch_a_commit_needs_one(copy):
    copy.git("checkout", "-q", "--detach")

    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    assert code == Exit.REFUSED
    assert "no branch is checked out here" in err
    assert copy.clean()


def test_a_person_git_does_not_know_is_told_before_the_edit(copy, monkeypatch):
    copy.git("config", "--unset", "user.name")
    copy.git("config", "user.useConfigOnly", "true")

    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    assert code == Exit.REFUSED
    assert "git does not know whose commit this is" in err
    assert copy.clean()


def test_without_the_git_program_an_edit_is_made_and_a_commit_is_refused(copy, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    assert copy.run("model", "set", "coder", "owner", "team-code", "--commit")[0] == Exit.REFUSED
    assert copy.text() == CODER.decode()
    assert copy.run("model", "set", "coder", "owner", "team-code")[0] == Exit.DONE
    assert "owner: team-code" in copy.text()


def test_an_edit_that_would_make_a_file_wrong_is_refused(copy):
    code, _, err = copy.run("model", "set", "coder", "profiles.gpu.paralel", "4")

    assert code == Exit.REFUSED
    assert err.startswith("error: catalog/coder.yaml was not edited\n  because it would be wrong: ")
    assert err.endswith("next: write `parallel`\n")
    assert copy.clean()


def test_another_source_is_written_though_its_lock_is_of_the_one_before(copy):
    copy.from_a_hub()

    code, out, _ = copy.run("model", "set", "coder", "source.version", "v2")

    assert code == Exit.DONE
    assert out.startswith(
        "It has to be locked again before it counts: llmgw lock coder (the lock of coder is of another source).\n"
    )


def test_a_problem_elsewhere_is_shown_by_the_plan_and_stops_no_edit(copy):
    copy.git.commit({"catalog/other.yaml": b"name: other\nprofils: []\n"})

    code, out, _ = copy.run("model", "set", "coder", "owner", "team-code")

    assert code == Exit.DONE
    assert "problem  catalog/other.yaml:2:1: " in out


def test_a_file_with_a_problem_of_its_own_can_still_be_edited(copy):
    copy.git.commit({"catalog/coder.yaml": CODER + b"onwer: ana\n"})

    code, out, _ = copy.run("model", "stop", "coder")

    assert code == Exit.PROBLEM
    assert (
        "\nThe edit has no effect until catalog/coder.yaml:21:1 is mended: `onwer` is not a key of a model; "
        "write `owner`.\n"
    ) in out
    assert copy.changed() == ["+state: stopped"]


def test_a_node_edited_in_a_server_yaml_with_a_problem_has_no_effect_either(copy):
    copy.git.commit({"server.yaml": copy.text("server.yaml").encode() + b"clustre: x\n"})

    code, out, _ = copy.run("node", "drain", "n1")

    assert code == Exit.PROBLEM
    assert "The edit has no effect until server.yaml:7:1 is mended: " in out


@pytest.mark.parametrize(
    ("file", "why"), [("MERGE_HEAD", "a merge is in progress"), ("index.lock", "index.lock is there")]
)
def test_what_git_is_in_the_middle_of_is_told_before_the_edit(copy, file, why):
    (copy.root / ".git" / file).write_text("0" * 40 + "\n")

    code, out, err = copy.run("model", "set", "coder", "owner", "team-code", "--commit")

    assert (code, out) == (Exit.REFUSED, "")
    assert why in err
    assert copy.text() == CODER.decode()


def test_a_file_that_git_ignores_is_not_committed(copy):
    (copy.root / ".git/info").mkdir(exist_ok=True)
    (copy.root / ".git/info/exclude").write_text("catalog/mine.yaml\n")
    mine = CODER.replace(b"name: coder\naliases: [code]", b"name: mine")
    copy.git.write({"catalog/mine.yaml": mine})

    code, _, err = copy.run("model", "stop", "mine", "--commit")

    assert code == Exit.REFUSED
    assert err == (
        "error: catalog/mine.yaml was not edited\n"
        "  because git ignores it, so it would be in no commit\n"
        "  next: take it out of .gitignore, or leave --commit out\n"
    )
    assert (copy.root / "catalog/mine.yaml").read_bytes() == mine
    assert copy.run("model", "stop", "mine")[1].endswith(
        "written and not committed: git ignores catalog/mine.yaml; take it out of .gitignore first\n"
    )


def test_the_next_step_of_a_new_file_adds_it(copy):
    copy.git.write({"catalog/new.yaml": CODER.replace(b"name: coder\naliases: [code]", b"name: new")})

    code, out, _ = copy.run("model", "stop", "new")
    step = out.rpartition("written and not committed: ")[2]
    done = subprocess.run(step, shell=True, cwd=copy.root, check=False)  # As a person would paste it.

    assert code == Exit.DONE
    assert step == "git add catalog/new.yaml && git commit -m 'new: stopped' -- catalog/new.yaml\n"
    assert done.returncode == 0
    assert copy.clean()


def test_a_branch_without_a_name_is_wrong_usage(copy):
    code, _, err = copy.run("model", "set", "coder", "owner", "team-code", "--branch", "")

    assert code == Exit.USAGE
    assert err.startswith("error: the branch has no name\n")
    assert copy.clean()


@pytest.mark.parametrize("link", ["catalog/coder.yaml", "catalog"])
def test_a_model_in_a_file_that_is_not_read_is_said_to_be_perhaps_there(copy, link):
    (copy.root / link).rename(copy.root / "real")
    (copy.root / link).symlink_to(copy.root / "real")

    code, _, err = copy.run("model", "replicas", "coder", "gpu=3")

    assert code == Exit.REFUSED
    assert f"there are no models, and {link} may hold it, which is not read: {link} cannot be read as a file; " in err
    assert f"next: {link}: " in err


@pytest.mark.parametrize("words", [("replicas", "coder", "gpu=3"), ("restart", "coder"), ("remove", "coder")])
def test_a_model_in_a_file_that_ends_in_the_middle_is_mended_first(copy, words):
    copy.git.commit({"catalog/coder.yaml": b"- name: coder\n  profiles: [\n- name: other\n"})

    code, _, err = copy.run("model", *words)

    assert code == Exit.REFUSED
    assert err.startswith("error: catalog/coder.yaml was not edited\n  because line 3: ")
    assert copy.clean()


def test_without_a_server_yaml_there_is_an_edit_and_no_plan(copy):
    copy.git("rm", "-q", "server.yaml")
    copy.git("commit", "-q", "-m", "gone")

    code, out, _ = copy.run("model", "stop", "coder")

    assert code == Exit.DONE
    assert "\nno plan: nothing can be planned: " in out
    assert copy.changed() == ["+state: stopped"]


def test_the_working_copy_is_found_from_a_folder_inside_it(copy, monkeypatch, capsys):
    monkeypatch.chdir(copy.root / "catalog")

    assert run(["model", "stop", "coder"]) == Exit.DONE

    assert copy.changed() == ["+state: stopped"]


def test_outside_a_repository_there_is_nothing_to_edit(tmp_path, capsys, at_home):
    assert run(["model", "stop", "coder", "--repo", str(tmp_path)]) == Exit.REFUSED

    assert f"error: {tmp_path} is not a git repository\n" in capsys.readouterr().err


def test_a_diff_is_one_that_git_applies(copy):
    crlf = CODER.replace(b"\n", b"\r\n").rstrip()
    copy.git("config", "core.autocrlf", "false")
    copy.git.commit({"catalog/coder.yaml": crlf})

    _, out, _ = copy.run("model", "set", "coder", "profiles.slow.cpu_cores", "4")
    written = (copy.root / "catalog/coder.yaml").read_bytes()
    copy.git("restore", ".")
    patch = out[: out.index("\nllmgw plan")].encode()
    subprocess.run(["git", "apply", "-"], cwd=copy.root, input=patch, check=True)

    assert written == crlf[:-1] + b"4"
    assert (copy.root / "catalog/coder.yaml").read_bytes() == written


def test_a_file_keeps_its_mode_and_is_never_half_written(copy):
    path = copy.root / "catalog/coder.yaml"
    path.chmod(0o640)

    copy.run("model", "stop", "coder")

    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["coder.yaml"]


def test_what_somebody_writes_meanwhile_is_not_written_over(copy, capsys):
    read = WorkCopy.find(copy.root)
    changed = Change.of(read.model("coder").put(("owner",), "team-code"), "coder: owner")
    (copy.root / "catalog/coder.yaml").write_bytes(CODER + b"# mine\n")

    with pytest.raises(Refused, match="was not written") as refused:
        carry_out(read, changed, How())

    assert refused.value.why == "it has been changed meanwhile"
    assert copy.changed() == ["+# mine"]


def test_every_command_that_edits_is_on_its_page_with_its_options():
    page = (Path(__file__).parents[2] / "docs/edit.md").read_text()
    commands = [path for path, command in COMMANDS.items() if command.module in {"model", "model_fields", "node"}]

    assert [" ".join(path) for path in commands if f"    llmgw {' '.join(path)} NAME" not in page] == []
    assert [
        option for option in ("--commit", "--branch NAME", "--push", "--json", "--repo DIR") if option not in page
    ] == []
