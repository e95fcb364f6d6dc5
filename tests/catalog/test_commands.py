"""`llmgw validate`, `init` and `schema`, as a person runs them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from catalog.written import KEY, MODEL, SERVER, as_yaml, changed

from llmgw.cli.main import run
from llmgw.cli.schema import drift
from llmgw.errors import Exit

BROKEN = as_yaml(changed(MODEL, (("state",), "stoped")))


@pytest.fixture
def fleet(tmp_path):
    """A working copy with a good server, a good model and a key."""
    put(tmp_path / "server.yaml", as_yaml(SERVER))
    put(tmp_path / "catalog" / "coder.yaml", as_yaml(MODEL))
    put(tmp_path / "keys" / "apps.yaml", as_yaml(KEY))
    return tmp_path


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def validate(directory: Path, capsys, *flags: str) -> tuple[int, str]:
    code = run(["validate", str(directory), *flags])
    return code, capsys.readouterr().out


def test_a_good_working_copy_is_counted(fleet, capsys):
    assert validate(fleet, capsys) == (Exit.DONE, "no problems: 1 model, 2 nodes, 1 key\n")


def test_a_key_whose_last_day_is_over_is_noted_and_no_problem(fleet, capsys):
    put(fleet / "keys" / "apps.yaml", as_yaml({**KEY, "expires": "2001-01-31"}))

    code, out = validate(fleet, capsys)

    assert code == Exit.DONE
    assert "keys/apps.yaml:1:1: note: the last day of key helpdesk was 2001-01-31\n" in out


def test_every_problem_is_printed_and_the_counts_come_last(fleet, capsys):
    put(fleet / "catalog" / "a.yaml", BROKEN.replace(b'"coder"', b'"a"').replace(b'"code"', b'"b"'))

    code, out = validate(fleet, capsys)

    assert code == Exit.PROBLEM
    assert out == (
        "catalog/a.yaml:10:11: `state` cannot be `stoped`\n"
        "  because one of `running`, `stopped` belongs here\n"
        "  next: write `stopped`\n"
        "1 problem in 1 file; good: 1 model, 2 nodes, 1 key\n"
    )


def test_problems_are_a_list_for_programs(fleet, capsys):
    put(fleet / "catalog" / "coder.yaml", BROKEN)

    code, out = validate(fleet, capsys, "--json")

    assert code == Exit.PROBLEM
    assert json.loads(out) == [
        {
            "path": "catalog/coder.yaml",
            "line": 10,
            "column": 11,
            "what": "`state` cannot be `stoped`",
            "why": "one of `running`, `stopped` belongs here",
            "do": "write `stopped`",
            "model": "coder",
        }
    ]


def test_a_planned_field_is_noted_and_is_no_problem(fleet, capsys):
    put(fleet / "catalog" / "coder.yaml", as_yaml({"routing": {"retries": 1}, **MODEL}))
    note = "catalog/coder.yaml:2:2: note: `routing` is planned: it is checked, and does not act yet\n"

    assert validate(fleet, capsys) == (Exit.DONE, f"{note}no problems: 1 model, 2 nodes, 1 key\n")
    # A program gets its list, and the note beside it.
    assert run(["validate", str(fleet), "--json"]) == Exit.DONE
    assert capsys.readouterr() == ("[]\n", note)


def test_no_problem_is_an_empty_list_for_programs(fleet, capsys):
    assert validate(fleet, capsys, "--json") == (Exit.DONE, "[]\n")


def test_a_directory_without_server_yaml_says_so(tmp_path, capsys):
    code, out = validate(tmp_path, capsys)

    assert code == Exit.PROBLEM
    assert out.startswith("server.yaml: server.yaml is missing\n  because ")


@pytest.mark.parametrize("name", ["nothing", "file"])
def test_a_working_copy_that_is_not_there_cannot_be_reached(tmp_path, capsys, name):
    put(tmp_path / "file", b"")

    code = run(["validate", str(tmp_path / name)])

    assert code == Exit.UNREACHABLE
    assert capsys.readouterr().err.startswith("error: the working copy ")


def test_links_are_said_and_not_followed(fleet, capsys, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    put(outside / "secret.yaml", b"password: hunter2")
    (fleet / "catalog" / "file.yaml").symlink_to(outside / "secret.yaml")
    (fleet / "catalog" / "folder").symlink_to(outside)
    (fleet / "catalog" / "gone.yaml").symlink_to(outside / "gone.yaml")

    code, out = validate(fleet, capsys)

    assert code == Exit.PROBLEM
    assert [line.partition(":")[0] for line in out.splitlines() if line.startswith("catalog")] == [
        "catalog/file.yaml",
        "catalog/folder",
        "catalog/gone.yaml",
    ]
    assert "hunter2" not in out


def test_what_is_no_file_is_said_in_words_that_can_be_printed(fleet, capsys):
    os.mkfifo(fleet / "catalog" / "pipe.yaml")
    put(Path(os.fsdecode(os.fsencode(fleet) + b"/catalog/\xff.yaml")), b"name: x")

    code, out = validate(fleet, capsys)

    assert code == Exit.PROBLEM
    assert out.encode().decode() == (
        "catalog/\\xff.yaml: catalog/\\xff.yaml cannot be read as a file\n"
        "  because it has a name that is not UTF-8\n"
        "  next: rename it\n"
        "catalog/pipe.yaml: catalog/pipe.yaml cannot be read as a file\n"
        "  because it is neither a file nor a folder\n"
        "  next: remove it\n"
        "2 problems in 2 files; good: 1 model, 2 nodes, 1 key\n"
    )


@pytest.mark.parametrize("there", [(), (".git",)])
def test_a_new_fleet_is_valid_as_it_stands_to_us_and_to_an_editor(tmp_path, capsys, monkeypatch, there):
    for name in there:
        (tmp_path / "new" / name).mkdir(parents=True)

    assert run(["init", str(tmp_path / "new")]) == Exit.DONE
    said = capsys.readouterr().out

    assert ("git -C" in said) == (not there)
    assert validate(tmp_path / "new", capsys) == (Exit.DONE, "no problems: 1 model, 1 node, 0 keys\n")
    monkeypatch.chdir(tmp_path / "new")
    assert drift(Path("schema")) == []
    settings = json.loads((tmp_path / "new" / ".vscode" / "settings.json").read_text())
    assert all((tmp_path / "new" / file).is_file() for file in settings["yaml.schemas"])


@pytest.mark.parametrize("name", ["README.md", ".hidden"])
def test_a_directory_with_something_in_it_is_left_alone(tmp_path, capsys, name):
    put(tmp_path / name, b"mine")

    code = run(["init", str(tmp_path)])

    assert code == Exit.REFUSED
    assert f"it has {name} in it" in capsys.readouterr().err
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [(name, b"mine")]


def test_a_place_that_cannot_be_written_is_refused(tmp_path, capsys):
    put(tmp_path / "file", b"")

    code = run(["init", str(tmp_path / "file" / "below")])

    assert code == Exit.REFUSED
    assert "was not written" in capsys.readouterr().err


def test_schemas_are_written_where_one_stands_and_checked_there(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert run(["schema", "--check"]) == Exit.PROBLEM
    assert run(["schema", "--write"]) == Exit.DONE
    assert run(["schema", "--check"]) == Exit.DONE
    assert drift(tmp_path / "schema") == []
    assert "schema/keys.schema.json" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--write", "--check"]])
def test_schema_wants_to_know_which_of_the_two(tmp_path, monkeypatch, flags, capsys):
    monkeypatch.chdir(tmp_path)

    assert run(["schema", *flags]) == Exit.USAGE
    assert list(tmp_path.iterdir()) == []
