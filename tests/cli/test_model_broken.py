"""Commands on a model that has problems: each is carried out or refused, and none of them crashes."""

from __future__ import annotations

import json

import pytest
from cli.conftest import CODER, SERVER

from llmgw.catalog.parse import parse
from llmgw.errors import Exit

pytestmark = pytest.mark.needs_git

ODD = [7, [1], {"a": 1}]
PLACES = [
    *(("aliases",), ("source",), ("profiles",), ("scaling",), ("profiles", 0), ("profiles", 0, "name")),
    *(("profiles", 0, "gpu"), ("profiles", 0, "args"), ("profiles", 0, "replicas")),
]
COMMANDS = [
    ("replicas", "coder", "cpu=4", "--cpu-memory", "24"),
    ("replicas", "coder", "gpu=3"),
    ("scale", "coder", "2..5"),
    ("stop", "coder"),
    ("restart", "coder"),
    ("gpus", "coder", "2"),
    ("alias", "coder", "other"),
    ("adapter", "coder", "sql", "/sql.gguf"),
    ("set", "coder", "scaling.min", "1"),
    ("start", "coder"),
    ("remove", "coder"),
]


def broken(at, value):
    whole = parse(CODER).value
    # Without its profile for CPUs, so that one would be added.
    del whole["profiles"][1]
    here = whole
    for step in at[:-1]:
        here = here[step]
    here[at[-1]] = value
    return json.dumps(whole, indent=2).encode()


@pytest.mark.parametrize("at", PLACES, ids=lambda at: ".".join(map(str, at)))
def test_nothing_that_is_written_there_makes_a_command_crash(copy, at):
    for value in ODD:
        data = broken(at, value)
        for words in COMMANDS:
            copy.git.write({"catalog/coder.yaml": data})

            code, _, err = copy.run("model", *words)

            assert code in (Exit.DONE, Exit.PROBLEM, Exit.REFUSED, Exit.HELD, Exit.USAGE), (words, value, err)


def test_a_profile_is_not_made_of_one_that_is_wrong(copy):
    wrong = CODER[: CODER.index(b"  - name: slow")].replace(b'[--jinja, -ngl, "99"]', b"[--jinja, --tensor-split=3,1]")
    copy.git.commit({"catalog/coder.yaml": wrong})

    code, _, err = copy.run("model", "replicas", "coder", "cpu=4", "--cpu-memory", "24")

    assert code == Exit.REFUSED
    assert err.startswith(
        "error: coder has no profile cpu, and none was added\n  because it would be made from a profile that is wrong: "
    )
    assert "next: mend catalog/coder.yaml:10 first: " in err
    assert copy.clean()


@pytest.mark.parametrize("at", ["nodes", "nodes[0]", "name", "cards_out", "drained", "defaults", "blocks", "mirror"])
def test_nothing_in_server_yaml_makes_a_command_crash(copy, at):
    for value in ODD:
        whole = parse(SERVER).value
        if at == "nodes[0]":
            whole["nodes"][0] = value
        else:
            (whole["nodes"][1] if at in ("name", "cards_out", "drained") else whole)[at] = value
        data = json.dumps(whole, indent=2).encode()
        for words in (
            ("node", "drain", "n2"),
            ("node", "drain", "n2", "--card", "GPU-3"),
            ("node", "undrain", "n2", "--card", "GPU-3"),
            ("model", "scale", "coder", "1..9"),
            ("model", "stop", "coder"),
        ):
            copy.git.write({"server.yaml": data, "catalog/coder.yaml": CODER})

            code, _, err = copy.run(*words)

            assert code in (Exit.DONE, Exit.PROBLEM, Exit.REFUSED, Exit.HELD, Exit.USAGE), (words, value, err)
